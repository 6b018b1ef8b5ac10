"""What went wrong, said as problem+json (RFC 9457): clear to the client, and silent about what it sent."""

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response


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
