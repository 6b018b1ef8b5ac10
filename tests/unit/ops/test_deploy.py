"""`make deploy` and `make undeploy` from the outside: what they ask, run, store and say. `sam` is a script here."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
import responses

from ops.command_line import COMMANDS, parser
from ops.connection import Stack
from ops.deploy import named_parameters
from ops.errors import Problem
from ops.output import Report
from tests.support.stubbed_session import StubbedSession

KEY = "sk_test_1"
ENDPOINTS = "https://api.stripe.com/v1/webhook_endpoints"
PAYMENT_INTENTS = "https://api.stripe.com/v1/payment_intents"
NOTHING = {"object": "list", "data": [], "has_more": False, "url": ""}
SAM = """#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
exit ${SAM_EXIT:-0}
"""


class Caller(StubbedSession):
    """Runs the commands."""

    def has_deployed(self, **outputs: str) -> None:
        """A stack with these outputs."""
        arns = {
            name: f"arn:aws:secretsmanager:us-east-1:1:secret:{name}"
            for name in ("StripeSecretArn", "StripeWebhookSecretArn")
        }
        given = {**arns, "Architecture": "x86_64"}
        parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()]
        shown = [{"OutputKey": name, "OutputValue": value} for name, value in outputs.items()]
        self.has_stack(Parameters=parameters, Outputs=shown)

    def run(self, *words: str) -> Report:
        session: Any = self
        arguments = parser().parse_args(words)
        key = os.environ.get("STRIPE_SECRET_KEY")
        return COMMANDS[arguments.command].run(Stack("shop", session, stripe_key=key), arguments)


@pytest.fixture
def caller(aws: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Caller]:
    (tmp_path / "sam").write_text(SAM)
    (tmp_path / "sam").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("STRIPE_SECRET_KEY", "STRIPE_FUNCTIONS_KEY", "TOKEN_ENDPOINT", "CLIENT_ID", "API_URL"):
        monkeypatch.delenv(name, raising=False)
    with Caller().activated() as caller:
        yield caller


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


def secrets() -> dict[str, str]:
    client = boto3.client("secretsmanager")
    names = [each["Name"] for each in client.list_secrets()["SecretList"]]
    return {name: client.get_secret_value(SecretId=name)["SecretString"] for name in names}


def test_without_an_answer_nothing_is_changed(
    caller: Caller,
    http: responses.RequestsMock,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither a key is stored, nor sam run. What would be done is shown, with the given parameters and no key."""
    monkeypatch.setenv("STRIPE_SECRET_KEY", KEY)
    http.get(ENDPOINTS, json=NOTHING)
    caller.has_no_stack()
    report = caller.run("deploy", "--parameter", "LogLevel=DEBUG", "--parameter", "AlarmEmail=me@example.org")
    assert (report.status, secrets(), calls.exists()) == (1, {}, False)
    assert report.document["would"] == ["STORE_SECRETS", "DEPLOY", "ENDPOINT", "CHECK"]
    shown = capsys.readouterr().err
    assert all(each in shown for each in ("2. sam build", "LogLevel=DEBUG", "AlarmEmail=me@example.org"))
    assert KEY not in shown


