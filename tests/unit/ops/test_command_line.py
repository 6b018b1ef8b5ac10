"""The frame: which stack, what is printed, which exit status, and one line for what a person can fix."""

import argparse
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import stripe
from botocore.exceptions import ClientError, NoCredentialsError, NoRegionError

from ops import command_line, connection
from ops.__main__ import run
from ops.connection import Stack, connect
from ops.errors import ExitStatus, Problem, problem_of
from ops.output import DRY_RUN, Report, show
from tests.support.operated_stack import API_KEY, Answers, OperatedStack

DEPLOYED = ("--stack", "shop")


@pytest.fixture(autouse=True)
def no_local_stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Whatever runs on this machine; a stack.json may be put there."""
    path = tmp_path / "stack.json"
    monkeypatch.setattr(connection, "STACK_JSON", path)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    return path


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A command `try` that answers with what it is given, and keeps its arguments."""

    def answering(_: Stack, arguments: argparse.Namespace) -> Report:
        made.seen = arguments
        if isinstance(made.answer, BaseException):
            raise made.answer
        assert isinstance(made.answer, Report)
        return made.answer

    made = SimpleNamespace(add_arguments=lambda _: None, run=answering, answer=Report({}), seen=None)
    monkeypatch.setitem(command_line.COMMANDS, "try", made)
    return made


# ---------------------------------------------------------------- which stack


def test_the_region_is_what_the_guides_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS_REGION as well, which boto3 does not read, before AWS_DEFAULT_REGION."""
    monkeypatch.delenv("AWS_REGION", raising=False)
    for name, region in (("AWS_DEFAULT_REGION", "eu-north-1"), ("AWS_REGION", "eu-central-1")):
        monkeypatch.setenv(name, region)
        assert connect("shop").client("sqs").meta.region_name == region


def test_a_deployed_stack_is_found_by_logical_ids(operated: OperatedStack) -> None:
    """Tables by name, queues by URL, on whichever page they are; what the stack lacks is named."""
    ids = {"PaymentsQueue": "https://sqs/payments", "PaymentsTable": "shop-PaymentsTable-1"}
    listed = [[{"LogicalResourceId": name, "PhysicalResourceId": physical}] for name, physical in ids.items()]
    session: Any = SimpleNamespace(client=lambda *_, **__: Answers({"StackResourceSummaries": each} for each in listed))
    stack = Stack("shop", session)
    assert {name: stack.resource(name) for name in ids} == ids
    with pytest.raises(Problem, match="stack shop has no resource OtherTable"):
        stack.resource("OtherTable")
    for look in (operated.stack.parameter, operated.stack.output):
        with pytest.raises(Problem, match=r"has no (parameter|output) Profile"):
            look("Profile")


def test_the_stripe_key_is_the_one_that_was_named(operated: OperatedStack) -> None:
    """STRIPE_SECRET_KEY before the stack's own secret, to the stack's Stripe."""
    session: Any = operated
    for given, used in ((None, API_KEY), ("sk_test_environment", "sk_test_environment")):
        stack = Stack("shop", session, stripe_key=given)
        stack.__dict__["_resources"] = operated.stack._resources
        requestor = stack.stripe._requestor
        assert requestor.api_key == used
        assert requestor._options.base_addresses["api"] == operated.stack.parameter("StripeApiBase")


def test_a_local_stack_takes_no_key_from_the_shell(monkeypatch: pytest.MonkeyPatch, no_local_stack: Path) -> None:
    """A real key of the shell's is never sent to a stand-in."""
    no_local_stack.write_text(json.dumps({"aws_endpoint_url": "http://127.0.0.1:1", "stack_name": "onecharge-local"}))
    monkeypatch.setenv("STRIPE_SECRET_KEY", "sk_live_real")
    for name in ("local", None, str(no_local_stack)):
        found = connect(name)
        assert (found.name, found.is_local, found._stripe_key) == ("onecharge-local", True, None)
    assert connect("shop")._stripe_key == "sk_live_real"


def test_without_a_local_stack_a_name_is_needed(tmp_path: Path) -> None:
    """It says what starts one; a file of something else, or what CloudFormation takes for no name, is not a stack."""
    (tmp_path / "other.json").write_text("[]")
    for name, why in (
        (None, r"--stack NAME is missing.*make local"),
        ("local", "no local stack runs here"),
        (str(tmp_path / "other.json"), "is not the file of a local stack"),
        ("Shop_1", "Shop_1 is not the name of a stack"),
    ):
        with pytest.raises(Problem, match=why):
            connect(name)


