"""The HTTP API's routes, which the emulator does not create, are read from the transformed template."""

from typing import Any

from local.http_api_routes import HttpRoute, authorizers_of, cors_of, routes_of

AUTHORIZER = {"type": "jwt", "identitySource": "$request.header.Authorization", "jwtConfiguration": {}}


def api(paths: dict[str, dict[str, str]], **operation: Any) -> dict[str, Any]:
    uri = "arn:…:lambda:path/2015-03-31/functions/${%s.Arn}/invocations"
    described = {
        path: {
            method: {"x-amazon-apigateway-integration": {"uri": {"Fn::Sub": uri % function}}, **operation}
            for method, function in methods.items()
        }
        for path, methods in paths.items()
    }
    schemes = {"Tokens": {"type": "oauth2", "x-amazon-apigateway-authorizer": AUTHORIZER}}
    body = {"paths": described, "components": {"securitySchemes": schemes}}
    return {"Resources": {"Api": {"Type": "AWS::ApiGatewayV2::Api", "Properties": {"Body": body}}}}


def test_each_path_and_method_is_a_route() -> None:
    """With the logical ids of the API and the function; a route without security is open, as on AWS."""
    template = api({"/orders": {"post": "Place", "get": "List"}, "/orders/{order_id}": {"get": "Get"}})
    assert list(routes_of(template)) == [
        HttpRoute("Api", "GET /orders", "List", None, ()),
        HttpRoute("Api", "POST /orders", "Place", None, ()),
        HttpRoute("Api", "GET /orders/{order_id}", "Get", None, ()),
    ]


def test_cors_is_the_templates() -> None:
    """In the words of UpdateApi, whose names begin with capitals; an API without it has none."""
    template = api({})
    assert list(cors_of(template)) == []
    template["Resources"]["Api"]["Properties"]["Body"]["x-amazon-apigateway-cors"] = {
        "allowOrigins": [{"Ref": "WebOrigin"}],
        "maxAge": 600,
    }
    assert list(cors_of(template)) == [("Api", {"AllowOrigins": [{"Ref": "WebOrigin"}], "MaxAge": 600})]


def test_a_route_to_an_alias() -> None:
    """SAM names the alias in the integration, without `.Arn`: an alias's physical id is its ARN."""
    template = api({"/orders": {"post": "Place"}})
    integration = template["Resources"]["Api"]["Properties"]["Body"]["paths"]["/orders"]["post"]
    integration["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"] = "arn:…/functions/${PlaceAliaslive}/invocations"
    [route] = routes_of(template)
    assert route.function == "PlaceAliaslive"


def test_a_route_of_a_conditional_function() -> None:
    """SAM makes the path, the method and the integration's address conditional."""

    def conditional(value: Any) -> dict[str, Any]:
        return {"Fn::If": ["IsWanted", value, {"Ref": "AWS::NoValue"}]}

    template = api({"/orders": {"post": "Place"}})
    paths = template["Resources"]["Api"]["Properties"]["Body"]["paths"]
    integration = paths["/orders"]["post"]["x-amazon-apigateway-integration"]
    integration["uri"] = conditional(integration["uri"])
    paths["/orders"] = conditional({"post": conditional(paths["/orders"]["post"])})
    assert list(routes_of(template)) == [HttpRoute("Api", "POST /orders", "Place", None, ())]


def test_catch_all_routes() -> None:
    """ANY means every method, $default every path."""
    any_method = "x-amazon-apigateway-any-method"
    assert [each.key for each in routes_of(api({"/a": {any_method: "A"}}))] == ["ANY /a"]
    assert [each.key for each in routes_of(api({"$default": {any_method: "B"}}, isDefaultRoute=True))] == ["$default"]


def test_a_route_has_its_authorizer_and_its_scopes() -> None:
    """As its security says; SAM's NONE is no authorizer."""
    [route] = routes_of(api({"/a": {"post": "A"}}, security=[{"Tokens": ["shop/refund"]}]))
    assert (route.authorizer, route.scopes) == ("Tokens", ("shop/refund",))
    [route] = routes_of(api({"/a": {"post": "A"}}, security=[{"NONE": []}]))
    assert (route.authorizer, route.scopes) == (None, ())
    assert list(authorizers_of(api({}))) == [("Api", "Tokens", AUTHORIZER)]


def test_other_resources_have_no_routes() -> None:
    """Only AWS::ApiGatewayV2::Api has routes."""
    assert list(routes_of({"Resources": {"Table": {"Type": "AWS::DynamoDB::Table"}}})) == []
