"""A release on the deployed stack: every function is invoked at its alias, and that version passes the self-check."""

import pytest

from local.samples import SAMPLES, logical_id_of
from local.stack import Stack
from onecharge.runtime.self_check import require_self_check
from testing.stacks import own_stack

CHECKED = [function for function in SAMPLES if function != "check_release"]


@pytest.mark.parametrize("function", CHECKED)
def test_the_version_behind_the_alias_is_well(stack: Stack, function: str) -> None:
    """With the environment, the secrets and the resources that the template gives it."""
    functions = stack.aws.client("lambda")
    [name] = [
        each["FunctionName"]
        for page in functions.get_paginator("list_functions").paginate()
        for each in page["Functions"]
        if each["FunctionName"].startswith(f"{stack.stack_name}-{logical_id_of(function)}-")
    ]
    require_self_check(functions, f"{name}:live")
    assert functions.get_alias(FunctionName=name, Name="live")["FunctionVersion"].isdigit()


@own_stack
def test_nothing_invokes_an_unpublished_function(stack: Stack) -> None:
    """Queues, streams, schedules and routes: each names an alias, so that a deployment shifts all of it."""
    mappings = stack.aws.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    rules = stack.aws.client("events")
    targets = [
        target["Arn"]
        for rule in rules.list_rules()["Rules"]
        for target in rules.list_targets_by_rule(Rule=rule["Name"])["Targets"]
    ]
    gateway = stack.aws.client("apigatewayv2")
    integrations = [
        integration["IntegrationUri"]
        for api in gateway.get_apis()["Items"]
        for integration in gateway.get_integrations(ApiId=api["ApiId"])["Items"]
    ]
    invoked = [*(mapping["FunctionArn"] for mapping in mappings), *targets, *integrations]
    assert len(invoked) >= 6
    assert [arn for arn in invoked if ":live" not in arn] == []
