"""What runs against a deployed stack, run against one that is known by its name in CloudFormation alone."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.emulator import CREDENTIALS
from local.observe import drain
from local.stack import Stack
from tests.support.deployed_shop import PRICE, forget_dead_letters
from tests.support.harness import PROJECT
from tests.support.stacks import own_stack

pytestmark = own_stack


@pytest.fixture
def environment(stack: Stack, tmp_path: Path) -> dict[str, str]:
    """What whoever has deployed the stack has: credentials, tokens, the endpoint in a variable of AWS's own."""
    stack_json = tmp_path / "token-stack.json"
    stack_json.write_text(stack.as_json())
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    return {
        **kept,
        **CREDENTIALS,
        "AWS_ENDPOINT_URL": stack.aws_endpoint_url,
        "API_URL": stack.api_url,  # The emulator's API is not where its output says.
        "TOKEN_COMMAND": f"'{sys.executable}' -m local.token --stack '{stack_json}'",
    }


@pytest.mark.nightly
def test_the_e2e_tests_run_against_a_stack_by_its_name(stack: Stack, environment: dict[str, str]) -> None:
    """As `make e2e STACK=…` runs them: those that need no fault, no customer at the bank, and no stack of their own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "--stack", stack.stack_name]
    done = subprocess.run(
        [*command, "tests/e2e/test_orders.py"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert int(done.stdout.rpartition(" passed")[0].split()[-1]) >= 15
    assert "SKIPPED" in done.stdout
    assert "needs the Stripe stand-in: nobody can do `add_fault` at Stripe" in done.stdout


def test_without_tokens_nothing_runs(stack: Stack, environment: dict[str, str]) -> None:
    """With one line that says what is missing."""
    del environment["TOKEN_COMMAND"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "--stack", stack.stack_name]
    done = subprocess.run(
        [*command, "tests/e2e/test_orders.py"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert "TOKEN_COMMAND is missing" in done.stdout


def check(stack: Stack, environment: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ops", "--stack", stack.stack_name, "--json", "check", *words]
    return subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def webhooks_sent(stack: Stack) -> Iterator[None]:
    """The stand-in sends its newest events, as Stripe does by itself."""
    done = threading.Event()

    def send() -> None:
        while not done.wait(1):
            count = len(stack.stripe.events())
            stack.stripe.deliver_webhooks(range(max(0, count - 5), count))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.usefixtures("webhooks_sent")
def test_a_deployment_that_works_passes_its_check(stack: Stack, environment: dict[str, str]) -> None:
    """An order is placed, paid once at Stripe, and refunded."""
    forget_dead_letters(stack)
    done = check(stack, environment, "--yes")
    found = json.loads(done.stdout)
    # Other tests of this stack make alarms go off: of these only the check itself is asked.
    failed = [each for each in found["checks"] if not each["is_well"] and each["what"] != "no alarm is on"]
    assert failed == [], done.stderr
    [charge] = stack.stripe.ledger().charges_of(found["order_id"])
    assert charge.amount_minor == PRICE
    refunds = [each for each in stack.stripe.ledger().refunds if each["payment_intent"] == charge.payment_intent_id]
    assert [each["amount"] for each in refunds] == [PRICE]


def test_a_check_says_what_does_not_work(stack: Stack, environment: dict[str, str]) -> None:
    """A dead letter and a queue that nobody reads are two lines of the list; the exit status says so, too."""
    functions = stack.aws.client("lambda")
    [mapping] = [
        each
        for each in functions.list_event_source_mappings()["EventSourceMappings"]
        if each["EventSourceArn"].endswith(f":{stack.payments_queue_url.rsplit('/', 1)[-1]}")
    ]
    forget_dead_letters(stack)
    stack.aws.client("sqs").send_message(QueueUrl=stack.payments_dlq_url, MessageBody="dead")
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    try:
        done = check(stack, environment, "--yes", "--seconds", "5")
    finally:
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)
        drain(stack, stack.payments_dlq_url)
    seen = {each["what"]: each["detail"] for each in json.loads(done.stdout)["checks"] if not each["is_well"]}
    assert done.returncode == 1
    assert seen["it is PAID"] == "it is PENDING, after 5 s"
    assert seen["every DLQ is empty"] == "PaymentsDlq: 1"


def test_a_check_moves_no_real_money(stack: Stack, environment: dict[str, str]) -> None:
    """With a live key in the stack's secret nothing is placed; without --yes neither."""
    assert check(stack, environment).returncode == 1
    secrets = stack.aws.client("secretsmanager")
    key = secrets.get_secret_value(SecretId=stack.stripe_secret_id)["SecretString"]
    orders = stack.aws.client("dynamodb").scan(TableName=stack.orders_table)["Count"]
    secrets.put_secret_value(SecretId=stack.stripe_secret_id, SecretString="sk_live_1")
    try:
        done = check(stack, environment, "--yes")
    finally:
        secrets.put_secret_value(SecretId=stack.stripe_secret_id, SecretString=key)
    assert done.returncode == 2
    assert "no key of Stripe's test mode" in done.stderr
    assert stack.aws.client("dynamodb").scan(TableName=stack.orders_table)["Count"] == orders
