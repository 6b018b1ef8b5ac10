"""What is wrong with an order that is refused, said without repeating it."""

from http import HTTPStatus

from pydantic import ValidationError

from onecharge.runtime.problems import Problem


def invalid_request(
    invalid: ValidationError, detail: str = "The body does not describe an order that can be charged."
) -> Problem:
    """Where the body breaks the contract (JSON Pointers, RFC 6901) and how, without repeating what it says."""
    errors = invalid.errors(include_input=False, include_url=False, include_context=False)
    if errors[0]["type"] == "json_invalid":
        return Problem(HTTPStatus.BAD_REQUEST, "invalid-json", "The body is not valid JSON.")
    return Problem(
        HTTPStatus.BAD_REQUEST,
        "invalid-request",
        detail,
        [{"pointer": _pointer(error["type"], error["loc"]), "detail": error["msg"]} for error in errors[:20]],
    )


def _pointer(error_type: str, location: tuple[int | str, ...]) -> str:
    # The name of an unknown field is the client's own text: it is pointed at by its parent.
    known = location[:-1] if error_type == "extra_forbidden" else location
    return "".join(f"/{part}" for part in known)
