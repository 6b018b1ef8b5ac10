"""A shim for one gap of the emulator: it creates no routes for an `AWS::Serverless::HttpApi`, so that all is 404.

SAM has written the routes, their authorizers and scopes into the OpenAPI document of the transformed template. This
reads them there and creates them one by one; nothing of our API is known here, and on AWS none of this is used. The
emulator's API Gateway then verifies the tokens itself.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from local.emulator import REGION, Emulator

_METHODS = {"get", "post", "put", "patch", "delete", "head", "options"}


def create_routes(emulator: Emulator, stack_name: str) -> None:
    """Create the routes and authorizers of the HTTP API in the stack, and apply its CORS."""
    cloudformation, gateway = emulator.client("cloudformation"), emulator.client("apigatewayv2")
    body = cloudformation.get_template(StackName=stack_name, TemplateStage="Processed")["TemplateBody"]
    resources = cloudformation.describe_stack_resources(StackName=stack_name)["StackResources"]
    physical_ids = {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in resources}
    [stack] = cloudformation.describe_stacks(StackName=stack_name)["Stacks"]
    values = physical_ids | {each["ParameterKey"]: each["ParameterValue"] for each in stack["Parameters"]}
    values |= {"AWS::Region": REGION, "AWS::URLSuffix": "amazonaws.com"}
    resolved = partial(_resolved, values=values, conditions=body.get("Conditions", {}))
    [(name, api)] = [each for each in body["Resources"].items() if each[1]["Type"] == "AWS::ApiGatewayV2::Api"]
    api_id, document = physical_ids[name], api["Properties"]["Body"]
    cors = {f"{name[0].upper()}{name[1:]}": value for name, value in document["x-amazon-apigateway-cors"].items()}
    gateway.update_api(ApiId=api_id, CorsConfiguration=resolved(cors))
    # SAM writes the scheme NONE, which it describes nowhere, for a route that is open on purpose.
    authorizations: dict[str, dict[str, Any]] = {"NONE": {"AuthorizationType": "NONE"}}
    for name, scheme in document["components"]["securitySchemes"].items():
        authorizer = scheme["x-amazon-apigateway-authorizer"]
        jwt = resolved(authorizer["jwtConfiguration"])
        audience = jwt["audience"] if isinstance(jwt["audience"], list) else jwt["audience"].split(",")
        made = gateway.create_authorizer(
            ApiId=api_id,
            Name=name,
            AuthorizerType="JWT",
            IdentitySource=[authorizer["identitySource"]],
            JwtConfiguration={"Issuer": jwt["issuer"], "Audience": audience},
        )
        authorizations[name] = {"AuthorizationType": "JWT", "AuthorizerId": made["AuthorizerId"]}
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
        # A token has to have one of the scopes, if there are any.
        [(name, scopes)] = operation.get("security", [{"NONE": []}])[0].items()
        gateway.create_route(
            ApiId=api_id,
            RouteKey=f"{method.upper()} {path}",
            Target=f"integrations/{integration['IntegrationId']}",
            AuthorizationScopes=scopes,
            **authorizations[name],
        )


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
