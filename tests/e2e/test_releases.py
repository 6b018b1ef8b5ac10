"""A release on the deployed stack: every function is invoked at its alias."""

from local.stack import Stack
from tests.support.stacks import own_stack


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
