"""What went wrong, said as problem+json (RFC 9457): clear to the client, and silent about what it sent."""

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response
from pydantic import ValidationError


@dataclass(eq=False)
class Problem(Exception):
    """A request that is refused; `kind` names the problem's type for programs, `detail` explains it to people."""

    status: HTTPStatus
    kind: str
    detail: str
    errors: list[dict[str, str]] = field(default_factory=list)

    def response(self, correlation_id: str) -> Response[str]:
        body: dict[str, Any] = {
            "type": f"urn:onecharge:problem:{self.kind}",
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": self.detail,
            "correlation_id": correlation_id,
        }
        if self.errors:
            body["errors"] = self.errors
        return Response(
            status_code=self.status.value,
            content_type="application/problem+json",
            body=json.dumps(body),
            headers={"X-Correlation-Id": correlation_id},
        )


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
