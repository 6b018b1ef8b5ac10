"""Stripe's API errors. Source: Stripe documentation, "Errors" and "Error codes"."""

from typing import Any


class ApiError(Exception):
    """An error response. `stored`: whether the idempotency key replays it; not if it failed before execution."""

    def __init__(self, status: int, type_: str, message: str, *, stored: bool = False, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.stored = stored
        details = {name: value for name, value in details.items() if value is not None}
        if "code" in details:
            details.setdefault("doc_url", doc_url(details["code"]))
        self.body = {"error": {"type": type_, "message": message, **details}}


def doc_url(code: str) -> str:
    return f"https://stripe.com/docs/error-codes/{code.replace('_', '-')}"


def invalid(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """400, a parameter fails validation: not executed, not stored under the key."""
    return ApiError(400, "invalid_request_error", message, param=param, code=code)


def refused(message: str, *, param: str | None = None, code: str | None = None, **details: Any) -> ApiError:
    """400, the state of an object does not allow it: execution had begun, so it is stored under the key."""
    return ApiError(400, "invalid_request_error", message, stored=True, param=param, code=code, **details)


def missing(what: str, identifier: str, param: str) -> ApiError:
    """404, the path names an unknown object."""
    message = f"No such {what}: '{identifier}'"
    return ApiError(404, "invalid_request_error", message, code="resource_missing", param=param)


def missing_parameter(what: str, identifier: str, param: str) -> ApiError:
    """400, a parameter names an unknown object."""
    return refused(f"No such {what}: '{identifier}'", code="resource_missing", param=param)
