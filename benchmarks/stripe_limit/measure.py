"""The deployed charge_order, in as many processes as are invoked at a time, under a stand-in that enforces the limit.

stand-in, AWS emulator, workers: a process each, over HTTP. Every order waits in the queue when the time begins.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import batched
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from local.emulator import CREDENTIALS, Emulator, running_emulator
from local.processes import StartupError, running, tail
from local.stripe_standin.admin import StandInAdmin
from onecharge.contract.events import OrderPlacedEvent
from onecharge.runtime.aws import BATCH_SIZE
from testing.harness import PROJECT, create_table, load_template
from testing.payment_functions import placed

_TOOLS = PROJECT / ".venv/opt"
_READY_SECONDS = 120
_UNTHROTTLED = 10_000
_WARM_UP = 20
"""Orders for each worker that come first and are not counted: workers that start share the cores of this machine."""
MAX_RECEIVE_COUNT = 500


@dataclass(frozen=True)
class Conditions:
    """What is measured. Latencies are Stripe's, in seconds, evenly spread between the two."""

    limit: int
    workers: int
    orders: int
    latency_seconds: tuple[float, float]
    knows_the_limit: bool = True
    """Whether the function is given the limit, as the parameter of the template; otherwise it is not paced."""


@dataclass(frozen=True)
class Measured:
    """The result for all orders."""

    seconds: float
    """From the beginning of the first batch to the end of the last one."""
    orders_charged: int
    charges: int
    """The stand-in's ledger: as many as orders."""
    refused: int
    """Requests that were answered 429."""
    dead_letters: int
    receive_count_max: int
    billed_seconds: float
    """Of all invocations, for one order."""


def measure(conditions: Conditions) -> Measured:
    """Charge all orders. Raises StartupError."""
    with ExitStack() as parts:
        work_dir = Path(parts.enter_context(TemporaryDirectory()))
        stripe = parts.enter_context(_running_standin(work_dir, conditions))
        emulator = parts.enter_context(
            running_emulator(python=_TOOLS / "emulator/bin/python", work_dir=work_dir, host="127.0.0.1")
        )
        environment = _environment(emulator, stripe, conditions)
        logs = [work_dir / f"worker-{index}.jsonl" for index in range(conditions.workers)]
        for log in logs:
            command = [sys.executable, "-m", "benchmarks.stripe_limit.worker", str(log)]
            parts.enter_context(running(command, env=environment, log=log.with_suffix(".err"), cwd=PROJECT))
        _wait_for(logs)
        admin = StandInAdmin(stripe)
        queue, dlq = environment["PAYMENTS_QUEUE_URL"], environment["PAYMENTS_DLQ_URL"]
        warm_up = _WARM_UP * conditions.workers
        _charge(emulator, queue, 0, warm_up)
        before, begun_at = admin.ledger(), time.time()
        _charge(emulator, queue, warm_up, conditions.orders)
        ledger = admin.ledger()
        batches = [each for log in logs for each in _lines(log) if each.get("begun_at", 0) > begun_at]
        charged = [each.order_id for each in ledger.charges]
        return Measured(
            seconds=max(each["ended_at"] for each in batches) - min(each["begun_at"] for each in batches),
            orders_charged=len(set(charged)) - warm_up,
            charges=len(charged) - warm_up,
            refused=ledger.counts.get("status_429", 0) - before.counts.get("status_429", 0),
            dead_letters=_messages(emulator, dlq),
            receive_count_max=max(max(each["receives"]) for each in batches),
            billed_seconds=sum(each["ended_at"] - each["begun_at"] for each in batches) / conditions.orders,
        )


@contextmanager
def _running_standin(work_dir: Path, conditions: Conditions) -> Iterator[str]:
    """A stand-in that enforces the limit of each endpoint; its URL."""
    log = work_dir / "stripe.log"
    with running([sys.executable, "-m", "local.stripe_standin"], env=os.environ, log=log, cwd=PROJECT):
        deadline = time.monotonic() + _READY_SECONDS
        while not log.read_text().endswith("\n"):
            if time.monotonic() > deadline:
                raise StartupError(f"{tail(log)}\nthe stand-in did not start")
            time.sleep(0.05)
        url = str(json.loads(log.read_text().splitlines()[0])["stripe_api_base"])
        least, most = conditions.latency_seconds
        StandInAdmin(url).settings(
            endpoint_rate_limit=conditions.limit, latency_seconds=least, latency_max_seconds=most
        )
        yield url


