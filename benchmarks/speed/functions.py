"""The functions that are measured, each in a process of its own (worker.py), and how to start them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.speed.aws_server import LIMIT_TABLE
from benchmarks.speed.checkpoints import started
from benchmarks.speed.deliveries import Event
from benchmarks.speed.deployed_environment import Template
from benchmarks.speed.servers import STRIPE_KEY, Servers
from local.emulator import CREDENTIALS
from testing.harness import PROJECT

_SPEED = PROJECT / "benchmarks/speed"
_STRIPE_ARN = "arn:aws:secretsmanager:us-east-1:123456789012:secret:stripe"


@dataclass(frozen=True)
class Variant:
    """A function: ours, of any checkout, or a design that is measured beside it."""

    name: str
    title: str
    module: str
    """Whose `handler` Lambda would invoke."""
    folders: tuple[Path, ...]
    """What is on its path, besides the packages of the interpreter."""
    release: Path | None = None
    """The checkout that it is of, with its template; None for the other designs."""
    python: tuple[str, ...] = (sys.executable, "-I")
    """The interpreter."""
    is_durable: bool = False
    """Whether Lambda invokes it as a durable function."""

    def environment(self, servers: Servers, table: str) -> dict[str, str]:
        """The variables that it is deployed with."""
        if self.release is None:
            return {"TABLE": table, "STRIPE_API_KEY": STRIPE_KEY, "STRIPE_API_BASE": servers.stripe_url}
        given = {
            "PaymentsTable": table,
            "PaymentsQueue": f"{servers.aws_url}/123456789012/payments",
            "PaymentsDlq": f"{servers.aws_url}/123456789012/payments-dlq",
            "StripeSecretArn": _STRIPE_ARN,
            "StripeApiBase": servers.stripe_url,
            "StripeEndpointLimit": "10000",  # The stand-in has none: benchmarks/stripe_limit is about that.
            "StripeAccountLimit": "100000",
            "StripeLimitTable": f"{table}{LIMIT_TABLE}",
            "AwsEndpointUrl": servers.aws_url,
        }
        return Template(self.release / "template.yaml", given).variables_of("ChargeOrderFunction")

    def create_table(self, servers: Servers) -> str:
        """An empty table of its own: as the template declares it, or with the design's key."""
        name = f"{self.name}-{uuid4().hex[:8]}"
        if self.release is None:
            # Powertools' own key is `id` ("Idempotency", "Required resources").
            key = "id" if self.name.startswith(("powertools", "usual")) else "order_id"
            properties: dict[str, Any] = {
                "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
            }
        else:
            declared = Template(self.release / "template.yaml", {}).body["Resources"]["PaymentsTable"]["Properties"]
            wanted = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes")
            properties = {each: declared[each] for each in wanted if each in declared}
            servers.dynamodb.create_table(
                TableName=f"{name}{LIMIT_TABLE}",
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": "name", "AttributeType": "S"}],
                KeySchema=[{"AttributeName": "name", "KeyType": "HASH"}],
            )
        servers.dynamodb.create_table(TableName=name, BillingMode="PAY_PER_REQUEST", **properties)
        return name


def onecharge(release: Path = PROJECT, name: str = "onecharge") -> Variant:
    """Ours, as a checkout has it."""
    folders = (release / "functions", release / "shared")
    return Variant(name, "onecharge", "charge_order.app", folders, release=release)


BARE_PYTHON = (f"{sys.base_prefix}/bin/python3.13", "-I", "-S", "-B")
"""Python's standard library and nothing else, and nothing is compiled for the next time: as on Lambda, where a function
cannot write to its own folder."""
PACKAGES = PROJECT / ".venv/opt/bench/lib/python3.13/site-packages"
"""What pip has installed for the other designs, .pyc files included."""


def _peer(name: str, title: str) -> Variant:
    return Variant(name, title, name, (_SPEED / "variants", PACKAGES), python=BARE_PYTHON)


NAIVE = _peer("naive", "get, charge, put")
POWERTOOLS = _peer("powertools_batch", "Powertools")
POWERTOOLS_ASYNC = _peer("powertools_async", "Powertools, async")
USUAL = _peer("usual", "the usual module")
LIBRARIES = _peer("libraries", "its libraries alone")
DURABLE = replace(_peer("durable", "durable function"), is_durable=True)
FLOOR = _peer("floor", "the floor")
PEERS = (NAIVE, POWERTOOLS, POWERTOOLS_ASYNC, DURABLE, FLOOR)


@dataclass(frozen=True)
class Work:
    """What invocations took, one number for each event."""

    wall: Sequence[float]
    cpu: Sequence[float]
    peak_kb: int
    now_kb: int


class WorkFailed(Exception):
    """A function did not do what it was measured for; a figure of it would mean nothing."""


class Worker:
    """A running function, as soon as it is ready.

    Attributes:
        ready_cpu: seconds of CPU until the function's module was imported.
        peak_kb: the most memory that it has had in use after the latest invocation.
    """

    def __init__(self, process: "subprocess.Popen[str]", variant: Variant) -> None:
        self._process = process
        self.variant = variant
        self.ready_cpu: float = self._answer()["ready_cpu"]
        self.peak_kb = 0

    def invoke(self, *events: Event) -> Work:
        """Handle the events, one after the other. Raises WorkFailed if a message is reported as failed."""
        answer = self._ask({"invoke": [started(event) if self.variant.is_durable else event for event in events]})
        if answer.pop("failed"):
            raise WorkFailed(f"{self.variant.name} has reported messages as failed")
        work = Work(**answer)
        self.peak_kb = work.peak_kb
        return work

    def profile(self, *events: Event) -> str:
        """The same under a profiler, as text."""
        return str(self._ask({"profile": events})["profile"])

    def _ask(self, request: Mapping[str, Any]) -> Any:
        if self._process.stdin is None or self._process.stdout is None:
            raise WorkFailed("it has no pipes")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        """The next line that it says."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise WorkFailed(f"{self.variant.name} ended with {self._process.wait()}; its error is above")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkFailed(f"{self.variant.name}: {answer['error']}")
        return answer


def command_of(variant: Variant, *options: str) -> list[str]:
    """The command that runs worker.py with the function."""
    return [*variant.python, str(_SPEED / "worker.py"), *options, variant.module, *map(str, variant.folders)]


def environment_of(variant: Variant, servers: Servers, table: str) -> dict[str, str]:
    """All variables of the process: as on Lambda, with the servers here."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    given = {"AWS_ENDPOINT_URL": servers.aws_url, "AWS_LAMBDA_FUNCTION_NAME": "function-under-test"}
    return {**kept, **CREDENTIALS, **given, **variant.environment(servers, table)}


@contextmanager
def running_worker(variant: Variant, servers: Servers) -> Iterator[Worker]:
    """A process of the function with a table of its own, until the block ends."""
    environment = environment_of(variant, servers, variant.create_table(servers))
    process = subprocess.Popen(
        command_of(variant),
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Worker(process, variant)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()
