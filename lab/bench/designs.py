"""The three designs, each as a shop whose functions run: an order is placed, charged, and known to be paid.

onecharge    orders_api ─► publish_events ─► charge_order ─► publish_events ─► update_order
the others   place_order ─► the worker of lab/usual/, as its documentation writes it

Streams, SNS, SQS and Lambda are played here, with the samples in events/ and the messages that the functions publish.
Neither of the others is safe: lab/survival shows what it loses, and charges twice.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from local.processes import StartupError
from local.samples import logical_id_of, path_of
from tests.support.harness import PROJECT, load_template, number_of

DESIGNS = NAIVE, POWERTOOLS, OURS = "naive", "powertools", "onecharge"
PACKAGES = PROJECT / ".venv/opt/bench/lib/python3.13/site-packages"
_FOLDERS = (PROJECT / "lab/usual", Path(__file__).parent, PACKAGES)
_BARE_PYTHON = (f"{sys.base_prefix}/bin/python3.13", "-I", "-S", "-B")
"""Only the standard library; nothing is compiled for the next time, since a function cannot write to its own folder."""
_PEER_VARIABLES = {"ORDERS_TABLE": "PeerOrders", "PAYMENTS_QUEUE_URL": "PeerQueue", "STRIPE_API_KEY": "sk_test_bench"}


class WorkFailed(StartupError):
    """A function did not do what it was measured for; its figures would mean nothing."""


class Invocation(NamedTuple):
    """What one invocation took and did, as worker.py counts it; its units are named as in prices.py."""

    function: str
    wall_ms: float
    cpu_ms: float
    log: str
    units: list[tuple[str, float]]
    answer: Any = None
    sent: Sequence[str] = ()
    peak_mb: float = 0


class Function:
    """A running function. It is ready as soon as it answers, and ends with this process at the latest."""

    def __init__(self, name: str, handler: str, folders: Sequence[Path], environment: Mapping[str, str]) -> None:
        self.name = name
        command = [*_BARE_PYTHON, str(Path(__file__).with_name("worker.py")), handler, *map(str, folders)]
        pipe = subprocess.PIPE
        self.process: Any = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)

    def invoke(self, event: Mapping[str, Any], aws_seconds: float = 0) -> Invocation:
        """Handle the event. Raises WorkFailed."""
        self.process.stdin.write(json.dumps({"event": event, "aws_seconds": aws_seconds}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        took: dict[str, Any] = json.loads(line) if line else {"error": "it has ended; its error is above"}
        if "error" in took:
            raise WorkFailed(f"{self.name}: {took['error']}")
        return Invocation(self.name, **took)


Records = list[dict[str, Any]]


def _sample(function: str, name: str) -> Any:
    return json.loads(path_of(function, name).read_text())


def _delivered(bodies: Sequence[str]) -> Records:
    [sample] = _sample("charge_order", "order_placed")["Records"]
    return [{**sample, "messageId": (name := str(uuid4())), "receiptHandle": name, "body": body} for body in bodies]


class Design:
    """A design that is not ours, and its running functions."""

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        self.name, self.environment, self.charging = name, environment, name
        """The function that charges."""
        self.aws_seconds = 0.0  # What a request to AWS takes from now on.
        self.taken: list[Invocation] = []  # The invocations of the latest orders.
        self._functions: dict[str, Function] = {}

    def start(self, function: str) -> Function:
        """A new process of the function."""
        table = "PeerOrders" if self.name == NAIVE else "PeerIdempotency"
        environment = {**self.environment, **_PEER_VARIABLES, "TABLE": table}
        return Function(function, f"{function}.handler", _FOLDERS, environment)

    def place(self, orders: int) -> Records:
        """Place orders; returns their messages on the payments queue."""
        return _delivered([body for _ in range(orders) for body in self._post("place_order").sent])

    def whole_way(self, orders: int) -> Records:
        """Place orders, charge them in one batch, mark them as paid; returns their messages."""
        self.taken = []
        self.deliver(self.charging, records := self.place(orders))
        return records

    def deliver(self, function: str, records: Records) -> Invocation:
        """Deliver the messages in one batch. Raises WorkFailed if one is reported as failed."""
        took = self._invoke(function, {"Records": records})
        took.units.append(("sqs", 2))  # Lambda receives the batch, and deletes it.
        if took.answer["batchItemFailures"]:
            raise WorkFailed(f"{self.name}: {function} has reported messages as failed\n{took.log}")
        return took

    def _invoke(self, function: str, event: Mapping[str, Any]) -> Invocation:
        running = self._functions.get(function) or self._functions.setdefault(function, self.start(function))
        self.taken.append(running.invoke(event, self.aws_seconds))
        return self.taken[-1]

    def _post(self, function: str) -> Invocation:
        """Send POST /orders."""
        event = _sample("orders_api", "place_order")
        event["headers"]["idempotency-key"] = str(uuid4())
        took = self._invoke(function, event)
        if took.answer["statusCode"] != 202:
            raise WorkFailed(f"{self.name}: {took.answer}")
        return took


class Onecharge(Design):
    """As `sam build` has made it, with nothing else on the path of its functions."""

    def __init__(self, environment: Mapping[str, str], built: Path, dynamodb: Any) -> None:
        super().__init__(OURS, environment)
        self.charging = "charge_order"
        self._built, self._dynamodb = built, dynamodb

    def start(self, function: str) -> Function:
        folders = [self._built / logical_id_of(function), *sorted(self._built.glob("*/python"))]
        given = load_template()["Resources"][logical_id_of(function)]["Properties"]["Environment"]["Variables"]
        # The name of a resource is its logical id here.
        variables = {name: number_of(name) or str(value).removeprefix("Ref ") for name, value in given.items()}
        environment = {**variables, "POWERTOOLS_METRICS_NAMESPACE": "bench", "SHOP": "bench", **self.environment}
        return Function(function, f"{function}.app.handler", folders, environment)

    def place(self, orders: int) -> Records:
        placed = [json.loads(self._post("orders_api").answer["body"])["order_id"] for _ in range(orders)]
        return self._published("OrdersTable", placed)

    def whole_way(self, orders: int) -> Records:
        records = super().whole_way(orders)
        order_ids = [json.loads(each["body"])["data"]["order_id"] for each in records]
        self.deliver("update_order", self._published("PaymentsTable", order_ids))
        return records

    def _published(self, table: str, order_ids: Sequence[str]) -> Records:
        """The messages that publish_events makes of the table's stream, with each item as it is now."""
        [sample] = _sample("publish_events", "order_stored")["Records"]
        sample["eventSourceARN"] = f"arn:aws:dynamodb:us-east-1:123456789012:table/{table}/stream/1"
        records = []
        for order_id in order_ids:
            key = {"order_id": {"S": order_id}}
            item = self._dynamodb.get_item(TableName=table, Key=key)["Item"]
            records.append({**sample, "dynamodb": {**sample["dynamodb"], "Keys": key, "NewImage": item}})
        return _delivered(self._invoke("publish_events", {"Records": records}).sent)
