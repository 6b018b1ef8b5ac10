"""Stripe's errors as its API gives them. Source: Stripe documentation, "Errors" and "Error codes"."""

from typing import Any


class ApiError(Exception):
    """An answer that is an error.

    `remembered` says whether it is stored under the idempotency key: what failed before execution began is not.
    """

    def __init__(self, status: int, type_: str, message: str, *, remembered: bool = False, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.remembered = remembered
        given = {name: value for name, value in details.items() if value is not None}
        if "code" in given:
            given.setdefault("doc_url", doc_url(given["code"]))
        self.body = {"error": {"type": type_, "message": message, **given}}


def doc_url(code: str) -> str:
    return f"https://stripe.com/docs/error-codes/{code.replace('_', '-')}"


def invalid(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """A parameter fails validation: nothing has begun, nothing is remembered."""
    return ApiError(400, "invalid_request_error", message, param=param, code=code)


def refused(message: str, *, param: str | None = None, code: str | None = None, **details: Any) -> ApiError:
    """What there is allows no such thing; execution had begun, so it is remembered."""
    return ApiError(400, "invalid_request_error", message, remembered=True, param=param, code=code, **details)


def missing(what: str, identifier: str, param: str) -> ApiError:
    message = f"No such {what}: '{identifier}'"
    return ApiError(404, "invalid_request_error", message, code="resource_missing", param=param)


def missing_parameter(what: str, identifier: str, param: str) -> ApiError:
    """Something that a parameter names, unlike what the path names, is missing with a 400."""
    return refused(f"No such {what}: '{identifier}'", code="resource_missing", param=param)
