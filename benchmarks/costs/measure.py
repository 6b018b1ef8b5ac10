"""python -m benchmarks.costs.measure: what one order needs of each function, written to measured.json.

Orders go the whole way through the deployed handlers, each function in a process of its own: an API request, the
streams' records, the queues' messages. CPU is the process's own time on this machine; capacity units are DynamoDB
Local's; log bytes are what the handlers print. The bill adds Lambda's own lines and API Gateway's (bill.py).
"""

import io
import json
import multiprocessing
import platform
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import batched
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.costs.aws import NAIVE_QUEUE, NAIVE_TABLE, STRIPE_SECONDS, Aws, running_aws
from benchmarks.costs.quantities import MEASURED, Measured, PerInvocation
from local.samples import logical_id_of, path_of
from testing.harness import LambdaContext

BATCH_SIZES = (1, 10)
OURS = ("orders_api", "publish_events", "charge_order", "update_order")
NAIVE = ("place_order", "charge_orders")
_WARM_UP, _ROUNDS = 20, 10
"""Orders that come first and are not counted; batches of each size that are."""
_CARD = "pm_card_visa"


class Function:
    """A function's handler in a process of its own."""

    def __init__(self, name: str, handler: str, environment: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(handler, dict(environment), theirs), daemon=True)
        self._process.start()
        self.records: list[tuple[int, float, float, int]] = []

    def invoke(self, event: Mapping[str, Any], size: int) -> Any:
        """Invoke it with a batch of so many records; what it took is kept, by size."""
        self._ours.send(event)
        answer, cpu, wall, log_bytes = self._ours.recv()
        if isinstance(answer, str):
            raise SystemExit(f"{self.name}: {answer}")
        self.records.append((size, cpu, wall, log_bytes))
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.join()

    @property
    def sizes(self) -> list[int]:
        return sorted({record[0] for record in self.records})

    def median(self, size: int) -> PerInvocation:
        of_size = [record for record in self.records if record[0] == size]
        return PerInvocation(
            cpu_ms=round(statistics.median(record[1] for record in of_size) * 1000, 2),
            wall_ms=round(statistics.median(record[2] for record in of_size) * 1000, 1),
            log_bytes=round(statistics.median(record[3] for record in of_size)),
        )


def _serve(path: str, environment: dict[str, str], parent: Connection) -> None:
    import os

    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = ["functions", "shared"]
    sys.stdout = log = io.StringIO()
    module, _, name = path.rpartition(".")
    handler = getattr(import_module(module), name)
    while True:
        event = parent.recv()
        log.seek(0)
        log.truncate()
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            answer = handler(event, LambdaContext())
        except Exception as error:
            answer = repr(error)
        parent.send(
            (answer, time.process_time() - cpu, time.perf_counter() - wall, len(log.getvalue().encode())),
        )


@contextmanager
def _functions(aws: Aws) -> Iterator[dict[str, Function]]:
    started: dict[str, Function] = {}
    try:
        for name in OURS:
            started[name] = Function(name, f"{name}.app.handler", aws.environment(logical_id_of(name)))
        charging = aws.environment(logical_id_of("charge_order"))
        for name in NAIVE:
            naive = {"ORDERS_TABLE": aws.name_of(NAIVE_TABLE), "PAYMENTS_QUEUE_URL": aws.name_of(NAIVE_QUEUE)}
            started[name] = Function(name, f"benchmarks.costs.naive.{name}", charging | naive)
        yield started
    finally:
        for each in started.values():
            each.end()


