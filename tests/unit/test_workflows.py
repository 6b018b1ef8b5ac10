"""GitHub's workflows: what runs is pinned, may do little, and reaches AWS only as one environment of this project."""

import re
from typing import Any

import yaml

from tests.support.harness import PROJECT, load_template

PATHS = sorted((PROJECT / ".github/workflows").glob("*.yml"))
WORKFLOWS: dict[str, dict[Any, Any]] = {path.name: yaml.safe_load(path.read_text()) for path in PATHS}
ROLES = load_template("ops/ci-role.yaml")["Resources"]


def steps_of(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def test_an_action_is_pinned_by_its_commit() -> None:
    """With its release as a comment: a tag can be moved to other code. Our own workflows are of the same commit."""
    lines = [line for path in PATHS for line in re.findall(r"uses: (\S+.*)", path.read_text())]
    pinned = r"\./.*|[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
    assert [line for line in lines if not re.fullmatch(pinned, line)] == []


def test_a_workflow_may_only_read() -> None:
    """A token for AWS is asked for by the jobs of an environment alone, and nothing else is ever written."""
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
        for job in workflow["jobs"].values():
            more = job.get("permissions", {"contents": "read"})
            assert more in ({"contents": "read"}, {"contents": "read", "id-token": "write"}), name
            assert "id-token" not in more or job["environment"] in ("dev", "prod"), name


def test_prod_follows_dev_and_its_tests() -> None:
    """Which follow the check; one deployment of an environment at a time, and none is stopped in its middle."""
    jobs = WORKFLOWS["deploy.yml"]["jobs"]
    assert jobs["check"]["uses"] == "./.github/workflows/check.yml"
    assert (jobs["dev"]["needs"], jobs["prod"]["needs"]) == ("check", "dev")
    for job in (jobs["dev"], jobs["prod"]):
        assert job["concurrency"]["cancel-in-progress"] is False
    commands = "\n".join(step.get("run", "") for step in jobs["dev"]["steps"])
    assert commands.index("make deploy ") < commands.index("make deployed-check") < commands.index("make e2e")


def test_no_command_of_a_workflow_holds_an_expression() -> None:
    """What GitHub puts into a command is run: values come as variables of the environment."""
    for workflow in WORKFLOWS.values():
        assert [step["run"] for step in steps_of(workflow) if "${{" in step.get("run", "")] == []


def test_the_role_trusts_one_environment_of_one_repository() -> None:
    """Exactly, and no wildcard: another branch, a fork or a pull request has another subject."""
    [statement] = ROLES["WorkflowRole"]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
    assert statement["Condition"] == {
        "StringEquals": {
            "token.actions.githubusercontent.com:aud": "sts.amazonaws.com",
            "token.actions.githubusercontent.com:sub": "Ref Subject",
        }
    }
    pattern = load_template("ops/ci-role.yaml")["Parameters"]["Subject"]["AllowedPattern"]
    assert re.fullmatch(pattern, "repo:octo/shop:environment:prod")
    assert re.fullmatch(pattern, "repo:octo@1/shop@2:environment:prod")
    for subject in ("repo:octo/*:environment:prod", "repo:octo/shop:*", "repo:octo/shop:ref:refs/heads/main", "*"):
        assert not re.fullmatch(pattern, subject)


def test_the_workflow_cannot_pass_its_role_on() -> None:
    """Only CloudFormation's own, and to CloudFormation alone."""
    passed = [
        statement
        for policy in ROLES["WorkflowRole"]["Properties"]["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        if "iam:PassRole" in statement["Action"]
    ]
    assert [statement["Resource"] for statement in passed] == ["GetAtt ExecutionRole.Arn"]
    assert [str(statement["Condition"]) for statement in passed] == [
        "{'StringEquals': {'iam:PassedToService': 'cloudformation.amazonaws.com'}}"
    ]


def test_the_tests_touch_no_other_stack() -> None:
    """What they read, send or delete is the stack's own, or theirs: other stacks of the account have queues, too."""
    given = ROLES["TestsPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    statements = [each for each in given if "If" not in each]
    [of_the_pool] = [each["If"] for each in given if each not in statements]
    assert of_the_pool[1]["Resource"] == "Ref UserPoolArn"
    anywhere = [action for each in statements if each["Resource"] == "*" for action in each["Action"]]
    assert [action for action in anywhere if not re.match(r"[\w-]+:(Describe|List)", action)] == []
    for each in statements:
        resources = each["Resource"] if isinstance(each["Resource"], list) else [each["Resource"]]
        for resource in resources:
            assert resource == "*" or re.search(r":(tap-\*|.*\$\{StackName\}.*)$", resource) or "Condition" in each


def test_cloudformation_may_do_what_its_handlers_do() -> None:
    """What the resources' handlers call beside what bears the stack's name (the schemas of the resource types)."""
    [policy] = ROLES["ExecutionRole"]["Properties"]["Policies"]
    allowed = {
        (action, str(resource))
        for statement in policy["PolicyDocument"]["Statement"]
        for action in (statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]])
        for resource in (statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]])
    }
    for action in ("cloudwatch:PutCompositeAlarm", "codedeploy:StopDeployment", "logs:DescribeIndexPolicies"):
        assert (action, "*") in allowed
    mappings = "Sub arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:event-source-mapping:*"
    for action in ("lambda:ListTags", "lambda:UntagResource"):
        assert (action, mappings) in allowed
    roles = "Sub arn:${AWS::Partition}:iam::${AWS::AccountId}:role/${StackName}-*"
    for action in ("iam:ListRolePolicies", "iam:ListAttachedRolePolicies"):
        assert (action, roles) in allowed
    assert [action for action, _ in allowed if action.startswith("secretsmanager:")] == [], "it makes no secret"


def test_the_roles_cannot_change_themselves() -> None:
    """Their stack is `ci-NAME`, which no pattern of theirs matches; nor what another stack has in the account."""
    texts = [str(each) for each in ROLES.values()]
    assert not any("stack/${StackName}-*" in text or "kms:CreateGrant" in text for text in texts)
    anywhere = {
        action
        for each in ROLES["ExecutionRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
        if each["Resource"] == "*" and "Condition" not in each
        for action in each["Action"]
    }
    assert [
        action for action in anywhere if action.startswith(("lambda:", "secretsmanager:", "iam:", "dynamodb:"))
    ] == []


def test_a_stack_has_a_name_that_cloudformation_does_not_cut() -> None:
    """A function's name has 64 characters: the stack's name, a logical id, 12 of chance; both are cut to fit."""
    pattern = load_template("ops/ci-role.yaml")["Parameters"]["StackName"]["AllowedPattern"]
    assert re.fullmatch(pattern, "s" * 24)
    for name in ("s" * 25, "Shop", "1shop"):
        assert not re.fullmatch(pattern, name)


def test_an_environment_reaches_no_other_ones_uploads() -> None:
    """Nor the secret of another user pool's client."""
    [policy] = [each["PolicyDocument"] for each in ROLES["WorkflowRole"]["Properties"]["Policies"]]
    resources = [each["Resource"] for each in policy["Statement"] if "s3:PutObject" in each["Action"]]
    assert resources == ["Sub arn:${AWS::Partition}:s3:::${ArtifactsBucket}/${StackName}/*"]
    tests = ROLES["TestsPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    everywhere = [each["Action"] for each in tests if isinstance(each, dict) and each.get("Resource") == "*"]
    assert "cognito-idp:DescribeUserPoolClient" not in str(everywhere)
