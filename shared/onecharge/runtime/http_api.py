"""What the functions behind the HTTP API share: a route, who calls it, what it responds, and how it fails.

API Gateway verifies the access token ─► resolver_of: the route's handler ─► JSON
                                                          └─► whatever it raises: problem+json (RFC 9457)
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response, content_types
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, ConfigDict, Field

from onecharge.contract.events import CUSTOMER_ID_PATTERN, ORDER_ID_PATTERN
from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm, Counts
from onecharge.runtime.secrets import SecretUnavailable, logged_as

JsonResponse = Response[dict[str, Any]]


# ---------------------------------------------------------------- what a function responds


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
        }
        if self.errors:
            body["errors"] = self.errors
        return Response(
            status_code=self.status.value,
            content_type="application/problem+json",
            body=json.dumps(body),
            headers={"X-Correlation-Id": correlation_id},
        )


NOTHING_HERE = Problem(HTTPStatus.NOT_FOUND, "not-found", "Nothing is at this path with this method.")


def order_not_found() -> Problem:
    """404, for another customer's order as for one that does not exist."""
    return Problem(HTTPStatus.NOT_FOUND, "not-found", "There is no such order.")


def try_again(detail: str) -> Problem:
    """503: retrying is safe, with the same Idempotency-Key if the request had one."""
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "try-again", detail)


def _may_grow(schema: dict[str, Any]) -> None:
    del schema["additionalProperties"]


class ResponseModel(BaseModel):
    """A field that is not described cannot be sent, and an invalid response is logged without its content.

    Clients are promised no such thing: a response may get more fields, so the document does not rule them out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, json_schema_extra=_may_grow)


class InvalidPart(ResponseModel):
    """One field of the request that breaks the contract."""

    pointer: str = Field(description="A JSON Pointer into the body (RFC 6901), or the name of a query parameter.")
    detail: str


class ProblemDetails(ResponseModel):
    """Why the request was refused (RFC 9457); it never repeats what was sent."""

    type: str
    title: str
    status: int
    detail: str
    correlation_id: str
    errors: list[InvalidPart] = Field(default=[], description="Only where the type is `invalid-request`.")
    amount: int | None = Field(
        default=None, description="Only where the type is `amount-differs`: what the order costs now, in minor units."
    )


# ---------------------------------------------------------------- who calls


class Unauthenticated(Exception):
    """The request has no verified claims: its route has no authorizer, or something else invoked the function."""


@dataclass(frozen=True)
class Caller:
    """A customer, or a member of the staff: the token's scopes say what they may do.

    API Gateway has verified the access token (template.yaml, OrdersApi) and passes its claims on as text. Nothing in
    the body, the query or a header says who the customer is.
    """

    subject: str
    """The claim `sub`, which is the customer's id."""
    scopes: frozenset[str]

    @classmethod
    def of(cls, event: APIGatewayProxyEventV2) -> "Caller":
        """Raises Unauthenticated, and Problem if no customer can have this subject."""
        claims = event.request_context.authorizer.jwt_claim
        if not claims:
            raise Unauthenticated
        # API Gateway accepts a token whose `aud` or `client_id` is the audience. That includes an ID token of Cognito,
        # whose `aud` is the client's id. The claim `token_use` of Cognito's tokens says which they are.
        if claims.get("token_use", "access") != "access":
            raise _forbidden("The token is no access token: its claim token_use says so.")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not re.fullmatch(CUSTOMER_ID_PATTERN, subject):
            raise _forbidden("The access token names no customer: its claim sub is 1 to 255 visible ASCII characters.")
        return cls(subject, frozenset(scope for name in ("scope", "scp") for scope in _words(claims.get(name))))

    def require_scope(self, scope: str) -> None:
        """Raises Problem if the token has not this scope."""
        if scope not in self.scopes:
            raise _forbidden("The access token does not have the scope that this request needs.")


def _words(claim: object) -> list[str]:
    """The words of a claim; API Gateway makes a list `[one two]`."""
    return str(claim or "").removeprefix("[").removesuffix("]").split()


def _forbidden(detail: str) -> Problem:
    return Problem(HTTPStatus.FORBIDDEN, "forbidden", detail)


@dataclass(frozen=True)
class Request:
    """An HTTP request as API Gateway sends it (payload format 2.0)."""

    event: APIGatewayProxyEventV2

    @cached_property
    def caller(self) -> Caller:
        """Raises as Caller.of."""
        return Caller.of(self.event)

    @property
    def customer_id(self) -> str:
        """Whose orders the request is about, unless it is one of the staff's. Raises as Caller.of."""
        return self.caller.subject

    @property
    def correlation_id(self) -> str:
        return self.event.request_context.request_id

    def respond(
        self, status: HTTPStatus, response: ResponseModel, headers: Mapping[str, str] | None = None
    ) -> JsonResponse:
        """The response as JSON, which no cache may store; it has the request's correlation id unless `headers` do."""
        return Response(
            status_code=status.value,
            content_type=content_types.APPLICATION_JSON,
            body=response.model_dump(mode="json", exclude_unset=True),
            headers={"X-Correlation-Id": self.correlation_id, "Cache-Control": "no-store", **(headers or {})},
        )


# ---------------------------------------------------------------- routes


