"""The HTTP API's routes, which the emulator does not create, are read from the transformed template."""

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
    """With the logical ids of the API and the function."""
    template = api({"/orders": {"post": "Place", "get": "List"}, "/orders/{order_id}": {"get": "Get"}})
    assert list(routes_of(template)) == [
        ("Api", "GET /orders", "List"),
        ("Api", "POST /orders", "Place"),
        ("Api", "GET /orders/{order_id}", "Get"),
    ]


def test_a_route_to_an_alias() -> None:
    """SAM names the alias in the integration, without `.Arn`: an alias's physical id is its ARN."""
    template = api({"/orders": {"post": "Place"}})
    integration = template["Resources"]["Api"]["Properties"]["Body"]["paths"]["/orders"]["post"]
    integration["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"] = "arn:…/functions/${PlaceAliaslive}/invocations"
    assert list(routes_of(template)) == [("Api", "POST /orders", "PlaceAliaslive")]


def test_catch_all_routes() -> None:
    """ANY means every method, $default every path."""
    any_method = "x-amazon-apigateway-any-method"
    template = api({"/a": {any_method: "A"}, "/$default": {any_method: "B"}})
    assert [route for _, route, _ in routes_of(template)] == ["ANY /a", "$default"]


def test_other_resources_have_no_routes() -> None:
    """Only AWS::ApiGatewayV2::Api has routes."""
    assert list(routes_of({"Resources": {"Table": {"Type": "AWS::DynamoDB::Table"}}})) == []
