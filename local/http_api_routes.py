"""A shim for one gap of the emulator: it creates no routes for an `AWS::Serverless::HttpApi`, so that all is 404.

SAM has written the routes, their authorizers and scopes into the OpenAPI document of the transformed template. This
reads them there and creates them one by one; nothing of our API is known here, and on AWS none of this is used. The
emulator's API Gateway then verifies the tokens itself.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from local.emulator import REGION, Emulator

_METHODS = {"get", "post", "put", "patch", "delete", "head", "options"}


def create_routes(emulator: Emulator, stack_name: str) -> None:
    """Create the routes and authorizers of every HTTP API in the stack, and apply its CORS."""
    cloudformation, gateway = emulator.client("cloudformation"), emulator.client("apigatewayv2")
    body = cloudformation.get_template(StackName=stack_name, TemplateStage="Processed")["TemplateBody"]
    resources = cloudformation.describe_stack_resources(StackName=stack_name)["StackResources"]
    physical_ids = {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in resources}
    [stack] = cloudformation.describe_stacks(StackName=stack_name)["Stacks"]
    values = physical_ids | {each["ParameterKey"]: each["ParameterValue"] for each in stack["Parameters"]}
    values |= {"AWS::Region": REGION, "AWS::URLSuffix": "amazonaws.com"}
    resolved = partial(_resolved, values=values, conditions=body.get("Conditions", {}))
    for name, resource in body["Resources"].items():
        if resource["Type"] == "AWS::ApiGatewayV2::Api":
            _complete(gateway, physical_ids[name], resource["Properties"]["Body"], physical_ids, resolved)


def _complete(
    gateway: Any,
    api_id: str,
    document: Mapping[str, Any],
    physical_ids: Mapping[str, str],
    resolved: Callable[[Any], Any],
) -> None:
    """Give an API what its OpenAPI document describes."""
    if cors := document.get("x-amazon-apigateway-cors"):
        capitalized = {f"{name[0].upper()}{name[1:]}": value for name, value in cors.items()}
        gateway.update_api(ApiId=api_id, CorsConfiguration=resolved(capitalized))
    authorizers = {}
    for name, scheme in document.get("components", {}).get("securitySchemes", {}).items():
        authorizer = scheme["x-amazon-apigateway-authorizer"]
        jwt = resolved(authorizer["jwtConfiguration"])
        audience = jwt["audience"] if isinstance(jwt["audience"], list) else jwt["audience"].split(",")
        authorizers[name] = gateway.create_authorizer(
            ApiId=api_id,
            Name=name,
            AuthorizerType="JWT",
            IdentitySource=[authorizer["identitySource"]],
            JwtConfiguration={"Issuer": jwt["issuer"], "Audience": audience},
        )["AuthorizerId"]
    routes = [(path, method) for path, methods in document["paths"].items() for method in _METHODS & methods.keys()]
    for path, method in sorted(routes):
        operation = document["paths"][path][method]
        uri = operation["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"]
        # The logical id of the function, whose physical id is its name; the emulator takes either.
        function = uri.split("${")[-1].partition("}")[0].removesuffix(".Arn")
        integration = gateway.create_integration(
            ApiId=api_id,
            IntegrationType="AWS_PROXY",
            IntegrationUri=physical_ids[function],
            PayloadFormatVersion="2.0",
        )
        # SAM writes the scheme NONE, which it describes nowhere, for a route that is open on purpose.
        [(name, scopes)] = operation.get("security", [{"NONE": []}])[0].items()
        authorization: dict[str, Any] = {"AuthorizationType": "NONE"}
        if name != "NONE":
            # A token has to have one of the scopes, if there are any.
            authorization = {"AuthorizationType": "JWT", "AuthorizerId": authorizers[name]}
            authorization["AuthorizationScopes"] = scopes
        target = f"integrations/{integration['IntegrationId']}"
        gateway.create_route(ApiId=api_id, RouteKey=f"{method.upper()} {path}", Target=target, **authorization)


def _resolved(value: Any, values: Mapping[str, str], conditions: Mapping[str, Any]) -> Any:
    """A property with its functions resolved; a parameter that is a list stays text, with commas."""
    match value:
        case {"Ref": str(name)}:
            return values[name]
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{([\w:]+)\}", lambda name: values[name[1]], text)
        case {"Fn::If": [str(condition), if_true, if_false]}:
            left, right = conditions[condition]["Fn::Equals"]
            is_true = _resolved(left, values, conditions) == _resolved(right, values, conditions)
            return _resolved(if_true if is_true else if_false, values, conditions)
        case dict():
            return {name: _resolved(each, values, conditions) for name, each in value.items()}
        case list():
            return [_resolved(each, values, conditions) for each in value]
        case _:
            return value