class Way:
    """An order's way through the functions."""

    def __init__(self, aws: Aws, functions: Mapping[str, Function]) -> None:
        self.aws, self.functions = aws, functions
        self.sqs = aws.emulator.client("sqs")
        self.placed = 0
        sns = aws.emulator.client("sns")
        for topic, queue in (("OrderEventsTopic", "PaymentsQueue"), ("PaymentEventsTopic", "OrderUpdatesQueue")):
            attributes = {"AttributeNames": ["QueueArn"], "QueueUrl": aws.name_of(queue)}
            arn = self.sqs.get_queue_attributes(**attributes)["Attributes"]["QueueArn"]
            sns.subscribe(
                TopicArn=aws.name_of(topic), Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"}
            )

    def go(self, size: int) -> None:
        """So many orders, in batches of this size from the stream on."""
        order_ids = [self.place() for _ in range(size)]
        self.publish("OrdersTable", order_ids)
        self.receive("PaymentsQueue", "charge_order", size)
        self.publish("PaymentsTable", order_ids)
        self.receive("OrderUpdatesQueue", "update_order", size)

    def go_naively(self, size: int) -> None:
        """So many orders through the naive loop."""
        for _ in range(size):
            self.place("place_order")
        self.receive(NAIVE_QUEUE, "charge_orders", size)

    def place(self, function: str = "orders_api") -> str:
        self.placed += 1
        event = json.loads(path_of("orders_api", "place_order").read_text())
        event["headers"]["idempotency-key"] = f"key-{self.placed}"
        answer = self.functions[function].invoke(event, 1)
        assert answer["statusCode"] == 202, answer
        return str(json.loads(answer["body"])["order_id"])

    def publish(self, table: str, order_ids: Sequence[str]) -> None:
        """What the table's stream would carry: each item as it is now."""
        [sample] = json.loads(path_of("publish_events", "order_stored").read_text())["Records"]
        records = []
        for order_id in order_ids:
            key = {"order_id": {"S": order_id}}
            item = self.aws.dynamodb.get_item(TableName=self.aws.name_of(table), Key=key)["Item"]
            change = {**sample["dynamodb"], "Keys": key, "NewImage": item}
            arn = f"arn:aws:dynamodb:us-east-1:123456789012:table/{self.aws.name_of(table)}/stream/x"
            records.append({**sample, "eventSourceARN": arn, "dynamodb": change})
        self.functions["publish_events"].invoke({"Records": records}, len(records))

    def receive(self, queue: str, function: str, size: int) -> None:
        url, messages = self.aws.name_of(queue), list[dict[str, Any]]()
        deadline = time.monotonic() + 30
        while len(messages) < size and time.monotonic() < deadline:
            received = self.sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=size - len(messages), WaitTimeSeconds=1, MessageAttributeNames=["All"]
            )
            messages += received.get("Messages", [])
        assert len(messages) == size, f"{len(messages)} messages of {size} in {queue}"
        [sample] = json.loads(path_of("charge_order", "order_placed").read_text())["Records"]
        records = [
            {**sample, "messageId": str(number), "body": message["Body"], "receiptHandle": message["ReceiptHandle"]}
            for number, message in enumerate(messages)
        ]
        answer = self.functions[function].invoke({"Records": records}, size)
        assert answer == {"batchItemFailures": []}, answer
        for message in messages:
            self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def measure(work_dir: Path) -> Measured:
    """Take each measurement anew; about a minute."""
    with running_aws(work_dir) as aws, _functions(aws) as functions:
        way = Way(aws, functions)
        for batch in batched(range(_WARM_UP), BATCH_SIZES[-1], strict=True):
            way.go(len(batch))
            way.go_naively(len(batch))
        for function in functions.values():
            function.records.clear()
        ours, naive = (_consumed(aws, go) for go in (way.go, way.go_naively))
        return Measured(
            machine=f"{platform.machine()}, Python {platform.python_version()}",
            stripe_seconds=STRIPE_SECONDS,
            functions={
                name: {str(size): function.median(size) for size in function.sizes}
                for name, function in functions.items()
            },
            units=ours,
            naive_units=naive,
        )


def _consumed(aws: Aws, go: Callable[[int], None]) -> dict[str, dict[str, float]]:
    """What DynamoDB says that one order consumed, by the size of its batch."""
    consumed = {size: Counter[str]() for size in BATCH_SIZES}
    aws.counter.take()
    for _ in range(_ROUNDS):
        for size in BATCH_SIZES:
            go(size)
            consumed[size].update(aws.counter.take())
    return {
        str(size): {name: round(units / (_ROUNDS * size), 3) for name, units in sorted(of_size.items())}
        for size, of_size in consumed.items()
    }


def main() -> int:
    """Measure, and write measured.json."""
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(Path(folder))
    MEASURED.write_text(measured.as_json())
    sys.stdout.write(measured.as_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
