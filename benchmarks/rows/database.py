"""A client of DynamoDB Local that meters its requests, and tables that are filled with finished rows."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import batched
from threading import Lock
from typing import Any

import boto3
from botocore.config import Config

_ITEMS_MAX = 25
"""Of one BatchWriteItem request, at the most (Amazon DynamoDB API Reference)."""
_WRITERS = 8
_METERED = frozenset(
    {"GetItem", "BatchGetItem", "Query", "Scan", "PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"}
)
_READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan"})

Item = Mapping[str, Any]


def client_of(url: str) -> Any:
    """A client of it, for several threads."""
    return boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(max_pool_connections=20, retries={"total_max_attempts": 2}),
    )


@dataclass
class Meter:
    """What the requests of one client have consumed, its indexes included (ReturnConsumedCapacity)."""

    requests: int = 0
    read_units: float = 0
    write_units: float = 0

    @classmethod
    def of(cls, client: Any) -> "Meter":
        """Meter this client from now on."""
        meter, lock = cls(), Lock()

        def ask(params: dict[str, Any], model: Any, **_: Any) -> None:
            if model.name in _METERED:
                params["ReturnConsumedCapacity"] = "TOTAL"

        def add(parsed: Mapping[str, Any], model: Any, **_: Any) -> None:
            consumed = parsed.get("ConsumedCapacity", [])
            units = sum(each["CapacityUnits"] for each in (consumed if isinstance(consumed, list) else [consumed]))
            with lock:
                meter.requests += 1
                if model.name in _READS:
                    meter.read_units += units
                else:
                    meter.write_units += units

        client.meta.events.register("provide-client-params.dynamodb.*", ask)
        client.meta.events.register("after-call.dynamodb.*", add)
        return meter


def fill(url: str, table: str, items: Iterable[Item], advance: Callable[[int], None]) -> None:
    """Put the items, several requests at once."""
    client = client_of(url)

    def put(batch: tuple[Item, ...]) -> None:
        wanted: Any = {table: [{"PutRequest": {"Item": item}} for item in batch]}
        while wanted:
            wanted = client.batch_write_item(RequestItems=wanted)["UnprocessedItems"]
        advance(len(batch))

    with ThreadPoolExecutor(_WRITERS) as writers:
        # As many at a time as are written soon: a million items need not be in memory.
        for several in batched(batched(items, _ITEMS_MAX, strict=False), 40, strict=False):
            list(writers.map(put, several))
