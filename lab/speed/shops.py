"""Each design as a shop whose functions run: an order is placed, charged, and known to be paid.

onecharge    orders_api ─► publish_events ─► charge_order ─► publish_events ─► update_order
the others   place_order ─► the design's own function

The tables are DynamoDB Local's. The streams, SNS, SQS and Lambda are played here: their records are made of the samples
in events/, and the messages are those that the functions have published.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from lab.speed.functions import DESIGNS, PACKAGES, Function, Servers, WorkFailed, our_variables
from lab.speed.results import ASYNC, DURABLE, NAIVE, OURS, PEERS, POWERTOOLS, Invocation
from local.samples import logical_id_of, path_of

Records = list[dict[str, Any]]
"""Messages as SQS delivers them."""


def _sample(function: str, name: str) -> Any:
    return json.loads(path_of(function, name).read_text())


def _delivered(bodies: Sequence[str]) -> Records:
    """Messages of SQS with these bodies."""
    [sample] = _sample("charge_order", "order_placed")["Records"]
    return [{**sample, "messageId": str(uuid4()), "receiptHandle": str(uuid4()), "body": body} for body in bodies]


def delivered_again(records: Records) -> Records:
    """The same messages, received for the second time."""
    return [
        {**each, "receiptHandle": str(uuid4()), "attributes": {**each["attributes"], "ApproximateReceiveCount": "2"}}
        for each in records
    ]


class MeasuredShop(ABC):
    """The functions of one design. Set `aws_seconds` and `is_metered` for what follows; `taken` is what it took."""

    charging: str
    """The function that charges."""

    def __init__(self, design: str) -> None:
        self.design = design
        self.aws_seconds, self.is_metered = 0.0, False
        self.taken: list[Invocation] = []
        self._functions: dict[str, Function] = {}

    @abstractmethod
    def start(self, function: str, folders: Sequence[Path] | None = None) -> Function:
        """A process of the function, with other folders on its path if they are given."""

    @abstractmethod
    def place(self, orders: int) -> Records:
        """Place orders; returns their messages on the payments queue."""

    def charge(self, records: Records) -> Invocation:
        """Deliver the messages in one batch. Raises WorkFailed if one is reported as failed."""
        return self._consume(self.charging, records)

    def whole_way(self, orders: int) -> Records:
        """Place orders, charge them in one batch, settle them; `taken` has each invocation."""
        self.taken = []
        records = self.place(orders)
        self.charge(records)
        self.settle(records)
        return records

    def settle(self, records: Records) -> None:  # noqa: B027
        """What remains to be done with orders that were charged: nothing, unless the design has more functions."""

    def peak_mb(self) -> float:
        """The most memory that the function that charges has used."""
        return self._functions[self.charging].peak_mb

    def end(self) -> None:
        for function in self._functions.values():
            function.end()

    def event_of(self, records: Records) -> Mapping[str, Any]:
        """What Lambda invokes the function with that charges."""
        return {"Records": records}

    def _consume(self, function: str, records: Records) -> Invocation:
        answer = self._invoke(function, self.event_of(records))
        if (json.loads(answer["Result"]) if "Result" in answer else answer)["batchItemFailures"]:
            log = self._functions[function].log_end
            raise WorkFailed(f"{self.design}: {function} has reported messages as failed\n{log}")
        return self.taken[-1]

    def _invoke(self, function: str, event: Mapping[str, Any]) -> Any:
        running = self._functions.get(function) or self._functions.setdefault(function, self.start(function))
        answer, took = running.invoke(event, aws_seconds=self.aws_seconds, is_metered=self.is_metered)
        self.taken.append(took)
        return answer

    def _post(self, function: str) -> str:
        """Send POST /orders; returns the id of the order."""
        event = _sample("orders_api", "place_order")
        event["headers"]["idempotency-key"] = str(uuid4())
        answer = self._invoke(function, event)
        if answer["statusCode"] != 202:
            raise WorkFailed(f"{self.design}: {answer}")
        return str(json.loads(answer["body"])["order_id"])


class OurShop(MeasuredShop):
    """onecharge as `sam build` has made it, with nothing else on the path of its functions."""

    charging = "charge_order"

    def __init__(self, servers: Servers, built: Path) -> None:
        super().__init__(OURS)
        self._servers, self._built = servers, built

    def start(self, function: str, folders: Sequence[Path] | None = None) -> Function:
        path = [self._built / logical_id_of(function), *sorted(self._built.glob("*/python"))]
        environment = self._servers.environment(our_variables(function))
        return Function(function, f"{function}.app.handler", folders or path, environment)

    def place(self, orders: int) -> Records:
        return _delivered(self._published("OrdersTable", [self._post("orders_api") for _ in range(orders)]))

    def settle(self, records: Records) -> None:
        order_ids = [json.loads(each["body"])["data"]["order_id"] for each in records]
        self._consume("update_order", _delivered(self._published("PaymentsTable", order_ids)))

    def _published(self, table: str, order_ids: Sequence[str]) -> list[str]:
        """The messages that publish_events makes of the table's stream: of each item as it is now."""
        [sample] = _sample("publish_events", "order_stored")["Records"]
        records = []
        for order_id in order_ids:
            key = {"order_id": {"S": order_id}}
            item = self._servers.dynamodb.get_item(TableName=table, Key=key)["Item"]
            change = {**sample["dynamodb"], "Keys": key, "NewImage": item}
            arn = f"arn:aws:dynamodb:us-east-1:123456789012:table/{table}/stream/1"
            records.append({**sample, "eventSourceARN": arn, "dynamodb": change})
        self._invoke("publish_events", {"Records": records})
        sent = self._functions["publish_events"].sent
        if len(sent) != len(order_ids):
            raise WorkFailed(f"{len(sent)} events of {len(order_ids)} items in {table}")
        return sent


