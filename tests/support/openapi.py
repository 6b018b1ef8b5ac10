"""docs/openapi.json: the API as OpenAPI 3.1, generated from the operations here and the models that the routes use.

`make openapi` writes it; a test fails if it is not what the code says. Nothing of this is deployed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema

from get_payment.payment import PaymentView
from local.project_files import PROJECT
from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.runtime.http_api import ResponseModel
from orders_api.cancel_order import cancel_order
from orders_api.get_order import OrderDetails, get_order
from orders_api.http import IDEMPOTENCY_KEY_PATTERN, STAFF_SCOPE
from orders_api.list_orders import OrdersQuery, list_orders
from orders_api.list_prices import PriceList, list_prices
from orders_api.pay_again import PaymentRequest, pay_again
from orders_api.place_order import OrderRequest, place_order
from orders_api.refund_order import RefundRequest, RefundView, refund_order
from orders_api.responses import AcceptedOrder, OrderList, OrderView

DOCUMENT = PROJECT / "docs/openapi.json"


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


class GatewayMessage(ResponseModel):
    """A response of API Gateway itself, whose bodies an HTTP API cannot change."""

    message: str | None


ANY_ROUTE = {401: ("unauthenticated",), 403: ("forbidden",), 500: ("internal",), 503: ("try-again",)}
"""The kinds of problem by status, of any route. API Gateway itself responds with 401 and 403, too."""
NOT_FOUND = {404: ("not-found",)}
BAD_BODY = {
    400: ("idempotency-key-missing", "idempotency-key-invalid", "body-too-long", "invalid-json", "invalid-request"),
    422: ("idempotency-key-reused",),
}
NOT_DECLINED = {409: ("not-declined", "attempts-exhausted")}
NOT_REFUNDABLE = {409: ("not-paid", "paid-too-long-ago", "disputed", "more-than-is-left")}


@dataclass(frozen=True)
class Operation:
    """One method of one path. One that takes a body is idempotent by the header Idempotency-Key."""

    handler: Callable[..., object]
    """Its docstring is the summary."""
    method: str
    path: str
    response: type[BaseModel]
    problems: Mapping[int, tuple[str, ...]]
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    scope: str | None = None
    """What the access token has to allow; template.yaml says the same of the route."""

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def status(self) -> int:
        return 202 if self.body else 200


def get_payment() -> None:
    """Get what the customer's page needs to authenticate the payment, while the order is REQUIRES_ACTION."""


_ORDER = "/orders/{order_id}"
_PLACED, _CANCELED = ANY_ROUTE | BAD_BODY | {409: ("amount-differs",)}, ANY_ROUTE | NOT_FOUND | {409: ("already-paid",)}
_PAID, _REFUNDED = (ANY_ROUTE | NOT_FOUND | BAD_BODY | conflict for conflict in (NOT_DECLINED, NOT_REFUNDABLE))
_LISTED = ANY_ROUTE | {400: ("invalid-request",)}
OPERATIONS = (
    Operation(place_order, "POST", "/orders", AcceptedOrder, _PLACED, body=OrderRequest),
    Operation(list_orders, "GET", "/orders", OrderList, _LISTED, query=OrdersQuery),
    Operation(get_order, "GET", _ORDER, OrderDetails, ANY_ROUTE | NOT_FOUND),
    Operation(list_prices, "GET", "/prices", PriceList, ANY_ROUTE),
    Operation(pay_again, "POST", f"{_ORDER}/payments", AcceptedOrder, _PAID, body=PaymentRequest),
    Operation(cancel_order, "POST", f"{_ORDER}/cancel", OrderView, _CANCELED),
    Operation(refund_order, "POST", f"{_ORDER}/refunds", RefundView, _REFUNDED, body=RefundRequest, scope=STAFF_SCOPE),
    Operation(get_payment, "GET", f"{_ORDER}/payment", PaymentView, ANY_ROUTE | NOT_FOUND),
)

_ABOUT = """\
Creates orders and shows their status; each is charged once, however often anything on the way is delivered or retried.

Amounts are integers in the minor unit of the currency: 1099 with EUR is 10.99 euro, 500 with JPY is 500 yen. In a
currency with three decimals they end with 0. An order costs what GET /prices says when it is placed first; a retry is
not priced again.

If a response is lost, retry the request with the same Idempotency-Key. No problem (`application/problem+json`) repeats
what was sent. Each request needs an access token, whose subject is the customer; API Gateway verifies it, limits the
requests, and responds with `application/json` and a `message`."""

