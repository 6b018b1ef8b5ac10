"""HTTP, shared by the routes: what a route is, how it reads its request, and what it responds."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

from aws_lambda_powertools.event_handler import Response, content_types
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2
from pydantic import BaseModel, ValidationError

from onecharge.orders.card_numbers import body_holds_card_number, holds_card_number
from onecharge.runtime.problems import Problem
from orders_api.caller import Caller
from orders_api.responses import ResponseModel

IDEMPOTENCY_KEY_PATTERN = r"^[!-~]{1,255}$"
"""Visible ASCII without spaces, no longer than Stripe allows for its own keys."""

REPLAYED = {"Idempotent-Replayed": "true"}
"""The header of a response to a retry: it is the response of the first request with this key."""

JsonResponse = Response[dict[str, Any]]


@dataclass(frozen=True)
class Route:
    """One method of one path: its handler, its input, and every response that it may have.

    The resolver (routes.py) and docs/openapi.json are both made from this description.
    """

    handler: Callable[..., JsonResponse]
    """Takes the Request, the Dependencies, and the path's parameters by their names."""
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
        """The operationId in the OpenAPI document: the name of the handler and its module."""
        return self.handler.__name__


COMMON_PROBLEMS: Mapping[HTTPStatus, tuple[str, ...]] = {
    HTTPStatus.UNAUTHORIZED: ("unauthenticated",),
    HTTPStatus.FORBIDDEN: ("forbidden",),
    HTTPStatus.INTERNAL_SERVER_ERROR: ("internal",),
    HTTPStatus.SERVICE_UNAVAILABLE: ("try-again",),
}
"""What any route may respond: to a token that does not allow the request, and when something of ours or of AWS's fails
(500 and 503: retrying is safe)."""

BODY_LENGTH_MAX = 128 * 1024
"""Characters of a body. The longest order, 100 lines in JSON's longest spelling, has half of it. API Gateway lets 6 MB
through, which take half a minute to refuse field by field."""

BAD_BODY = ("idempotency-key-missing", "body-too-long", "card-number", "invalid-json", "invalid-request")
"""The problems of a route that takes a body and an idempotency key."""


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

    @property
    def query(self) -> Mapping[str, str]:
        return self.event.query_string_parameters or {}

    def key_and_body(self) -> tuple[str, str]:
        """The idempotency key, and the body as text.

        Raises Problem: no such key, a body that is not UTF-8, or a card number anywhere in the request.
        """
        key, body = self._idempotency_key(), self._body()
        self._refuse_card_numbers(key, body)
        return key, body

    def _idempotency_key(self) -> str:
        key = self.event.headers.get("idempotency-key") or ""
        if not re.fullmatch(IDEMPOTENCY_KEY_PATTERN, key):
            raise Problem(
                HTTPStatus.BAD_REQUEST,
                "idempotency-key-missing",
                "The header Idempotency-Key is required: 1 to 255 visible ASCII characters, the same for every "
                "retry of one request and new for each new request.",
            )
        return key

    def _body(self) -> str:
        if len(self.event.body or "") > BODY_LENGTH_MAX:
            detail = f"The body is longer than {BODY_LENGTH_MAX} characters."
            raise Problem(HTTPStatus.BAD_REQUEST, "body-too-long", detail)
        try:
            return self.event.decoded_body or ""
        except ValueError:
            raise Problem(HTTPStatus.BAD_REQUEST, "invalid-json", "The body is not UTF-8 text.") from None

    def _refuse_card_numbers(self, key: str, body: str) -> None:
        query = self.event.raw_query_string
        named = [text for pair in parse_qsl(query, keep_blank_values=True) for text in pair]
        if body_holds_card_number(body) or any(map(holds_card_number, (key, unquote(query), *named))):
            raise Problem(
                HTTPStatus.BAD_REQUEST,
                "card-number",
                "The request contains what looks like a card number. Send the id of a PaymentMethod instead.",
            )

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


def parse[Body: BaseModel](model: type[Body], body: str, *, expected: str) -> Body:
    """Read the body. Raises Problem with the detail `expected`, which says what the body should be."""
    try:
        return model.model_validate_json(body)
    except ValidationError as invalid:
        raise invalid_request(invalid, expected) from None


def invalid_request(invalid: ValidationError, detail: str) -> Problem:
    """Where the request breaks the contract (JSON Pointers, RFC 6901) and how, without repeating what it says."""
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
    # The name of an unknown field is the client's own text: the pointer is to its parent.
    known = location[:-1] if error_type == "extra_forbidden" else location
    return "".join(f"/{part}" for part in known)


def conflict(kind: str, detail: str) -> Problem:
    """409: the order's status does not allow the request."""
    return Problem(HTTPStatus.CONFLICT, kind, detail)


def key_reused(detail: str) -> Problem:
    """422: the idempotency key was used for another request."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency-key-reused", detail)


def order_not_found() -> Problem:
    """404, for another customer's order as for one that does not exist."""
    return Problem(HTTPStatus.NOT_FOUND, "not-found", "There is no such order.")


def route_not_found() -> Problem:
    """404: no route has this path and method."""
    return Problem(HTTPStatus.NOT_FOUND, "not-found", "Nothing is at this path with this method.")


class KeyReused(Exception):
    """The idempotency key was used for another request."""


class Unavailable(Exception):
    """Something that the request needs does not answer. Retrying is safe."""
