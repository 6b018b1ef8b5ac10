"""A shim for one gap of the emulator: it creates no routes for an `AWS::Serverless::HttpApi`, so that all is 404.

SAM has written the routes, their authorizers and scopes into the OpenAPI document of the transformed template. This
reads them there and creates them one by one; nothing of our API is known here, and on AWS none of this is used. The
emulator's API Gateway then verifies the tokens itself.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    for api, cors in cors_of(body):
        gateway.update_api(ApiId=physical_ids[api], CorsConfiguration=_resolved(cors, values, {}))
    authorizers = {}
    for api, name, authorizer in authorizers_of(body):
        jwt = _resolved(authorizer["jwtConfiguration"], values, body.get("Conditions", {}))
        audience = jwt["audience"] if isinstance(jwt["audience"], list) else jwt["audience"].split(",")
        authorizers[api, name] = gateway.create_authorizer(
            ApiId=physical_ids[api],
            Name=name,
            AuthorizerType="JWT",
            IdentitySource=[authorizer["identitySource"]],
            JwtConfiguration={"Issuer": jwt["issuer"], "Audience": audience},
        )["AuthorizerId"]
    for route in routes_of(body):
        integration = gateway.create_integration(
            ApiId=physical_ids[route.api],
            IntegrationType="AWS_PROXY",
            IntegrationUri=physical_ids[route.alias],
            PayloadFormatVersion="2.0",
        )
        authorization: dict[str, Any] = {"AuthorizationType": "NONE"}
        if route.authorizer != "NONE":
            authorization = {"AuthorizationType": "JWT", "AuthorizerId": authorizers[route.api, route.authorizer]}
            authorization["AuthorizationScopes"] = route.scopes
        gateway.create_route(
            ApiId=physical_ids[route.api],
            RouteKey=route.key,
            Target=f"integrations/{integration['IntegrationId']}",
            **authorization,
        )


@dataclass(frozen=True)
class HttpRoute:
    """One route of a transformed template."""

    api: str
    """The logical id of its API."""
    key: str
    """As "POST /orders"."""
    alias: str
    """The logical id of its function's alias, whose physical id is an ARN."""
    authorizer: str
    """The name of its JWT authorizer. SAM writes NONE, which it describes nowhere, for a route that is open."""
    scopes: Sequence[str]
    """A token has to have one of these, if there are any."""


def routes_of(template: Mapping[str, Any]) -> Iterator[HttpRoute]:
    """Each route of a transformed template."""
    for name, document in _apis(template):
        for path, methods in document["paths"].items():
            for method in sorted(_METHODS & methods.keys()):
                operation = methods[method]
                uri = operation["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"]
                [(authorizer, scopes)] = operation.get("security", [{"NONE": []}])[0].items()
                alias = uri.split("${")[-1].partition("}")[0].removesuffix(".Arn")
                yield HttpRoute(name, f"{method.upper()} {path}", alias, authorizer, scopes)


def authorizers_of(template: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Each JWT authorizer of a transformed template: logical id of its API, its name, and its description."""
    for api, document in _apis(template):
        for name, scheme in document.get("components", {}).get("securitySchemes", {}).items():
            yield api, name, scheme["x-amazon-apigateway-authorizer"]


def cors_of(template: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The CorsConfiguration of each API that has one, as UpdateApi takes it."""
    for api, document in _apis(template):
        cors = document.get("x-amazon-apigateway-cors")
        if cors:
            yield api, {f"{name[0].upper()}{name[1:]}": value for name, value in cors.items()}


def _apis(template: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The logical id of each HTTP API, and its OpenAPI document."""
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::ApiGatewayV2::Api":
            yield name, resource["Properties"]["Body"]


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
