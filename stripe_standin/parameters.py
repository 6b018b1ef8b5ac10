"""Parse and validate request parameters. A parameter that is not modeled is refused, never ignored."""

import re
from collections.abc import Collection, Mapping

from stripe_standin.errors import invalid
from stripe_standin.messages import Request

METADATA = r"metadata\[[^\]]+\]"
EXPAND = r"expand\[\d*\]"


def allow(request: Request, *patterns: str) -> Mapping[str, str]:
    """Returns the parameters; raises if one matches none of the patterns."""
    allowed = re.compile("|".join((*patterns, EXPAND)))
    for name in request.parameters:
        if not allowed.fullmatch(name):
            raise invalid(f"Received unknown parameter: {name}", param=name, code="parameter_unknown")
    return request.parameters


def integer(text: str, param: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise invalid(f"Invalid integer: {text}", param=param, code="parameter_invalid_integer")
    return int(text)


def boolean(parameters: Mapping[str, str], param: str, default: str = "false") -> bool:
    """`True` and `False` are what stripe-python before version 12 sends."""
    text = parameters.get(param, default)
    if text not in ("true", "false", "True", "False"):
        raise invalid(f"Invalid boolean: {text}", param=param)
    return text.lower() == "true"


def one_of(parameters: Mapping[str, str], param: str, choices: Collection[str]) -> str | None:
    """The value, or None if it is missing; raises if it is none of the choices."""
    value = parameters.get(param)
    if value is not None and value not in choices:
        raise invalid(f"Invalid {param}: must be one of {', '.join(choices)}", param=param)
    return value


def values(parameters: Mapping[str, str], param: str) -> list[str]:
    """The values of an array: `types[]=a&types[]=b` arrives as `types[0]` and `types[1]`."""
    return [value for name, value in parameters.items() if re.fullmatch(re.escape(param) + r"\[\d*\]", name)]


def metadata_of(parameters: Mapping[str, str]) -> dict[str, str]:
    # An empty value unsets a key (Stripe documentation, "Metadata").
    metadata = {name[9:-1]: value for name, value in parameters.items() if name.startswith("metadata[") and value}
    if len(metadata) > 50 or any(len(name) > 40 or len(value) > 500 for name, value in metadata.items()):
        raise invalid("Metadata takes 50 keys of 40 characters, with values of 500.", param="metadata")
    return metadata
