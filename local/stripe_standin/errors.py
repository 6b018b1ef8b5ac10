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
        self.body = {"error": {"type": type_, "message": message, **given}}


def invalid(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, "invalid_request_error", message, param=param, code=code)


def missing(what: str, identifier: str, param: str) -> ApiError:
    message = f"No such {what}: '{identifier}'"
    return ApiError(404, "invalid_request_error", message, code="resource_missing", param=param)


def server_error() -> ApiError:
    return ApiError(500, "api_error", "An unknown error occurred.", remembered=True)