@dataclass(frozen=True)
class Route:
    """One method of one path: its handler, its input, and every response that it may have.

    The resolver and docs/openapi.json are both made from this description.
    """

    handler: Callable[..., JsonResponse]
    """Takes the Request, the function's dependencies, and the path's parameters by their names."""
    method: str
    path: str
    """As OpenAPI and template.yaml write it: /orders/{order_id}."""
    summary: str
    status: HTTPStatus
    """Of the response when all is well."""
    response: type[BaseModel]
    problems: Mapping[HTTPStatus, tuple[str, ...]]
    """The kinds of problem that it is refused with, by status, in addition to COMMON_PROBLEMS."""
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    is_idempotent_by_key: bool = False
    """Takes the header Idempotency-Key; Idempotent-Replayed marks the replay of an earlier response."""
    returns_location: bool = False
    """Has the header Location."""
    scope: str | None = None
    """What the access token has to allow; template.yaml says the same of the route."""
    is_sometimes_accepted: bool = False
    """May also respond 202, with the same model: the request is stored, and finishes asynchronously."""

    @property
    def name(self) -> str:
        """The operationId in the OpenAPI document: the name of the handler."""
        return self.handler.__name__


COMMON_PROBLEMS: Mapping[HTTPStatus, tuple[str, ...]] = {
    HTTPStatus.UNAUTHORIZED: ("unauthenticated",),
    HTTPStatus.FORBIDDEN: ("forbidden",),
    HTTPStatus.INTERNAL_SERVER_ERROR: ("internal",),
    HTTPStatus.SERVICE_UNAVAILABLE: ("try-again",),
}
"""What any route may respond: to a token that does not allow the request, and when something of ours or of AWS's fails
(500 and 503: retrying is safe)."""


def resolver_of(
    routes: Sequence[Route],
    dependencies: Any,
    *,
    logger: Logger,
    count: Counts,
    not_found: Sequence[type[Exception]] = (),
    outages: Sequence[type[Exception]] = (),
) -> APIGatewayHttpResolver:
    """The resolver of all routes. Whatever a route raises becomes problem+json.

    Args:
        dependencies: what the routes' handlers work with.
        not_found: what they raise for an order that the customer does not have.
        outages: what they raise, beside errors of AWS, if the result of the request is unknown.
    """
    resolver = APIGatewayHttpResolver()
    for route in routes:
        # The path as Powertools writes it: /orders/<order_id>.
        path = route.path.replace("{", "<").replace("}", ">")
        resolver.route(path, route.method)(_handler(route, resolver, dependencies))
    problems = _ProblemResponses(resolver, logger, count)
    # API Gateway's {order_id} takes any text. Powertools' <order_id> takes no slash, `"` or control character.
    resolver.not_found(lambda _: problems.refused(NOTHING_HERE))
    resolver.exception_handler(Unauthenticated)(problems.unauthenticated)
    resolver.exception_handler(Problem)(problems.refused)
    resolver.exception_handler([*not_found])(lambda _: problems.refused(order_not_found()))
    resolver.exception_handler([BotoCoreError, ClientError, SecretUnavailable, *outages])(problems.unavailable)
    resolver.exception_handler(Exception)(problems.failed)
    return resolver


def _handler(route: Route, resolver: APIGatewayHttpResolver, dependencies: Any) -> Callable[..., JsonResponse]:
    def handle(**path_parameters: str) -> JsonResponse:
        request = Request(resolver.current_event)
        caller = request.caller
        if route.scope:
            caller.require_scope(route.scope)
        order_id = path_parameters.get("order_id")
        if order_id is not None and not re.fullmatch(ORDER_ID_PATTERN, order_id):
            raise order_not_found()
        return route.handler(request, dependencies, **path_parameters)

    return handle


@dataclass(frozen=True)
class _ProblemResponses:
    """The responses to what a route raises."""

    resolver: APIGatewayHttpResolver
    logger: Logger
    count: Counts

    @property
    def correlation_id(self) -> str:
        return Request(self.resolver.current_event).correlation_id

    def refused(self, problem: Problem) -> Response[str]:
        """The request cannot be fulfilled: 4xx, or 503 where a retry may be."""
        self.count(f"Refused.{problem.status.value}")
        extra = {"problem": problem.kind, "correlation_id": self.correlation_id}
        self.logger.info("request refused", extra=extra)
        return problem.response(self.correlation_id)

    def unauthenticated(self, _: Exception) -> Response[str]:
        """The claims are missing, so nobody is served: 401. It cannot happen while each route has its authorizer."""
        self.count("Unauthenticated")
        self.count(Alarm(Cause.UNEXPECTED_ERROR))
        self.logger.error(
            "request refused: no verified claims, so the route has no authorizer",
            extra={"correlation_id": self.correlation_id, "cause": Cause.UNEXPECTED_ERROR},
        )
        detail = "The request has no verified access token."
        return Problem(HTTPStatus.UNAUTHORIZED, "unauthenticated", detail).response(self.correlation_id)

    def unavailable(self, error: Exception) -> Response[str]:
        """AWS does not answer: 503."""
        extra = {"error": logged_as(error), "correlation_id": self.correlation_id}
        self.logger.error("unavailable: AWS does not answer", extra=extra)
        detail = "The result is unknown. Retry, with the same Idempotency-Key if the request had one."
        return try_again(detail).response(self.correlation_id)

    def failed(self, _: Exception) -> Response[str]:
        """A defect of ours: 500."""
        self.logger.exception("request failed", extra={"correlation_id": self.correlation_id})
        detail = "An internal error. Retrying with the same Idempotency-Key is safe."
        return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", detail).response(self.correlation_id)
