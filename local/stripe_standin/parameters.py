"""Parameters of requests: which ones there are, and what they say. What is not modelled is refused, never ignored."""

import re
from collections.abc import Mapping

from local.stripe_standin.errors import invalid
from local.stripe_standin.messages import Request

METADATA = r"metadata\[[^\]]+\]"
EXPAND = r"expand\[\d*\]"


def allow(request: Request, *patterns: str) -> Mapping[str, str]:
    """The parameters, none of which is any other than these."""
    allowed = re.compile("|".join((*patterns, EXPAND)))
    for name in request.parameters:
        if not allowed.fullmatch(name):
            raise invalid(f"Received unknown parameter: {name}", param=name, code="parameter_unknown")
    return request.parameters


def integer(text: str, param: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise invalid(f"Invalid integer: {text}", param=param, code="parameter_invalid_integer")
    return int(text)


def boolean(given: Mapping[str, str], param: str) -> bool:
    text = given.get(param, "false")
    if text not in ("true", "false"):
        raise invalid(f"Invalid boolean: {text}", param=param)
    return text == "true"


def one_of(given: Mapping[str, str], param: str, choices: tuple[str, ...]) -> str | None:
    """The value, which is one of these, or is not given."""
    value = given.get(param)
    if value is not None and value not in choices:
        raise invalid(f"Invalid {param}: must be one of {', '.join(choices)}", param=param)
    return value


def values(given: Mapping[str, str], param: str) -> list[str]:
    """Of an array: `types[]=a&types[]=b` arrives as `types[0]` and `types[1]`."""
    return [value for name, value in given.items() if re.fullmatch(re.escape(param) + r"\[\d*\]", name)]


def metadata_of(given: Mapping[str, str]) -> dict[str, str]:
    # An empty value unsets a key (Stripe documentation, "Metadata").
    metadata = {name[9:-1]: value for name, value in given.items() if name.startswith("metadata[") and value}
    if len(metadata) > 50 or any(len(name) > 40 or len(value) > 500 for name, value in metadata.items()):
        raise invalid("Metadata takes 50 keys of 40 characters, with values of 500.", param="metadata")
    return metadata
