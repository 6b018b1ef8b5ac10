"""Checkpoints: read as they were written, and never overwritten by a run that did not read the last one."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import boto3
import pytest

from onecharge.runtime.checkpoints import Checkpoint, CheckpointStore, ConcurrentRun
from onecharge.runtime.dynamodb import to_item
from tests.support.harness import create_table, load_template


@dataclass(frozen=True, kw_only=True)
class CountCheckpoint(Checkpoint):
    job: ClassVar[str] = "count"
    at: int
    cursor: dict[str, Any] | None = None


class OtherCheckpoint(CountCheckpoint):
    job: ClassVar[str] = "other"


@pytest.fixture
def client(aws: None) -> Any:
    client = boto3.client("dynamodb")
    create_table(client, "checkpoints", "OrdersStateTable")
    return client


@pytest.fixture
def store(client: Any) -> CheckpointStore[CountCheckpoint]:
    return CheckpointStore(client, "checkpoints", CountCheckpoint)


@pytest.mark.parametrize(
    "checkpoint",
    [
        CountCheckpoint(at=0),
        CountCheckpoint(at=1, cursor={"order_id": "ord_1", "shard": "3"}),
    ],
)
def test_a_checkpoint_is_read_as_it_was_written(
    store: CheckpointStore[CountCheckpoint], checkpoint: CountCheckpoint
) -> None:
    """Cursors included; each write has the next version."""
    assert store.read() is None
    written = store.write(checkpoint)
    assert store.read() == written == replace(checkpoint, version=1)
    assert store.write(written) == store.read() == replace(checkpoint, version=2)


def test_a_run_does_not_overwrite_what_another_run_has_written(store: CheckpointStore[CountCheckpoint]) -> None:
    """Before its first read, and after it."""
    first = store.write(CountCheckpoint(at=1))
    with pytest.raises(ConcurrentRun):
        store.write(CountCheckpoint(at=2))
    store.write(replace(first, at=3))
    with pytest.raises(ConcurrentRun):
        store.write(replace(first, at=4))
    assert store.read() == CountCheckpoint(at=3, version=2)


def test_a_checkpoint_of_another_deployment_is_read(client: Any, store: CheckpointStore[CountCheckpoint]) -> None:
    """An older one has no version, a newer one has attributes that this one does not know."""
    client.put_item(TableName="checkpoints", Item=to_item({"name": "count", "at": 7, "added_later": "x"}))
    stored = store.read()
    assert stored == CountCheckpoint(at=7)
    assert store.write(stored).version == 1


def test_each_job_has_a_checkpoint_of_its_own(client: Any, store: CheckpointStore[CountCheckpoint]) -> None:
    """Also in one table."""
    store.write(CountCheckpoint(at=1))
    assert CheckpointStore(client, "checkpoints", OtherCheckpoint).read() is None


def test_the_tables_of_both_services_have_one_schema() -> None:
    """The store's."""
    resources = load_template()["Resources"]
    assert resources["PaymentsStateTable"] == resources["OrdersStateTable"]
