"""The frame: which stack, what is printed, which exit status, and one line for what a person can mend."""

import argparse
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import boto3
import pytest
import stripe
from botocore.exceptions import ClientError, NoCredentialsError, NoRegionError

from ops import command_line
from ops.commands import Command
from ops.connection import Stack, StripeKeySource, connect
from ops.errors import ExitStatus, Problem, problem_of
from ops.output import Report, Table, show


class CloudFormation:
    """Knows one stack; its resources come in pages of one."""

    resources: ClassVar = {"PaymentsQueue": "https://sqs/payments", "PaymentsTable": "shop-PaymentsTable-1"}

    def __init__(self, secret_arn: str) -> None:
        self.parameters = {"StripeApiBase": "http://stripe", "StripeSecretArn": secret_arn}

    def get_paginator(self, _: str) -> Self:
        return self

    def paginate(self, *, StackName: str) -> list[dict[str, Any]]:
        return [
            {"StackResourceSummaries": [{"LogicalResourceId": name, "PhysicalResourceId": physical}]}
            for name, physical in self.resources.items()
        ]

    def describe_stacks(self, *, StackName: str) -> dict[str, Any]:
        found = [{"ParameterKey": name, "ParameterValue": value} for name, value in self.parameters.items()]
        return {"Stacks": [{"Parameters": found}]}


class Session:
    """boto3's session of a caller in eu-west-1, with moto's secrets."""

    def __init__(self, secret_arn: str) -> None:
        self._cloudformation = CloudFormation(secret_arn)

    def client(self, service: str, **_: Any) -> Any:
        return self._cloudformation if service == "cloudformation" else boto3.client(service, region_name="eu-west-1")  # type: ignore[call-overload]


@pytest.fixture
def session(aws: None) -> Any:
    """Of an account whose stack `shop` has the Stripe key sk_test_stack."""
    secrets = boto3.client("secretsmanager", region_name="eu-west-1")
    secrets.create_secret(Name="other", SecretString="rk_test_other")
    return Session(secrets.create_secret(Name="stripe", SecretString="sk_test_stack\n")["ARN"])


def run(*words: str, commands: dict[str, Command] | None = None) -> tuple[int, str, str]:
    """The exit status, what was printed, and what was said on stderr."""
    out, err = io.StringIO(), io.StringIO()
    given = {} if commands is None else {"commands": commands}
    status = command_line.main(words, environment={}, out=out, err=err, **given)
    return status, out.getvalue(), err.getvalue()


def command(answer: Report | Exception) -> dict[str, Command]:
    """A command that answers so, and keeps the arguments that it was called with."""

    def answering(_: Stack, arguments: argparse.Namespace) -> Report:
        made.seen = arguments
        if isinstance(answer, Exception):
            raise answer
        return answer

    made = SimpleNamespace(HELP="tries", add_arguments=lambda parser: None, run=answering, seen=None)
    return {"try": made}


# ---------------------------------------------------------------- which stack


def test_a_deployed_stack_is_found_by_logical_ids(session: Any) -> None:
    """Tables by name, queues by URL, on whichever page they are; a resource that the stack lacks is named."""
    found = Stack("shop", session)
    assert found.resource("PaymentsTable") == "shop-PaymentsTable-1"
    assert found.resource("PaymentsQueue") == "https://sqs/payments"
    assert not found.has_resource("RefundsTable")
    with pytest.raises(Problem, match="stack shop has no RefundsTable"):
        found.resource("RefundsTable")
    with pytest.raises(Problem, match="stack shop has no parameter Profile"):
        found.parameter("Profile")


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (StripeKeySource(), "sk_test_stack"),
        (StripeKeySource(api_key="sk_test_environment"), "sk_test_environment"),
        (StripeKeySource(secret_id="other", api_key="sk_test_environment"), "rk_test_other"),
    ],
)
def test_the_stripe_key_is_the_one_that_was_named(session: Any, given: StripeKeySource, used: str) -> None:
    """--stripe-key-secret before STRIPE_SECRET_KEY before the stack's own secret, to the stack's Stripe."""
    client = Stack("shop", session, stripe_key=given).stripe
    assert client._requestor.api_key == used
    assert client._requestor._options.base_addresses["api"] == "http://stripe"


def test_a_local_stack_takes_no_key_from_the_shell(tmp_path: Path) -> None:
    """A real key of the shell's is never sent to a stand-in."""
    stack_json = tmp_path / "stack.json"
    stack_json.write_text(json.dumps({"aws_endpoint_url": "http://127.0.0.1:1", "stack_name": "onecharge-local"}))
    given = {"STRIPE_SECRET_KEY": "sk_live_real"}
    for name in ("local", None, str(stack_json)):
        found = connect(name, stack_json=stack_json, environment=given)
        assert (found.name, found.is_local) == ("onecharge-local", True)
        assert found._stripe_key == StripeKeySource()
    deployed = connect("shop", stack_json=stack_json, environment=given, region="eu-west-1", stripe_key_secret="other")
    assert deployed._stripe_key == StripeKeySource("other", "sk_live_real")


