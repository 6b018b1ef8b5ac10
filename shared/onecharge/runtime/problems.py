"""HTTP errors as problem+json (RFC 9457), which explain an error without repeating what the client has sent."""

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response


@dataclass(eq=False)
class Problem(Exception):
    """A request that fails: `kind` is the problem type, for programs, and `detail` the explanation, for people."""

    status: HTTPStatus
    kind: str
    detail: str
    errors: list[dict[str, str]] = field(default_factory=list)
    """Where the request breaks the contract: a `pointer` (JSON Pointer, RFC 6901) and a `detail` each."""

    def response(self, correlation_id: str) -> Response[str]:
        """The response, with the correlation id in body and header."""
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