# ---------------------------------------------------------------- one line for what a person can fix


def denied(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "GetItem")


LINES = {
    "Unable to locate credentials (AWS_PROFILE": NoCredentialsError(),
    "You must specify a region. (AWS_PROFILE, AWS_REGION": NoRegionError(),
    "not authorized to perform: dynamodb:GetItem on": denied(
        "AccessDenied", "not authorized to perform: dynamodb:GetItem on"
    ),
    "Stack with id shop does not exist in this account": denied("ValidationError", "Stack with id shop does not exist"),
    "(ThrottlingException) when calling the GetItem operation: slow down": denied("ThrottlingException", "slow\ndown"),
    "Stripe does not answer": stripe.APIConnectionError("sk_test_x"),
    "Stripe refuses the API key (401)": stripe.AuthenticationError("Invalid API Key: sk_test_x", http_status=401),
    "lacks a permission (403)": stripe.PermissionError("rk_test_*** has no access", http_status=403),
}


def test_what_a_person_can_fix_is_one_line(tried: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the action that is not allowed, and never a key. A defect of ours shows where it is: nobody can act on a
    line about it."""
    for line, error in LINES.items():
        tried.answer = error
        assert command_line.main([*DEPLOYED, "try"]) == ExitStatus.USAGE
        out, err = capsys.readouterr()
        assert (out, line in err, err.count("\n")) == ("", True, 1), err
        assert "sk_test_x" not in err
    tried.answer = KeyError("x")
    assert problem_of(tried.answer) is None
    with pytest.raises(KeyError):
        command_line.main([*DEPLOYED, "try"])


@pytest.mark.parametrize(
    "words",
    [
        *(["nothing-like-that"], [], ["explain"], ["dlq"], ["dlq", "empty"], ["pending", "--limit", "x"]),
        *(["release"], ["release", "--all", "--since"], ["restore", "rows"], ["webhook", "delete"], ["check", "--now"]),
    ],
    ids=" ".join,
)
def test_wrong_words_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It says what is wrong, and where the right words are."""
    with pytest.raises(SystemExit) as ended:
        command_line.main(words)
    err = capsys.readouterr().err
    assert (ended.value.code, err.count("\n"), "--help` says how" in err) == (ExitStatus.USAGE, 1, True)


# ---------------------------------------------------------------- arguments and output


def test_common_options_are_accepted_before_and_after_the_command(tried: Any) -> None:
    """What is given before is not undone by the default after it."""
    for words in (["--json", "--yes", "--stack", "a", "try"], ["try", "--json", "--yes", "--stack", "a"]):
        assert command_line.main(words) == 0
        assert (tried.seen.json, tried.seen.yes, tried.seen.stack) == (True, True, "a")


def test_a_report_has_its_exit_status_and_is_one_json_document(tried: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A script reads the document; a person, tables and lines. A dry run says so, and is not done."""
    document = {"orders": [{"order_id": "ord_1", "next": None}], "left": ["a", "b"], "messages": [], "total": 1}
    tried.answer = Report(document, is_dry_run=True)
    assert command_line.main([*DEPLOYED, "--json", "try"]) == 1
    assert json.loads(capsys.readouterr().out) == document
    assert command_line.main([*DEPLOYED, "try"]) == 1
    out = capsys.readouterr().out
    lines = ["orders", "order id  next", "ord_1", "left: a, b", "messages: none", "total: 1", DRY_RUN]
    assert [line.strip() for line in out.splitlines()] == lines
    assert "\x1b" not in out


def test_no_secret_is_ever_printed() -> None:
    """Wherever it is: in a value, a name, a cell, a line."""
    for secret in ("sk_test_abc", "rk_live_abc", "whsec_abc", "pi_1_secret_abc", "seti_1_secret_x"):
        document = {"a": f"x {secret}", "b": [f"x {secret}"], "c": [{"d": f"x {secret}"}], secret: 1}
        for report in (Report(document), Report({}, text=f"line {secret}"), Report(document, text=f"line {secret}")):
            for as_json in (True, False):
                out = io.StringIO()
                show(report, as_json=as_json, out=out)
                assert secret not in out.getvalue()


def test_ctrl_c_ends_a_command_without_a_traceback(tried: Any) -> None:
    """With the status of a shell's command that was interrupted."""
    tried.answer = KeyboardInterrupt()
    assert run([*DEPLOYED, "try"]) == 130