def test_all_that_is_missing_is_named_at_once(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is asked of AWS, with how to give each."""
    monkeypatch.setattr(caller, "region_name", None)
    monkeypatch.setattr(caller, "get_credentials", lambda: None)
    session: Any = caller
    with pytest.raises(Problem) as missing:
        COMMANDS["deploy"].run(Stack("", session), parser().parse_args(["deploy"]))
    assert all(each in str(missing.value) for each in ("STACK=", "AWS_PROFILE=", "AWS_REGION=", "STRIPE_SECRET_KEY="))
    for nonsense in ("nonsense", "pk_test_1", "sk_test_…"):
        monkeypatch.setenv("STRIPE_SECRET_KEY", nonsense)
        with pytest.raises(Problem, match=r"(?s)AWS_PROFILE=.*STRIPE_SECRET_KEY is not a Stripe key") as missing:
            COMMANDS["deploy"].run(Stack("shop", session), parser().parse_args(["deploy"]))
        assert nonsense not in str(missing.value)
    monkeypatch.setattr(caller, "region_name", "eu-central-1")
    monkeypatch.setenv("STRIPE_SECRET_KEY", KEY)
    with pytest.raises(Problem) as missing:
        COMMANDS["deploy"].run(Stack("shop", session), parser().parse_args(["deploy"]))
    assert [each for each in ("STACK=", "AWS_REGION=", "STRIPE_SECRET_KEY=") if each in str(missing.value)] == []


REFUSALS: Mapping[str, tuple[int, dict[str, str], str]] = {
    "no key": (401, {"message": "Invalid API Key provided: sk_test_*"}, "Stripe knows no such key"),
    "no right": (403, {"message": "Having the 'rak_webhook_read' permission would allow it"}, "rak_webhook_read"),
}


@pytest.mark.parametrize(("status", "error", "says"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_key_that_stripe_refuses_is_noticed_first(
    caller: Caller,
    http: responses.RequestsMock,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    error: dict[str, str],
    says: str,
) -> None:
    """One sentence says which key and why, before a secret is stored or anything is built."""
    monkeypatch.setenv("STRIPE_SECRET_KEY", KEY)
    http.get(ENDPOINTS, status=status, json={"error": error | {"type": "invalid_request_error"}})
    caller.has_no_stack()
    with pytest.raises(Problem, match=f"STRIPE_SECRET_KEY: .*{says}.*Nothing was changed"):
        caller.run("deploy", "--yes")
    assert (secrets(), calls.exists()) == ({}, False)


def test_the_functions_own_key_is_tried_too(
    caller: Caller, http: responses.RequestsMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has fewer rights: it lists PaymentIntents."""
    monkeypatch.setenv("STRIPE_SECRET_KEY", KEY)
    monkeypatch.setenv("STRIPE_FUNCTIONS_KEY", "rk_test_2")
    http.get(ENDPOINTS, json=NOTHING)
    http.get(PAYMENT_INTENTS, status=401, json={"error": {"message": "Invalid"}})
    caller.has_no_stack()
    with pytest.raises(Problem, match="STRIPE_FUNCTIONS_KEY: Stripe knows no such key"):
        caller.run("deploy", "--yes")
    assert secrets() == {}


def test_the_stored_key_may_be_another_one(
    caller: Caller, http: responses.RequestsMock, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reaches Secrets Manager alone: no argument of sam's holds a key. A failure says what to do."""
    monkeypatch.setenv("STRIPE_SECRET_KEY", KEY)
    monkeypatch.setenv("STRIPE_FUNCTIONS_KEY", "rk_test_2")
    monkeypatch.setenv("SAM_EXIT", "1")
    for url in ENDPOINTS, PAYMENT_INTENTS:
        http.get(url, json=NOTHING)
    caller.has_no_stack()
    with pytest.raises(Problem, match="sam build failed"):
        caller.run("deploy", "--yes", "--parameter", "AlarmEmail=me@example.org")
    assert secrets() == {"shop/stripe": "rk_test_2", "shop/stripe-webhook": "no endpoint yet"}
    [build] = calls.read_text().splitlines()
    assert 'AlarmEmail="me@example.org"' in build
    assert not any(key in build for key in (KEY, "rk_test_2"))


def test_a_later_release_needs_no_key(caller: Caller, calls: Path) -> None:
    """As in CI: what is there is built and deployed with its own parameters, and no secret is read."""
    caller.has_deployed()
    caller.has_deployed(ApiUrl="https://api")
    report = caller.run("deploy", "--yes", "--role-arn", "arn:of:role")
    assert report.status == 0
    assert "https://api" in "\n".join(map(str, report.parts))
    build, deploy = calls.read_text().splitlines()
    for each in (build, deploy):
        assert 'Architecture="x86_64" StripeSecretArn="arn:' in each
    assert "--stack-name shop" in deploy
    assert "--role-arn arn:of:role" in deploy


def test_a_live_stack_is_protected_against_its_deletion(caller: Caller) -> None:
    """From its first deployment on."""
    for _ in range(2):
        caller.has_deployed()
    expected = {"StackName": "shop", "EnableTerminationProtection": True}
    caller.answers("cloudformation", "update_termination_protection", {}, **expected)
    caller.has_deployed(ApiUrl="https://api")
    live = ("--parameter", "Profile=live", "--parameter", "AlarmEmail=")
    boto3.client("secretsmanager").create_secret(Name="StripeSecretArn", SecretString="rk_live_1")
    boto3.client("secretsmanager").create_secret(Name="StripeWebhookSecretArn", SecretString="whsec_1")
    assert caller.run("deploy", "--yes", *live).status == 0
    caller.stubs["cloudformation"].assert_no_pending_responses()


def test_a_stack_that_is_protected_is_not_deleted(caller: Caller) -> None:
    """Whatever the answer: it takes real money, and its API key would go with it."""
    boto3.client("secretsmanager").create_secret(Name="shop/stripe", SecretString=KEY)
    caller.has_stack(EnableTerminationProtection=True)
    with pytest.raises(Problem, match="--no-enable-termination-protection --stack-name shop"):
        caller.run("undeploy", "--yes")
    assert secrets() == {"shop/stripe": KEY}


def test_nothing_is_left_to_delete(caller: Caller, capsys: pytest.CaptureFixture[str]) -> None:
    """It says that there is no such stack. The secrets go in any case; run again, it is the same."""
    boto3.client("secretsmanager").create_secret(Name="shop/stripe", SecretString=KEY)
    for _ in range(2):
        caller.has_no_stack()
        for _ in range(2):
            caller.answers("cognito-idp", "list_user_pools", {"UserPools": []})
        caller.has_no_stack()
        assert caller.run("undeploy", "--yes").status == 0
        assert secrets() == {}
        assert "there is no stack shop in account 123456789012, us-east-1" in capsys.readouterr().err


def test_a_token_of_the_stacks_own_user_pool(caller: Caller, http: responses.RequestsMock) -> None:
    """Of its client for machines, without the staff's scope unless it is asked for."""
    outputs = {"MachinesClientId": "machines", "UserPoolId": "us-east-1_1", "SignInUrl": "https://shop/oauth2"}
    http.post("https://shop/oauth2/token", json={"access_token": "a.b.c"})
    for words, scope in (((), "onecharge%2Forders"), (("--scope", "onecharge/refund"), "onecharge%2Frefund")):
        caller.has_deployed(**outputs)
        described = {"UserPoolClient": {"ClientSecret": "s" * 24}}
        caller.answers("cognito-idp", "describe_user_pool_client", described)
        assert caller.run("token", "cus_1", *words).parts == ["a.b.c"]
        sent = http.calls[-1].request
        assert sent.body == f"grant_type=client_credentials&scope={scope}"
        assert sent.headers["Authorization"].startswith("Basic ")


def test_a_token_of_an_issuer_of_ones_own(
    caller: Caller, http: responses.RequestsMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment names it. An answer without a token is not shown: it may hold a secret."""
    given = {"TOKEN_ENDPOINT": "https://issuer/token", "CLIENT_ID": "a", "CLIENT_SECRET": "b", "TOKEN_AUDIENCE": "shop"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    http.post("https://issuer/token", json={"access_token": "a.b.c"})
    assert caller.run("token", "cus_1").document == {"access_token": "a.b.c"}
    assert http.calls[-1].request.body == "grant_type=client_credentials&audience=shop"
    http.replace("POST", "https://issuer/token", json={"error": "secret"}, status=401)
    with pytest.raises(Problem, match=r"no access token from TOKEN_ENDPOINT 'https://issuer/token': KeyError"):
        caller.run("token", "cus_1")


def test_a_mistyped_parameter_is_refused() -> None:
    """sam drops a name that the template does not have: the stack would have no alarm mails, and nobody would know."""
    given = ["AlarmEmail=you@example.com", "Profile=live", "WebOrigin=https://shop.example/?a=b"]
    assert named_parameters(given)["WebOrigin"] == "https://shop.example/?a=b"
    for wrong in "AlarmMail=you@example.com", "Profile", "Type=String", "Resources=x":
        with pytest.raises(Problem, match=f"{wrong.partition('=')[0]}.* is not Name=value of one of Alarm"):
            named_parameters([*given, wrong])
