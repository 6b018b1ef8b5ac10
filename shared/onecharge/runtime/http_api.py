"""What the functions behind the HTTP API share: who calls, what they respond, and how a request fails.

API Gateway verifies the access token ─► HttpApi: the route ─► JSON
                                                   └─► whatever it raises: problem+json (RFC 9457)
"""

import itertools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

from aws_lambda_powertools import Logger
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response, content_types
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, ConfigDict

from onecharge.contract.events import CUSTOMER_ID_PATTERN, ORDER_ID_PATTERN
from onecharge.runtime.alarms import Cause
from onecharge.runtime.dynamodb import ReadsThrottled
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.secrets import SecretUnavailable, logged_as

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

JsonResponse = Response[dict[str, Any]]


@dataclass(eq=False)
class Problem(Exception):
    """A request that fails: `kind` is the problem type, for programs, and `detail` the explanation, for people.

    Neither repeats what the client has sent.
    """

    status: HTTPStatus
    kind: str
    detail: str
    errors: list[dict[str, str]] = field(default_factory=list)
    """Where the request breaks the contract: a `pointer` (JSON Pointer, RFC 6901) and a `detail` each."""
    members: Mapping[str, Any] = field(default_factory=dict)
    """What this kind of problem says for programs (RFC 9457, "Extension Members")."""

    def response(self, correlation_id: str) -> Response[str]:
        """The response, with the correlation id in body and header."""
        body: dict[str, Any] = {
            "type": f"urn:onecharge:problem:{self.kind}",
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": self.detail,
            "correlation_id": correlation_id,
            **self.members,
            **({"errors": self.errors} if self.errors else {}),
        }
        headers = {"X-Correlation-Id": correlation_id}
        return Response(self.status.value, "application/problem+json", json.dumps(body), headers)


def order_not_found() -> Problem:
    """404, for another customer's order as for one that does not exist."""
    return Problem(HTTPStatus.NOT_FOUND, "not-found", "There is no such order.")


def try_again(detail: str) -> Problem:
    """503: retrying is safe, with the same Idempotency-Key if the request had one."""
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "try-again", detail)


class ResponseModel(BaseModel):
    """A field that is not described cannot be sent, and an invalid response is logged without its content."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def respond(
    status: HTTPStatus, shown: ResponseModel, correlation_id: str, headers: Mapping[str, str] | None = None
) -> JsonResponse:
    """The response as JSON, which no cache may store."""
    body = shown.model_dump(mode="json", exclude_unset=True)
    no_store = {"X-Correlation-Id": correlation_id, "Cache-Control": "no-store"}
    return Response(status.value, content_types.APPLICATION_JSON, body, {**no_store, **(headers or {})})


@dataclass(frozen=True)
class Request:
    """A request of a customer or of the staff, whose token API Gateway has verified: only that says who it is."""

    event: APIGatewayProxyEventV2
    subject: str
    """The claim `sub`: the customer's id, or the member of the staff."""
    scopes: frozenset[str]
    """What the token allows."""

    @classmethod
    def of(cls, event: APIGatewayProxyEventV2) -> Self:
        """Raises Problem if there are no claims, or no customer can have this subject."""
        claims = event.request_context.authorizer.jwt_claim
        if not claims:
            raise Problem(HTTPStatus.UNAUTHORIZED, "unauthenticated", "The request has no verified access token.")
        # API Gateway accepts a token whose `aud` or `client_id` is the audience. That includes an ID token of Cognito,
        # whose `aud` is the client's id. The claim `token_use` of Cognito's tokens says which they are.
        if claims.get("token_use", "access") != "access":
            raise _forbidden("The token is no access token: its claim token_use says so.")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not re.fullmatch(CUSTOMER_ID_PATTERN, subject):
            raise _forbidden("The access token names no customer: its claim sub is 1 to 255 visible ASCII characters.")
        # API Gateway writes a claim that is a list as `[one two]`.
        words = [str(claims.get(name) or "").strip("[]").split() for name in ("scope", "scp")]
        return cls(event, subject, frozenset(itertools.chain(*words)))

    @property
    def correlation_id(self) -> str:
        return self.event.request_context.request_id

    def require_scope(self, scope: str) -> None:
        """Raises Problem if the token has not this scope."""
        if scope not in self.scopes:
            raise _forbidden("The access token does not have the scope that this request needs.")


def _forbidden(detail: str) -> Problem:
    return Problem(HTTPStatus.FORBIDDEN, "forbidden", detail)


class HttpApi(APIGatewayHttpResolver):
    """Powertools' resolver. Whatever a route raises becomes problem+json."""

    def __init__(self, logger: Logger, count: Callable[[str], None]) -> None:
        super().__init__()
        self.logger, self.count = logger, count
        nothing_here = Problem(HTTPStatus.NOT_FOUND, "not-found", "Nothing is at this path with this method.")
        self.not_found(lambda _: self.refused(nothing_here))
        self.exception_handler(Problem)(self.refused)
        self.exception_handler([BotoCoreError, ClientError, SecretUnavailable, ReadsThrottled])(self._unavailable)
        self.exception_handler(Exception)(self._failed)

    def resolve(self, event: Mapping[str, Any], context: "LambdaContext") -> dict[str, Any]:
        """Answer one HTTP request; any other event, such as a queue's, with a problem."""
        if "http" in (event.get("requestContext") or ()):
            return super().resolve(event, context)
        self.logger.error("event refused: not a request of an HTTP API")
        problem = Problem(HTTPStatus.BAD_REQUEST, "not-http", "The event is not a request of an HTTP API.")
        refused = problem.response(context.aws_request_id)
        return {"statusCode": refused.status_code, "headers": refused.headers, "body": refused.body}

    @property
    def correlation_id(self) -> str:
        return str(self.current_event.request_context.request_id)

    def authenticated(self, order_id: str = "") -> Request:
        """The request, if its path names no order, or one that can be. Raises Problem."""
        request = Request.of(self.current_event)
        if order_id and not re.fullmatch(ORDER_ID_PATTERN, order_id):
            raise order_not_found()
        return request

    def refused(self, problem: Problem) -> Response[str]:
        """The request cannot be fulfilled: 4xx, or 503 where a retry may be."""
        self.count(f"Refused.{problem.status.value}")
        about = {"problem": problem.kind, "correlation_id": self.correlation_id}
        if problem.status is HTTPStatus.UNAUTHORIZED:
            # It cannot happen while each route has its authorizer.
            self.count(Alarm(Cause.UNEXPECTED_ERROR))
            about["cause"] = Cause.UNEXPECTED_ERROR
            self.logger.error("request refused: no verified claims, so the route has no authorizer", extra=about)
        else:
            self.logger.info("request refused", extra=about)
        return problem.response(self.correlation_id)

    def _unavailable(self, error: Exception) -> Response[str]:
        """AWS does not answer: 503."""
        extra = {"error": logged_as(error), "correlation_id": self.correlation_id}
        self.logger.error("unavailable: AWS does not answer", extra=extra)
        detail = "The result is unknown. Retry, with the same Idempotency-Key if the request had one."
        return try_again(detail).response(self.correlation_id)

    def _failed(self, _: Exception) -> Response[str]:
        """A defect of ours: 500."""
        self.count(Alarm(Cause.UNEXPECTED_ERROR))
        about = {"correlation_id": self.correlation_id, "cause": Cause.UNEXPECTED_ERROR}
        self.logger.exception("request failed", extra=about)
        detail = "An internal error. Retrying with the same Idempotency-Key is safe."
        return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", detail).response(self.correlation_id)
