"""docs/openapi.json: the API as OpenAPI 3.1, generated from the routes and the models that they work with.

`make openapi` writes it; a test fails if it is not what the code says. Nothing of this is deployed.
"""

import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema

from get_payment.payment import ROUTE as GET_PAYMENT
from local.stack import PROJECT
from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.runtime.http_api import COMMON_PROBLEMS, ProblemDetails, Route
from orders_api.app import ROUTES as ORDERS_ROUTES
from orders_api.http import IDEMPOTENCY_KEY_PATTERN

ROUTES = (*ORDERS_ROUTES, GET_PAYMENT)

DOCUMENT = PROJECT / "docs/openapi.json"

_ABOUT = """\
Creates orders and shows their status; each is charged once, however often anything on the way is delivered or retried.

Amounts are integers in the minor unit of the currency: 1099 with EUR is 10.99 euro, 500 with JPY is 500 yen. They are
written without a decimal point, so that 10.0 is refused. An order's amount is at most 999999999999, at least Stripe's
minimum for its currency (50 with EUR), and ends with 0 in a currency with three decimals. A currency may be sent in
lower case. An order costs what GET /prices says when it is placed first; a retry is not priced again.

If a response is lost, retry the request with the same Idempotency-Key. Every problem is `application/problem+json` and
does not repeat what was sent.

Each request needs an access token; its subject is the customer. Another customer's order is answered as one that does
not exist. API Gateway itself verifies the token and limits the requests: its responses are `application/json` with a
`message` (401, 403 without the route's scope, 413, 429, or 503 after a timeout)."""

_HEADERS: Mapping[str, dict[str, JsonValue]] = {
    "X-Correlation-Id": {
        "description": "In every log line and event of the order, or of the refused request.",
        "required": True,
        "schema": {"type": "string"},
    },
    "Location": {
        "description": "The path of the order.",
        "required": True,
        "schema": {"type": "string", "pattern": ORDER_ID_PATTERN.replace("^", "^/orders/")},
    },
    "Idempotent-Replayed": {
        "description": "`true` where this is the response of an earlier request with the same key.",
        "schema": {"type": "string", "const": "true"},
    },
    "Cache-Control": {"required": True, "schema": {"type": "string", "const": "no-store"}},
}

_BY_API_GATEWAY: Mapping[HTTPStatus, str] = {
    HTTPStatus.UNAUTHORIZED: "No access token, or one that is not valid.",
    HTTPStatus.FORBIDDEN: "The access token does not have the scope that the request needs.",
    HTTPStatus.TOO_MANY_REQUESTS: "More requests than the stage allows. Retry later.",
}
"""What API Gateway responds before any function runs. An HTTP API cannot change these bodies."""

_IDEMPOTENCY_KEY: dict[str, JsonValue] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": True,
    "description": "Visible ASCII without commas, the same for every retry of one request and new for each new one.",
    "schema": {"type": "string", "pattern": IDEMPOTENCY_KEY_PATTERN},
}

_ORDER_ID: dict[str, JsonValue] = {
    "name": "order_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": ORDER_ID_PATTERN},
}


_GATEWAY_MESSAGE: dict[str, JsonValue] = {
    "description": "A response of API Gateway itself.",
    "type": "object",
    "properties": {"message": {"type": ["string", "null"]}},
    "required": ["message"],
}

_ACCESS_TOKEN: dict[str, JsonValue] = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "JWT",
    "description": "Of the OpenID Connect issuer that the stack names (parameters JwtIssuer and JwtAudience).",
}


class _WithoutTitles(GenerateJsonSchema):
    """A field's title would only be its name in other letters."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def document() -> dict[str, Any]:
    """The whole document, as JSON."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _described(route)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {"title": "onecharge", "version": "1", "description": _ABOUT},
        "servers": [
            {
                "url": "https://{api_id}.execute-api.{region}.amazonaws.com",
                "description": "The output ApiUrl of the stack.",
                "variables": {"api_id": {"default": "a1b2c3d4e5"}, "region": {"default": "us-east-1"}},
            }
        ],
        "paths": paths,
        "components": {
            "headers": dict(_HEADERS),
            "schemas": {**_schemas(), "GatewayMessage": _GATEWAY_MESSAGE},
            "securitySchemes": {"AccessToken": _ACCESS_TOKEN},
        },
    }


