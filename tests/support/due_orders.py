"""Runs of place_due_orders over tables in memory, with faults, crashes and second runs at every boundary."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from onecharge.contract.events import Event
from onecharge.runtime.dynamodb import from_item, to_item
from onecharge.runtime.parallel import one_after_another
from place_due_orders.documents import DueDocumentStore
from place_due_orders.due import DueRun
from publish_events.mapping import order_event_from_item
from tests.shop.dynamodb import ConditionalCheckFailed, Item, MemoryDynamoDB, NoFaults
from tests.support.harness import Log

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TODAY = "2026-11-21"
RUN_ID = "8f1e64a2-5d0f-4b83-9a56-2f8e3b17d940"


def event_from_record(record: Mapping[str, Any]) -> Event | None:
    """What is published of a record of the Orders table."""
    return order_event_from_item(record["dynamodb"]["NewImage"])


class Crash(BaseException):
    """The invocation ends at once, as when Lambda kills it: nothing in it handles this."""


class World(NoFaults):
    """Between the runs and DynamoDB: the records of the Orders table's stream, and a fault at each boundary."""

    def __init__(self) -> None:
        super().__init__()
        self.stream: list[dict[str, Any]] = []
        self.boundaries = 0
        self.at: Callable[[int, str], None] = lambda number, where: None
        self.faults: Callable[[str, Sequence[str]], str | None] = lambda where, kinds: None

    def pause(self, where: str) -> None:
        self.boundaries += 1
        self.at(self.boundaries, where)

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        return self.faults(where, kinds)

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        if table == "Orders" and new is not None:
            name = "MODIFY" if old else "INSERT"
            arn = f"arn:aws:dynamodb:us-east-1:123456789012:table/{table}/stream/2026"
            self.stream.append({"eventName": name, "eventSourceARN": arn, "dynamodb": {"NewImage": dict(new)}})


@dataclass
class Calendar:
    """The two tables, and runs over them."""

    log: Log
    io: World = field(default_factory=World)
    now: datetime = NOON
    counted: list[str] = field(default_factory=list)
    steps_left: int = 10**6
    page_size: int = 1000

    def __post_init__(self) -> None:
        self.dynamodb: Any = MemoryDynamoDB(
            keys={"DueDocuments": ("due_date", "document_id"), "Orders": ("order_id",)},
            indexes={"DueDocuments": {"due": ("due_date", "state")}},
            io=self.io,
        )

    def enter(self, document_id: str = "inv-1", due_date: str = TODAY, **changes: Any) -> None:
        """Put a document; a change to None leaves the field out."""
        document = {
            "customer_id": "cus_1",
            "amount_minor": 1099,
            "currency": "eur",
            "payment_method": "pm_card_visa",
            "state": "DUE",
            **changes,
        }
        item = to_item({"due_date": due_date, "document_id": document_id, **document})
        self.dynamodb.tables.setdefault("DueDocuments", {})[due_date, document_id] = item

    def owner_sets(self, document_id: str, **changes: Any) -> bool:
        """The owner's own write, on the condition that the document is still DUE; says whether it was."""
        try:
            self.dynamodb.update_item(
                TableName="DueDocuments",
                Key=to_item({"due_date": TODAY, "document_id": document_id}),
                UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in changes),
                ConditionExpression="#state = :due",
                ExpressionAttributeNames={"#state": "state"} | {f"#{name}": name for name in changes},
                ExpressionAttributeValues=to_item({":due": "DUE"} | {f":{name}": v for name, v in changes.items()}),
            )
        except ConditionalCheckFailed:
            return False
        return True

    def run(self) -> None:
        DueRun(
            documents=DueDocumentStore(self.dynamodb, "DueDocuments", "Orders", self.page_size),
            clock=lambda: self.now,
            has_time=self._has_time,
            run_id=RUN_ID,
            logger=self.log.logger,
            count=self.counted.append,
            parallel=one_after_another,
        ).place_orders()

    def _has_time(self) -> bool:
        self.steps_left -= 1
        return self.steps_left >= 0

    def document(self, document_id: str = "inv-1", due_date: str = TODAY) -> dict[str, Any]:
        return from_item(self.dynamodb.tables["DueDocuments"][due_date, document_id])

    def states(self) -> Counter[str]:
        return Counter(item["state"]["S"] for item in self.dynamodb.tables["DueDocuments"].values())

    def ordered(self) -> Counter[str]:
        """How many events each document's orders have published."""
        return Counter(
            from_item(record["dynamodb"]["NewImage"])["document_id"]
            for record in self.io.stream
            if event_from_record(record) is not None
        )
