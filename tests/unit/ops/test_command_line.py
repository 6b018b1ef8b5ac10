"""The frame: which stack, what is printed, which exit status, and one line for what a person can fix."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import stripe
from botocore.exceptions import ClientError, NoCredentialsError

from ops import command_line, connection
from ops.connection import Stack, connect
from ops.output import DRY_RUN, USAGE, Problem, Report, show
from tests.support.operated_stack import API_KEY, Answers, OperatedStack

DEPLOYED = ("--stack", "shop")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A command `try`."""
    made = Mock(add_arguments=lambda _: None, __doc__="Try.")
    monkeypatch.setitem(command_line.COMMANDS, "try", made)
    return made


def test_the_region_is_what_the_guides_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS_REGION as well, which boto3 does not read, before AWS_DEFAULT_REGION."""
    monkeypatch.delenv("AWS_REGION", raising=False)
    for name, region in (("AWS_DEFAULT_REGION", "eu-north-1"), ("AWS_REGION", "eu-central-1")):
        monkeypatch.setenv(name, region)
        assert connect("shop").client("sqs").meta.region_name == region


def test_a_deployed_stack_is_found_by_logical_ids(operated: OperatedStack) -> None:
    """On whichever page they are; what the stack lacks is named. STRIPE_SECRET_KEY is before the stack's own secret."""
    ids = {"PaymentsQueue": "https://sqs/payments", "PaymentsTable": "shop-PaymentsTable-1"}
    listed = [[{"LogicalResourceId": name, "PhysicalResourceId": physical}] for name, physical in ids.items()]
    described = [{"Parameters": [{"ParameterKey": "ShopId", "ParameterValue": "shop"}]}]
    answers = Answers({"StackResourceSummaries": each, "Stacks": described} for each in listed)
    session: Any = SimpleNamespace(client=lambda *_, **__: answers)
    stack = Stack("shop", session)
    assert {name: stack.value(name) for name in (*ids, "ShopId")} == ids | {"ShopId": "shop"}
    with pytest.raises(Problem, match=r"stack shop has no Other"):
        stack.value("Other")
    for given, used in ((None, API_KEY), ("sk_test_environment", "sk_test_environment")):
        operated.stack.__dict__.pop("stripe", None)
        operated.stack.stripe_key = given
        assert operated.stack.stripe._requestor.api_key == used


def test_a_local_stack_takes_no_key_from_the_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A real key of the shell's is never sent to a stand-in. Without a local stack a name is needed."""
    stack_json = tmp_path / "stack.json"
    monkeypatch.setattr(connection, "STACK_JSON", stack_json)
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("STRIPE_SECRET_KEY", "sk_live_real")
    with pytest.raises(Problem, match=r"--stack NAME is missing.*make local"):
        connect(None)
    stack_json.write_text(json.dumps({"aws_endpoint_url": "http://127.0.0.1:1", "stack_name": "onecharge-local"}))
    for name in (None, str(stack_json)):
        found = connect(name)
        assert (found.name, found.endpoint_url, found.stripe_key) == ("onecharge-local", "http://127.0.0.1:1", None)
    assert connect("shop").stripe_key == "sk_live_real"


LINES = {
    "Unable to locate credentials (check --stack, AWS_PROFILE": NoCredentialsError(),
    "not authorized to perform: dynamodb:GetItem on": ClientError(
        {"Error": {"Code": "AccessDenied", "Message": "not authorized to\nperform: dynamodb:GetItem on"}}, "GetItem"
    ),
    "Stack with id shop does not exist (check --stack": ClientError(
        {"Error": {"Code": "ValidationError", "Message": "Stack with id shop does not exist"}}, "DescribeStacks"
    ),
    "Stripe: no answer": stripe.APIConnectionError("sk_test_x"),
    "Stripe: 401, 403, wrong mode": stripe.AuthenticationError(
        "Invalid API Key: sk_test_x", http_status=401, json_body={"error": {"type": "invalid_request_error"}}
    ),
    "has no access (check STRIPE_SECRET_KEY": stripe.PermissionError("rk_test_*** has no access", http_status=403),
}


def test_what_a_person_can_fix_is_one_line(tried: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the action that is not allowed, and never a key. A defect of ours shows where it is: nobody can act on a
    line about it. Ctrl-C is no error."""
    for line, error in LINES.items():
        tried.run.side_effect = error
        assert command_line.main([*DEPLOYED, "try"]) == USAGE
        out, err = capsys.readouterr()
        assert (out, line in err, err.count("\n")) == ("", True, 1), err
        assert "sk_test_x" not in err
    tried.run.side_effect = KeyError("x")
    with pytest.raises(KeyError):
        command_line.main([*DEPLOYED, "try"])
    tried.run.side_effect = KeyboardInterrupt
    assert command_line.main([*DEPLOYED, "try"]) == 130


def test_a_report_has_its_exit_status_and_is_one_json_document(tried: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A script reads the document; a person, tables and lines. A dry run says so, and is not done. What is given before
    the command is not undone by a default after it."""
    document = {"orders": [{"order_id": "ord_1", "next": None}], "left": ["a", "b"], "messages": [], "total": 1}
    tried.run.return_value = Report(document, is_dry_run=True)
    for words in (["--json", "--yes", *DEPLOYED, "try"], ["try", "--json", "--yes", *DEPLOYED]):
        assert command_line.main(words) == 1
        assert json.loads(capsys.readouterr().out) == document
        assert tried.run.call_args.args[1].yes
    assert command_line.main([*DEPLOYED, "try"]) == 1
    lines = ["orders", "order id  next", "ord_1", "left: a, b", "messages: none", "total: 1", DRY_RUN]
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == lines


def test_no_secret_is_ever_printed() -> None:
    """Wherever it is: in a value, a name, a cell, a line."""
    for secret in ("sk_test_abc", "rk_live_abc", "whsec_abc", "pi_1_secret_abc", "seti_1_secret_x"):
        document = {"a": f"x {secret}", "b": [f"x {secret}"], "c": [{"d": f"x {secret}"}], secret: 1}
        for report in (Report(document), Report({}, text=f"line {secret}"), Report(document, text=f"line {secret}")):
            for as_json in (True, False):
                out = io.StringIO()
                show(report, as_json=as_json, out=out)
                assert secret not in out.getvalue()
