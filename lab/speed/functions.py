"""The functions that are measured, each in a process of its own (worker.py), and the servers that they call."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.speed.results import Invocation
from local.emulator import CREDENTIALS
from local.samples import logical_id_of
from stripe_standin.admin import StandInAdmin
from stripe_standin.server import running_standin
from tests.support.dynamodb_local import dynamodb_client, running_dynamodb_local
from tests.support.harness import PROJECT, create_table, load_template, number_of

STRIPE_SECONDS, AWS_SECONDS = 0.300, 0.004
"""How long a request takes at least, where time is measured."""
DESIGNS = (PROJECT / "local/usual", PROJECT / "lab/speed/variants")
"""The folders of the other designs."""
PACKAGES = PROJECT / ".venv/opt/bench/lib/python3.13/site-packages"
"""What pip has installed for the other designs."""
_BARE_PYTHON = (f"{sys.base_prefix}/bin/python3.13", "-I", "-S", "-B")
"""Python's standard library and nothing else, and nothing is compiled for the next time: as on Lambda, where a function
cannot write to its own folder."""


class WorkFailed(Exception):
    """A function did not do what it was measured for; its figures would mean nothing."""


def compile_all(packages: Path) -> None:
    """Compile the packages, as our build does; pip was told not to. Raises WorkFailed if no .pyc file is there."""
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(packages)]
    done = subprocess.run(command, check=False)
    if done.returncode or not any(packages.rglob("*.pyc")):
        raise WorkFailed(f"{packages} was not compiled: the rows with .pyc would show none")


class Function:
    """A running function. It is ready as soon as it answers."""

    def __init__(self, name: str, handler: str, folders: Sequence[Path], environment: Mapping[str, str]) -> None:
        self.name = name
        command = [*_BARE_PYTHON, str(PROJECT / "lab/speed/worker.py"), handler, *map(str, folders)]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.peak_mb, self.log_end = 0.0, ""
        self.sent: list[str] = []
        """What its latest invocation published or sent."""

    def invoke(
        self, event: Mapping[str, Any], *, aws_seconds: float = 0, is_metered: bool = False
    ) -> tuple[Any, Invocation]:
        """Handle the event; returns the answer, and what it took. Raises WorkFailed."""
        assert self._process.stdin
        assert self._process.stdout
        request = {"event": event, "aws_seconds": aws_seconds, "is_metered": is_metered}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        said: dict[str, Any] = json.loads(line) if line else {"error": "it has ended; its error is above"}
        if "error" in said:
            raise WorkFailed(f"{self.name}: {said['error']}")
        self.sent, self.log_end, self.peak_mb = said.pop("sent"), said.pop("log_end"), said.pop("peak_kb") / 1000
        answer = said.pop("answer")
        return answer, Invocation(function=self.name, **said)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()


@dataclass(frozen=True)
class Servers:
    """DynamoDB Local, with every table, and the stand-in for Stripe."""

    dynamodb_url: str
    dynamodb: Any
    stripe_url: str
    stripe: StandInAdmin

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """All variables of a process: as on Lambda, with the servers here, and no other AWS."""
        here = {"AWS_ENDPOINT_URL_DYNAMODB": self.dynamodb_url, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
        return {"PATH": os.environ["PATH"], **CREDENTIALS, **here, **variables, "STRIPE_API_BASE": self.stripe_url}

    def reset_stripe(self, *, seconds: float) -> None:
        """Delete what Stripe has, and set how long it takes to answer."""
        self.stripe.reset()
        self.stripe.settings(latency_seconds=seconds)

    def charged(self) -> list[str]:
        """The id of the order of each charge since the last reset."""
        return sorted(str(charge.order_id) for charge in self.stripe.ledger().charges)


@contextmanager
def running_servers(work_dir: Path) -> Iterator[Servers]:
    """Both, until the block ends. Raises StartupError."""
    with running_dynamodb_local(work_dir) as url, running_standin() as standin:
        dynamodb = dynamodb_client(url)
        for name, resource in load_template()["Resources"].items():
            if resource["Type"] == "AWS::DynamoDB::Table":
                create_table(dynamodb, name, name)
        # Powertools' own key is `id` ("Idempotency", "Required resources").
        for name, key in (("PeerOrders", "order_id"), ("PeerIdempotency", "id")):
            dynamodb.create_table(
                TableName=name,
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
                KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
                BillingMode="PAY_PER_REQUEST",
            )
        yield Servers(url, dynamodb, standin.base_url, StandInAdmin(standin.base_url))


def our_variables(function: str) -> dict[str, str]:
    """What template.yaml gives the function. Here the name of a resource is its logical id."""
    template = load_template()["Resources"][logical_id_of(function)]["Properties"]["Environment"]["Variables"]
    variables = {name: number_of(name) or str(value).removeprefix("Ref ") for name, value in template.items()}
    return {"POWERTOOLS_METRICS_NAMESPACE": "bench", **variables}