_TEXT = {"type": "string"}
_HEADERS = {
    "X-Correlation-Id": {
        "description": "In every log line and event of the order, or of the refused request.",
        "required": True,
        "schema": _TEXT,
    },
    "Location": {
        "description": "The path of the order.",
        "required": True,
        "schema": {**_TEXT, "pattern": ORDER_ID_PATTERN.replace("^", "^/orders/")},
    },
    "Idempotent-Replayed": {
        "description": "`true` where this is the response of an earlier request with the same key.",
        "schema": {**_TEXT, "const": "true"},
    },
    "Cache-Control": {"required": True, "schema": {**_TEXT, "const": "no-store"}},
}
_ORDER_ID = {"name": "order_id", "in": "path", "required": True, "schema": {**_TEXT, "pattern": ORDER_ID_PATTERN}}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": True,
    "description": "Visible ASCII without commas, the same for every retry of one request and new for each new one.",
    "schema": {**_TEXT, "pattern": IDEMPOTENCY_KEY_PATTERN},
}
_ACCESS_TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "JWT",
    "description": "Of the OpenID Connect issuer that the stack names (parameters JwtIssuer and JwtAudience).",
}
_SERVER = {
    "url": "https://{api_id}.execute-api.{region}.amazonaws.com",
    "description": "The output ApiUrl of the stack.",
    "variables": {"api_id": {"default": "a1b2c3d4e5"}, "region": {"default": "us-east-1"}},
}
_OF_ANY_ORDER = {
    each.name: {"operationId": each.name, "parameters": {"order_id": "$response.body#/order_id"}}
    for each in OPERATIONS
    if _ORDER in each.path
}
"""Links from a response that names an order to the requests that are possible for it."""


class _WithoutTitles(GenerateJsonSchema):
    """A field's title would only be its name in other letters."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def text() -> str:
    """The document as it is committed: the same for the same code."""
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _described(each)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "onecharge", "version": "1", "description": _ABOUT},
        "servers": [_SERVER],
        "paths": paths,
        "components": {"headers": _HEADERS, "schemas": _schemas(), "securitySchemes": {"AccessToken": _ACCESS_TOKEN}},
    }
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _described(operation: Operation) -> dict[str, Any]:
    given = [_ORDER_ID] * (_ORDER in operation.path) + [_KEY] * bool(operation.body)
    query = operation.query.model_json_schema(schema_generator=_WithoutTitles)["properties"] if operation.query else {}
    given += [{"name": name, "in": "query", "schema": schema} for name, schema in query.items()]
    body = {"required": True, "content": {"application/json": {"schema": _ref(operation.body)}}}
    return {
        "operationId": operation.name,
        "summary": operation.handler.__doc__,
        "parameters": given,
        **({"requestBody": body} if operation.body else {}),
        "responses": _responses(operation),
        # Since OpenAPI 3.1 the roles that a token needs may be listed for any kind of scheme.
        "security": [{"AccessToken": [operation.scope] if operation.scope else []}],
    }


def _responses(operation: Operation) -> dict[str, dict[str, Any]]:
    headers = ["X-Correlation-Id", "Cache-Control", *(["Location", "Idempotent-Replayed"] if operation.body else [])]
    response = _response(operation.status, {"application/json": _ref(operation.response)}, *headers)
    if "order_id" in operation.response.model_fields:
        response["links"] = _OF_ANY_ORDER
    responses = {str(operation.status): response}
    if operation.name == "cancel_order":
        responses["202"] = response | {"description": HTTPStatus.ACCEPTED.phrase}
    by_gateway = {"application/json": _ref(GatewayMessage)}
    for status, kinds in operation.problems.items():
        fixed = {"type": {"enum": [f"urn:onecharge:problem:{kind}" for kind in kinds]}, "status": {"const": status}}
        problem = {"application/problem+json": {**_ref(ProblemDetails), "properties": fixed}}
        is_by_gateway = status in (401, 403)
        schemas, given = (problem | by_gateway, []) if is_by_gateway else (problem, ["X-Correlation-Id"])
        responses[str(status)] = _response(status, schemas, *given)
    return responses | {"429": _response(429, by_gateway)}


def _response(status: int, schemas: Mapping[str, Any], *headers: str) -> dict[str, Any]:
    return {
        "description": HTTPStatus(status).phrase,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": {content_type: {"schema": schema} for content_type, schema in schemas.items()},
    }


def _ref(model: type[BaseModel] | None) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{model.__name__}"} if model else {}


def _schemas() -> dict[str, Any]:
    bodies = [each.body for each in OPERATIONS if each.body]
    responses: set[type[BaseModel]] = {ProblemDetails, GatewayMessage, *(each.response for each in OPERATIONS)}
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(each, "validation") for each in bodies]
    models += [(each, "serialization") for each in responses]
    template = "#/components/schemas/{model}"
    _, made = models_json_schema(models, ref_template=template, schema_generator=_WithoutTitles)
    schemas: dict[str, Any] = made["$defs"]
    for name in schemas.keys() - {"OrderLine", *(each.__name__ for each in bodies)}:
        # A response may get more fields: clients are not promised that it has no others.
        schemas[name].pop("additionalProperties", None)
    return schemas


if __name__ == "__main__":
    DOCUMENT.write_text(text())
    print(f"wrote {DOCUMENT.relative_to(PROJECT)}")
