"""The shim for the emulator's missing routes reads them from what SAM made of the template."""

from typing import Any

from local.http_api_routes import routes_of


def api(paths: dict[str, dict[str, str]]) -> dict[str, Any]:
    uri = "arn:…:lambda:path/2015-03-31/functions/${%s.Arn}/invocations"
    body = {
        path: {
            method: {"x-amazon-apigateway-integration": {"uri": {"Fn::Sub": uri % function}}}
            for method, function in methods.items()
        }
        for path, methods in paths.items()
    }
    return {"Resources": {"Api": {"Type": "AWS::ApiGatewayV2::Api", "Properties": {"Body": {"paths": body}}}}}


def test_each_path_and_method_is_a_route() -> None:
    """With the logical ids of the API and of the function behind it."""
    template = api({"/orders": {"post": "Place", "get": "List"}, "/orders/{order_id}": {"get": "Get"}})
    assert list(routes_of(template)) == [
        ("Api", "GET /orders", "List"),
        ("Api", "POST /orders", "Place"),
        ("Api", "GET /orders/{order_id}", "Get"),
    ]


def test_catch_alls_have_names_of_their_own() -> None:
    """ANY for every method, $default for every path."""
    any_method = "x-amazon-apigateway-any-method"
    template = api({"/a": {any_method: "A"}, "/$default": {any_method: "B"}})
    assert [route for _, route, _ in routes_of(template)] == ["ANY /a", "$default"]


def test_what_is_no_http_api_has_no_routes() -> None:
    """Other resources are passed over."""
    assert list(routes_of({"Resources": {"Table": {"Type": "AWS::DynamoDB::Table"}}})) == []