def _environment(emulator: Emulator, stripe: str, conditions: Conditions) -> Mapping[str, str]:
    """What the template gives the function, its tables and queues being on the emulator."""
    dynamodb, sqs = emulator.client("dynamodb"), emulator.client("sqs")
    dlq = sqs.create_queue(QueueName="payments-dlq")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dlq, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    queue = load_template()["Resources"]["PaymentsQueue"]["Properties"]
    assert queue["RedrivePolicy"]["maxReceiveCount"] == MAX_RECEIVE_COUNT
    redrive = {"deadLetterTargetArn": arn, "maxReceiveCount": MAX_RECEIVE_COUNT}
    profile = load_template()["Mappings"]["Profile"]["live"]
    attributes = {
        "RedrivePolicy": json.dumps(redrive),
        "VisibilityTimeout": str(profile["PaymentsVisibilityTimeoutSeconds"]),
    }
    limit = conditions.limit if conditions.knows_the_limit else _UNTHROTTLED
    secret = emulator.client("secretsmanager").create_secret(Name="stripe", SecretString="sk_test_limit")
    return {
        **os.environ,
        **CREDENTIALS,
        "PYTHONPATH": f"{PROJECT / 'functions'}:{PROJECT / 'shared'}:{PROJECT}",
        "AWS_ENDPOINT_URL": emulator.endpoint_url,
        "AWS_LAMBDA_FUNCTION_NAME": "charge_order",
        "POWERTOOLS_SERVICE_NAME": "charge_order",
        "POWERTOOLS_METRICS_NAMESPACE": "onecharge/limit",
        "LOOK_UP_PLACED_BEFORE_SECONDS": "0",
        "PAYMENTS_TABLE": create_table(dynamodb, "payments", "PaymentsTable"),
        "STRIPE_LIMIT_TABLE": create_table(dynamodb, "stripe-limit", "StripeLimitTable"),
        "PAYMENTS_QUEUE_URL": sqs.create_queue(QueueName="payments", Attributes=attributes)["QueueUrl"],
        "PAYMENTS_DLQ_URL": dlq,
        "STRIPE_SECRET_ARN": secret["ARN"],
        "STRIPE_API_BASE": stripe,
        "STRIPE_ENDPOINT_LIMIT": str(limit),
        "STRIPE_ACCOUNT_LIMIT": str(4 * limit),
        "STRIPE_SHARE_PERCENT": "60",
        "FUNCTION_TIMEOUT_SECONDS": str(profile["ChargeTimeoutSeconds"]),
    }


def _wait_for(logs: Sequence[Path]) -> None:
    """Until every worker has built its application and checked it."""
    deadline = time.monotonic() + _READY_SECONDS
    for log in logs:
        while not (log.exists() and _lines(log)):
            if time.monotonic() > deadline:
                raise StartupError(f"{tail(log.with_suffix('.err'))}\na worker did not start")
            time.sleep(0.1)
        outcomes = _lines(log)[0]["ready"]
        if set(outcomes.values()) != {"ok"}:
            raise StartupError(f"a worker's self-check failed: {outcomes}")


def _charge(emulator: Emulator, url: str, first: int, orders: int) -> None:
    """Send so many orders, and wait until none is in the queue."""
    sqs = emulator.client("sqs")
    events = (OrderPlacedEvent.of(placed(f"{first + index:x}"), correlation_id="c") for index in range(orders))
    for batch in batched((event.model_dump_json() for event in events), BATCH_SIZE, strict=False):
        entries = [{"Id": str(index), "MessageBody": body} for index, body in enumerate(batch)]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    while _messages(emulator, url):
        time.sleep(1)


def _messages(emulator: Emulator, url: str) -> int:
    """How many are in the queue, whether visible or not."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    answer = emulator.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)
    return sum(int(answer["Attributes"][name]) for name in names)


def _lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]