_HANDLERS = {
    "place_order": "place_order.handler",
    NAIVE: "naive.handler",
    POWERTOOLS: "powertools.handler",
    ASYNC: "powertools_async.handler",
    DURABLE: "durable.handler",
}


class PeerShop(MeasuredShop):
    """Another design, as pip installs its packages. All of them have the same function that places orders."""

    def __init__(self, servers: Servers, design: str) -> None:
        super().__init__(design)
        self._servers, self.charging = servers, design

    def start(self, function: str, folders: Sequence[Path] | None = None) -> Function:
        variables = {
            "ORDERS_TABLE": "PeerOrders",
            "TABLE": "PeerOrders" if self.design == NAIVE else "PeerIdempotency",
            "PAYMENTS_QUEUE_URL": "PeerQueue",
            "STRIPE_API_KEY": "sk_test_bench",
        }
        path = folders or (*DESIGNS, PACKAGES)
        return Function(function, _HANDLERS[function], path, self._servers.environment(variables))

    def place(self, orders: int) -> Records:
        bodies: list[str] = []
        for _ in range(orders):
            self._post("place_order")
            bodies += self._functions["place_order"].sent
        return _delivered(bodies)

    def event_of(self, records: Records) -> Mapping[str, Any]:
        event = {"Records": records}
        return _execution(event) if self.design == DURABLE else event


def _execution(event: Mapping[str, Any]) -> dict[str, Any]:
    """What Lambda invokes a durable function with: a new execution, whose input is the event."""
    name = str(uuid4())
    execution = {
        "Id": name,
        "Type": "EXECUTION",
        "Status": "STARTED",
        "StartTimestamp": int(time.time() * 1000),
        "ExecutionDetails": {"InputPayload": json.dumps(event)},
    }
    return {
        "DurableExecutionArn": f"arn:aws:lambda:us-east-1:123456789012:function:durable/durable-execution/{name}",
        "CheckpointToken": "1",
        "InitialExecutionState": {"Operations": [execution], "NextMarker": ""},
    }


@contextmanager
def running_shops(servers: Servers, built: Path) -> Iterator[list[MeasuredShop]]:
    """Every design, until the block ends."""
    with ExitStack() as stack:
        shops = [*(PeerShop(servers, design) for design in PEERS), OurShop(servers, built)]
        for shop in shops:
            stack.callback(shop.end)
        yield shops
