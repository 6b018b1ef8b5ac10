"""A plugin of pytest that keeps each kind of request that the tests send to the DynamoDB in memory, with its answer.

`pytest -p tests.support.recorded_requests …` writes them to the file that RECORDED_REQUESTS names; they are replayed by
tests/contract/test_replay.py.
"""

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from tests.shop.dynamodb import Item, MemoryDynamoDB

VARIABLE = "RECORDED_REQUESTS"
METHODS = ("get_item", "batch_get_item", "query", "put_item", "update_item", "delete_item", "transact_write_items")
_TYPES, _STATES = ("S", "N", "BOOL", "NULL", "L", "M"), ("state", "status")
_FAULTS = ("ProvisionedThroughputExceededException", "TransactionConflict", "'UnprocessedKeys': {'")

type Rows = dict[str, list[Item]]


@dataclass(frozen=True)
class Exchange:
    """One request, the items that it is about before and after it, and its answer."""

    method: str
    given: dict[str, Any]
    tables: dict[str, dict[str, Any]]
    """The request that made each of its tables."""
    before: Rows
    answer: Any
    after: Rows


def seen_of(error: ClientError) -> Any:
    """What of an error is compared: not its words."""
    reasons = [(each["Code"], each.get("Item")) for each in error.response.get("CancellationReasons", ())]
    return error.response["Error"]["Code"], error.response.get("Item"), reasons


def keys_in(given: dict[str, Any]) -> list[tuple[str, Item | None]]:
    """The table and the key of each item that a request is about; no key if it is about all of the table."""
    if "RequestItems" in given:
        return [(table, key) for table, asked in given["RequestItems"].items() for key in asked["Keys"]]
    actions = [action for each in given.get("TransactItems", ()) for action in each.values()] or [given]
    return [(each["TableName"], each.get("Key") or each.get("Item")) for each in actions]


def _kind(value: Any) -> Any:
    """A request without its values."""
    if isinstance(value, list):
        return sorted({repr(_kind(each)) for each in value})
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and next(iter(value)) in _TYPES:
        return next(iter(value))
    return {name: _kind(each) for name, each in value.items()}


def _rows(memory: MemoryDynamoDB, keys: list[tuple[str, Item | None]]) -> Rows:
    rows: Rows = {table: [] for table, _ in keys}
    for table, key in keys:
        held = memory.tables.get(table, {})
        rows[table] += [item for place, item in held.items() if key is None or place == memory._key(table, key)]
    return rows


_exchanges: dict[str, Exchange] = {}
_begun = [0]
"""How many requests have begun."""


def _recorded(send: Any) -> Any:
    """The method of MemoryDynamoDB, which keeps what it is asked."""

    def recorded(memory: MemoryDynamoDB, **given: Any) -> Any:
        keys, begun, error = keys_in(given), _begun[0], None
        before = _rows(memory, keys)
        try:
            answer = send(memory, **given)
        except ClientError as refused:
            answer, error = seen_of(refused), refused
        after = _rows(memory, keys)
        # Neither interrupted by another request nor sent again, and not a fault that the test asked for.
        is_plain = _begun[0] <= begun + 1 and not any(each in str(answer) for each in _FAULTS)
        if is_plain and before.keys() <= memory.made.keys():
            made = {name: memory.made[name] for name in before}
            exchange = Exchange(send.__name__, given, made, before, answer, after)
            _exchanges.setdefault(_kind_of(exchange), exchange)
        if error:
            raise error
        return answer

    return recorded


def _kind_of(exchange: Exchange) -> str:
    """What makes a request another one: its expressions, its answer, and which attributes it finds where it looks."""
    asked = repr({name: _kind(each) for name, each in exchange.given.items() if name not in ("Key", "Item")})
    found = {
        tuple((name, str(item[name]) if name in _STATES else "") for name in sorted(item) if name in asked)
        for rows in exchange.before.values()
        for item in rows
    }
    kind = repr((exchange.method, asked, list(exchange.answer)[:1], sorted(found)))
    for table in exchange.tables:
        kind = kind.replace(table, "table")
    return kind


def pytest_configure() -> None:
    """Stand in for MemoryDynamoDB's methods."""
    before = MemoryDynamoDB._before

    def counted(*given: Any) -> Any:
        _begun[0] += 1
        return before(*given)

    MemoryDynamoDB._before = counted  # type: ignore[method-assign, assignment]
    for method in METHODS:
        setattr(MemoryDynamoDB, method, _recorded(getattr(MemoryDynamoDB, method)))


def pytest_sessionfinish() -> None:
    """Write what was kept."""
    Path(os.environ[VARIABLE]).write_bytes(pickle.dumps(list(_exchanges.values())))
