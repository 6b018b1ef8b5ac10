"""What the functions of a deployed stack may do, what Lambda does on their behalf, and what they did.

Rights are read from the roles as they are deployed, requests from what the emulator recorded while it enforced them
(local/enforcing_emulator.py).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from local.emulator import PERMISSIONS_LOG
from local.stack import Stack


class Right(NamedTuple):
    """A function may call this action on what the pattern matches; IAM's `*` and `?` are fnmatch's."""

    function: str
    action: str
    resource: str

    def allows(self, request: "Request") -> bool:
        return (
            self.function == request.function
            and self.action == request.action
            and fnmatchcase(request.resource, self.resource)
        )


@dataclass(frozen=True)
class Request:
    """One kind of request that a function made."""

    function: str
    action: str
    resource: str
    is_allowed: bool


def requests_of(stack: Stack) -> Iterator[Request]:
    """All that the stack's functions requested so far, each once; functions by their logical ids."""
    logical_ids = {physical: logical for logical, physical in functions_of(stack).items()}
    for line in Path(stack.aws_log).with_name(PERMISSIONS_LOG).read_text().splitlines():
        decision = json.loads(line)
        function = decision["principal"].rsplit("/", 1)[-1]
        # A test's subscribers are a stack of their own, on the same emulator.
        if function.startswith(f"{stack.stack_name}-"):
            yield Request(logical_ids[function], decision["action"], decision["resource"], decision["is_allowed"])


def rights_of(stack: Stack) -> Iterator[Right]:
    """What the deployed roles allow: the inline policies are all that there is."""
    iam, functions = stack.aws.client("iam"), stack.aws.client("lambda")
    for logical_id, name in functions_of(stack).items():
        role = functions.get_function_configuration(FunctionName=name)["Role"].rsplit("/", 1)[-1]
        assert iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"] == [], logical_id
        for policy in iam.list_role_policies(RoleName=role)["PolicyNames"]:
            document = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
            for statement in document["Statement"]:
                assert statement["Effect"] == "Allow", logical_id
                for action in _listed(statement["Action"]):
                    for resource in _listed(statement["Resource"]):
                        yield Right(logical_id, action, resource)


def rights_lambda_uses(stack: Stack) -> Iterator[Right]:
    """What Lambda does with a function's role, by itself: the emulator does not use the role for this.

    As the AWS Lambda Developer Guide and the Amazon DynamoDB Developer Guide say which rights that takes.
    """
    functions = stack.aws.client("lambda")
    for logical_id, name in functions_of(stack).items():
        configuration = functions.get_function_configuration(FunctionName=name)
        [group] = stack.aws.client("logs").describe_log_groups(
            logGroupNamePrefix=configuration["LoggingConfig"]["LogGroup"]
        )["logGroups"]
        # "Configuring CloudWatch log groups": the group exists, so it is not created.
        for action in ("logs:CreateLogStream", "logs:PutLogEvents"):
            yield Right(logical_id, action, group["arn"])
        if configuration["TracingConfig"]["Mode"] == "Active":
            for action in ("xray:PutTraceSegments", "xray:PutTelemetryRecords"):
                yield Right(logical_id, action, "*")
        for mapping in functions.list_event_source_mappings()["EventSourceMappings"]:
            if f":function:{name}:" not in f"{mapping['FunctionArn']}:":
                continue
            source = mapping["EventSourceArn"]
            for action in _POLLING[source.split(":")[2]]:
                yield Right(logical_id, action, source)


_POLLING = {
    # "Creating and configuring an Amazon SQS event source mapping": setting up execution role permissions.
    "sqs": ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"),
    # "IAM policy to allow an AWS Lambda function to access DynamoDB stream records".
    "dynamodb": (
        "dynamodb:DescribeStream",
        "dynamodb:GetRecords",
        "dynamodb:GetShardIterator",
        "dynamodb:ListStreams",
    ),
}


def functions_of(stack: Stack) -> dict[str, str]:
    """The name of each function by its logical id."""
    resources = stack.aws.client("cloudformation").describe_stack_resources(StackName=stack.stack_name)[
        "StackResources"
    ]
    return {
        each["LogicalResourceId"]: each["PhysicalResourceId"]
        for each in resources
        if each["ResourceType"] == "AWS::Lambda::Function"
    }


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
