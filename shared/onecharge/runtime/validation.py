"""Why an input was refused, without repeating anything of it."""

from pydantic import ValidationError

_NO_KNOWN_TYPE = {"union_tag_not_found": "type: missing", "union_tag_invalid": "type: unknown"}
"""pydantic's errors for a union of events, whose discriminator is the event's type."""


def reason_of(invalid: ValidationError) -> str:
    """The first rule that the input breaks, as `field: rule`.

    Names fields of the contract only: fields that the contract does not know are ignored before they can be named.
    """
    first = invalid.errors(include_input=False, include_url=False, include_context=False)[0]
    if first["type"] in _NO_KNOWN_TYPE:
        return _NO_KNOWN_TYPE[first["type"]]
    field = ".".join(str(part) for part in first["loc"]) or "message"
    return f"{field}: {first['type']}"
