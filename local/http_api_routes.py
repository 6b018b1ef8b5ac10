"""A shim for one gap of the emulator: it creates no routes for an `AWS::Serverless::HttpApi`, so that all is 404.

SAM has written the routes into the OpenAPI document of the transformed template. This reads them there and
creates them one by one; nothing of our API is known here, and on AWS none of this is used.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from local.emulator import Emulator

_METHODS = {
    **{method: method.upper() for method in ("get", "post", "put", "patch", "delete", "head", "options")},
    "x-amazon-apigateway-any-method": "ANY",
}


def create_routes(emulator: Emulator, stack_name: str) -> list[str]:
    """Create the routes of every HTTP API in the stack; returns their keys, as "POST /orders"."""
    cloudformation, gateway = emulator.client("cloudformation"), emulator.client("apigatewayv2")
    body = cloudformation.get_template(StackName=stack_name, TemplateStage="Processed")["TemplateBody"]
    resources = cloudformation.describe_stack_resources(StackName=stack_name)["StackResources"]
    physical_ids = {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in resources}
    function_arns = {name: _function_arn(emulator, physical_ids, name) for name in _functions(body)}
    created = []
    for api, route_key, function in routes_of(body):
        integration = gateway.create_integration(
            ApiId=physical_ids[api],
            IntegrationType="AWS_PROXY",
            IntegrationUri=function_arns[function],
            PayloadFormatVersion="2.0",
        )
        target = f"integrations/{integration['IntegrationId']}"
        gateway.create_route(ApiId=physical_ids[api], RouteKey=route_key, Target=target)
        created.append(route_key)
    return created


def routes_of(template: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Each route of a transformed template: logical id of its API, route key, logical id of its function's alias."""
    for name, resource in template["Resources"].items():
        if resource["Type"] != "AWS::ApiGatewayV2::Api":
            continue
        for path, methods in resource["Properties"]["Body"]["paths"].items():
            for method in sorted(_METHODS.keys() & methods.keys()):
                uri = methods[method]["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"]
                route_key = "$default" if path == "/$default" else f"{_METHODS[method]} {path}"
                yield name, route_key, uri.split("${")[-1].partition("}")[0].removesuffix(".Arn")


def _functions(template: Mapping[str, Any]) -> set[str]:
    return {function for _, _, function in routes_of(template)}


def _function_arn(emulator: Emulator, physical_ids: Mapping[str, str], logical_id: str) -> str:
    """The physical id of an alias is its ARN; that of a function is its name."""
    if physical_ids[logical_id].startswith("arn:"):
        return physical_ids[logical_id]
    function = emulator.client("lambda").get_function(FunctionName=physical_ids[logical_id])
    return str(function["Configuration"]["FunctionArn"])