def test_without_a_local_stack_a_name_is_needed(tmp_path: Path) -> None:
    """It says what starts one; a file of something else is no stack."""
    with pytest.raises(Problem, match=r"--stack NAME is missing.*make local"):
        connect(None, stack_json=tmp_path / "none.json", environment={})
    with pytest.raises(Problem, match="no local stack runs"):
        connect("local", stack_json=tmp_path / "none.json", environment={})
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(Problem, match="is no file of a local stack"):
        connect(str(tmp_path / "other.json"), stack_json=tmp_path, environment={})


# ---------------------------------------------------------------- one line for what a person can mend


def denied(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "GetItem")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (NoCredentialsError(), "no AWS credentials"),
        (NoRegionError(), "no AWS region"),
        (denied("ExpiredTokenException", "expired"), "AWS refuses the credentials"),
        (
            denied(
                "AccessDeniedException",
                "User: arn:aws:sts::1:assumed-role/a/b is not authorized to perform: dynamodb:GetItem on resource: "
                "arn:aws:dynamodb:eu-west-1:1:table/t because no identity-based policy allows it",
            ),
            "not allowed: dynamodb:GetItem on arn:aws:dynamodb:eu-west-1:1:table/t",
        ),
        (denied("ValidationError", "Stack with id shop does not exist"), "Stack with id shop does not exist in this"),
        (denied("AccessDenied", "no"), "not allowed: GetItem"),
        (denied("ThrottlingException", "slow\ndown"), "GetItem failed: ThrottlingException: slow down"),
        (stripe.APIConnectionError("sk_test_x"), "Stripe does not answer"),
        (stripe.AuthenticationError("Invalid API Key: sk_test_x", http_status=401), "Stripe refuses the API key (401)"),
        (stripe.PermissionError("rk_test_*** has no access", http_status=403), "lacks a permission (403)"),
    ],
)
def test_what_a_person_can_mend_is_one_line(error: Exception, line: str) -> None:
    """It names the action that is not allowed, and never a key."""
    status, out, err = run("--stack", "shop", "--region", "eu-west-1", "try", commands=command(error))
    assert (status, out) == (ExitStatus.USAGE, "")
    assert line in err
    assert "sk_test_x" not in err
    assert err.count("\n") == 1


def test_a_defect_of_ours_shows_where_it_is() -> None:
    """It is no line that somebody could act on."""
    assert problem_of(KeyError("x")) is None
    with pytest.raises(KeyError):
        run("--stack", "shop", "--region", "eu-west-1", "try", commands=command(KeyError("x")))


# ---------------------------------------------------------------- arguments and output


def test_common_options_are_accepted_before_and_after_the_command() -> None:
    """What is given before is not undone by the default after it."""
    for words in (["--json", "--yes", "--stack", "a", "try"], ["try", "--json", "--yes", "--stack", "a"]):
        tried = command(Report({}, []))
        assert run("--region", "eu-west-1", *words, commands=tried)[0] == 0
        seen = tried["try"].seen  # type: ignore[attr-defined]
        assert (seen.json, seen.yes, seen.stack) == (True, True, "a")
    with pytest.raises(SystemExit) as ended:
        run("nothing-like-that")
    assert ended.value.code == ExitStatus.USAGE


def test_a_report_has_its_exit_status_and_is_one_json_document() -> None:
    """A script reads the document; a person, the table."""
    report = Report({"orders": ["ord_1"]}, [Table("waits", ["order"], [["ord_1"]]), "one order"], ExitStatus.FOUND)
    status, out, _ = run("--stack", "a", "--region", "eu-west-1", "--json", "try", commands=command(report))
    assert (status, json.loads(out)) == (1, {"orders": ["ord_1"]})
    status, out, _ = run("--stack", "a", "--region", "eu-west-1", "try", commands=command(report))
    assert status == 1
    assert [line.strip() for line in out.splitlines()] == ["waits", "order", "ord_1", "one order"]
    assert "\x1b" not in out


@pytest.mark.parametrize(
    "secret",
    ["sk_test_abc", "rk_live_abc", "whsec_abc", "pi_1_secret_abc", "4242 4242 4242 4242", "seti_1_secret_x"],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_no_secret_is_ever_printed(secret: str, as_json: bool) -> None:
    """Wherever it is: in a value, a name, a cell, a line."""
    out = io.StringIO()
    report = Report({"a": [f"x {secret}"], secret: 1}, [Table("t", ["c"], [[f"x {secret}"]]), f"line {secret}"])
    show(report, as_json=as_json, out=out)
    assert secret not in out.getvalue()
    assert "[redacted]" in out.getvalue()
