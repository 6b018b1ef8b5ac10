"""Checkpoints: read as they were written, and never overwritten by a run that did not read the last one."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from onecharge.runtime.checkpoints import Checkpoint, CheckpointStore, ConcurrentRun
from onecharge.runtime.dynamodb import to_item
from tests.shop.dynamodb import MemoryDynamoDB
from tests.support.harness import create_table, load_template


@dataclass(frozen=True, kw_only=True)
class CountCheckpoint(Checkpoint):
    job: ClassVar[str] = "count"
    at: int
    cursor: dict[str, Any] | None = None


class OtherCheckpoint(CountCheckpoint):
    job: ClassVar[str] = "other"


@pytest.fixture
def store() -> CheckpointStore[CountCheckpoint]:
    """In the table of both services, which have one schema."""
    resources = load_template()["Resources"]
    assert resources["PaymentsStateTable"] == resources["OrdersStateTable"]
    client: Any = MemoryDynamoDB()
    return CheckpointStore(client, create_table(client, "state", "OrdersStateTable"), CountCheckpoint)


def test_a_checkpoint_is_read_as_it_was_written(store: CheckpointStore[CountCheckpoint]) -> None:
    """Cursors included; each write has the next version. Each job has its own."""
    checkpoint = CountCheckpoint(at=1, cursor={"order_id": "ord_1", "shard": "3"})
    assert store.read() is None
    written = store.write(checkpoint)
    assert store.read() == written == replace(checkpoint, version=1)
    ended = replace(written, cursor=None)
    assert store.write(ended) == store.read() == replace(ended, version=2)
    assert CheckpointStore(store._client, store._table, OtherCheckpoint).read() is None


def test_a_run_does_not_overwrite_what_another_run_has_written(store: CheckpointStore[CountCheckpoint]) -> None:
    """Before its first read, and after it."""
    first = store.write(CountCheckpoint(at=1))
    store.write(replace(first, at=3))
    for stale in (CountCheckpoint(at=2), replace(first, at=4)):
        with pytest.raises(ConcurrentRun):
            store.write(stale)
    assert store.read() == CountCheckpoint(at=3, version=2)


def test_a_checkpoint_of_another_deployment_is_read(store: CheckpointStore[CountCheckpoint]) -> None:
    """An older one has no version, a newer one has attributes that this one does not know."""
    item = to_item({"name": "count", "at": 7, "added_later": "x"})
    store._client.put_item(TableName=store._table, Item=item)
    stored = store.read()
    assert stored == CountCheckpoint(at=7)
    assert store.write(stored).version == 1
