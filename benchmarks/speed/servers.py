"""The servers that the measured functions speak to, each in a process of its own: DynamoDB Local, AWS, Stripe."""

import json
import os
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.processes import StartupError, running, tail
from local.stripe_standin.admin import StandInAdmin
from testing.dynamodb_local import dynamodb_client, running_dynamodb_local
from testing.harness import PROJECT

STRIPE_KEY = "sk_test_bench"
_START_SECONDS = 60


@dataclass(frozen=True)
class Meter:
    """What a function has asked for since the last reset."""

    dynamodb: int
    """Requests to DynamoDB."""
    stripe: int
    """Requests to Stripe."""
    other: int
    """Requests to other services of AWS's."""
    write_units: float
    read_units: float
    first_write: float | None
    """When the first write to DynamoDB was answered, by time.monotonic(), which all processes share."""


@dataclass(frozen=True)
class Servers:
    """Where they are, and how slow they are for now."""

    aws_url: str
    stripe_url: str
    dynamodb: Any
    """boto3's client of DynamoDB Local itself."""
    stripe: StandInAdmin

    def set(self, *, stripe_seconds: float = 0, dynamodb_seconds: float = 0, metering: bool = False) -> None:
        """Set the latencies, delete what Stripe has, and count anew."""
        self.stripe.reset()
        self.stripe.settings(latency_seconds=stripe_seconds)
        self._control({"seconds": dynamodb_seconds, "metering": metering})

    def meter(self) -> Meter:
        """What was asked for since `set`."""
        counted = self._control(None)
        names: Mapping[str, int] = counted["requests"]
        dynamodb = sum(count for name, count in names.items() if "." not in name)
        return Meter(
            dynamodb=dynamodb,
            stripe=self.stripe.ledger().counts.get("requests", 0),
            other=sum(names.values()) - dynamodb,
            write_units=counted["units"]["write"],
            read_units=counted["units"]["read"],
            first_write=counted["first_write"],
        )

    def _control(self, settings: Mapping[str, Any] | None) -> Any:
        body = None if settings is None else json.dumps(settings).encode()
        with urllib.request.urlopen(f"{self.aws_url}/_bench", body, timeout=30) as response:  # noqa: S310  # Ours.
            return json.load(response)


@contextmanager
def running_servers(work_dir: Path) -> Iterator[Servers]:
    """All of them, until the block ends. Raises StartupError."""
    with running_dynamodb_local(work_dir) as url:
        aws = [sys.executable, "-m", "benchmarks.speed.aws_server", url]
        standin = [sys.executable, "-m", "local.stripe_standin"]
        with _announced(aws, work_dir / "aws.log") as at_aws, _announced(standin, work_dir / "stripe.log") as at_stripe:
            stripe_url = at_stripe["stripe_api_base"]
            yield Servers(at_aws["url"], stripe_url, dynamodb_client(url), StandInAdmin(stripe_url))


@contextmanager
def _announced(command: Sequence[str], log: Path) -> Iterator[Mapping[str, str]]:
    """A server that prints its address as the first line of its output."""
    with running(command, env={**os.environ, "PYTHONPATH": "functions:shared:."}, log=log, cwd=PROJECT):
        deadline = time.monotonic() + _START_SECONDS
        while not (said := log.read_text()).endswith("\n"):
            if time.monotonic() > deadline:
                raise StartupError(f"{tail(log)}\n{' '.join(command)} did not start")
            time.sleep(0.05)
        yield json.loads(said.splitlines()[0])