def text() -> str:
    """The document as it is committed: the same for the same code."""
    return json.dumps(document(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _described(route: Route) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": list(_parameters(route)),
        "responses": dict(_responses(route)),
        # Since OpenAPI 3.1 the roles that a token needs may be listed for any kind of scheme.
        "security": [{"AccessToken": [route.scope] if route.scope else []}],
    }
    if route.body:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(route.body)}}}
    return described


def _parameters(route: Route) -> Iterator[dict[str, Any]]:
    if "{order_id}" in route.path:
        yield _ORDER_ID
    if route.is_idempotent_by_key:
        yield _IDEMPOTENCY_KEY
    if route.query:
        schema = route.query.model_json_schema(schema_generator=_WithoutTitles)
        for name, each in schema["properties"].items():
            yield {
                "name": name,
                "in": "query",
                "required": name in schema.get("required", []),
                "schema": _not_null(each),
            }


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is left out is not null: a query has no null."""
    if "anyOf" not in schema:
        return schema
    [of_value] = [each for each in schema["anyOf"] if each != {"type": "null"}]
    return dict(of_value)


def _responses(route: Route) -> Iterator[tuple[str, dict[str, Any]]]:
    headers = ["X-Correlation-Id", "Cache-Control"]
    headers += ["Location"] if route.returns_location else []
    headers += ["Idempotent-Replayed"] if route.is_idempotent_by_key else []
    response = _response(route.status, "application/json", _ref(route.response), headers)
    if "order_id" in route.response.model_fields:
        response["links"] = dict(_links())
    yield str(route.status.value), response
    if route.is_sometimes_accepted:
        yield str(HTTPStatus.ACCEPTED.value), {**response, "description": HTTPStatus.ACCEPTED.phrase}
    for status, kinds in {**route.problems, **COMMON_PROBLEMS}.items():
        fixed = {
            "type": {"enum": [f"urn:onecharge:problem:{kind}" for kind in kinds]},
            "status": {"const": status.value},
        }
        schema = {**_ref(ProblemDetails), "properties": fixed}
        described = _response(status, "application/problem+json", schema, ["X-Correlation-Id"])
        if status in _BY_API_GATEWAY:
            described["headers"] = {}
            described["content"] |= _by_api_gateway(status)["content"]
        yield str(status.value), described
    for status in _BY_API_GATEWAY.keys() - COMMON_PROBLEMS.keys():
        yield str(status.value), _by_api_gateway(status)


def _by_api_gateway(status: HTTPStatus) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/GatewayMessage"}
    return {"description": _BY_API_GATEWAY[status], "content": {"application/json": {"schema": schema}}}


def _response(status: HTTPStatus, content_type: str, schema: dict[str, Any], headers: list[str]) -> dict[str, Any]:
    return {
        "description": status.phrase,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": {content_type: {"schema": schema}},
    }


def _links() -> Iterator[tuple[str, dict[str, Any]]]:
    """From a response that names an order to the requests that are possible for it."""
    for route in ROUTES:
        if "{order_id}" in route.path:
            parameters = {"order_id": "$response.body#/order_id"}
            yield route.name, {"operationId": route.name, "parameters": parameters}


def _ref(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _schemas() -> dict[str, Any]:
    bodies = [route.body for route in ROUTES if route.body]
    responses: list[type[BaseModel]] = [ProblemDetails, *(route.response for route in ROUTES)]
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(each, "validation") for each in bodies]
    models += [(each, "serialization") for each in dict.fromkeys(responses)]
    _, schemas = models_json_schema(
        models, ref_template="#/components/schemas/{model}", schema_generator=_WithoutTitles
    )
    return dict(schemas["$defs"])


if __name__ == "__main__":
    DOCUMENT.write_text(text())
    print(f"wrote {DOCUMENT.relative_to(PROJECT)}")
