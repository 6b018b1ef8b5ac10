"""What scheduled jobs are made of: checkpoints, and several calls at once."""

import threading
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from onecharge.runtime.checkpoints import Checkpoint, CheckpointStore, ConcurrentRun
from onecharge.runtime.parallel import Threads
from tests.shop.dynamodb import MemoryDynamoDB
from tests.support.harness import create_table, load_template


@dataclass(frozen=True, kw_only=True)
class CountCheckpoint(Checkpoint):
    job: ClassVar[str] = "count"
    at: int
    cursor: dict[str, Any] | None = None


@pytest.fixture
def store() -> CheckpointStore[CountCheckpoint]:
    """In the table of both services, which have one schema."""
    resources = load_template()["Resources"]
    assert resources["PaymentsStateTable"] == resources["OrdersStateTable"]
    client: Any = MemoryDynamoDB()
    return CheckpointStore(client, create_table(client, "state", "OrdersStateTable"), CountCheckpoint)


def test_a_run_overwrites_only_the_checkpoint_that_it_has_read(store: CheckpointStore[CountCheckpoint]) -> None:
    """Each write has the next version, cursors included; a run that has read nothing does not overwrite either."""
    assert store.read() is None
    first = store.write(CountCheckpoint(at=1, cursor={"order_id": "ord_1"}))
    second = store.write(replace(first, at=3))
    for stale in (CountCheckpoint(at=2), replace(first, at=4)):
        with pytest.raises(ConcurrentRun):
            store.write(stale)
    assert store.read() == second == CountCheckpoint(at=3, cursor={"order_id": "ord_1"}, version=2)


def test_an_error_is_raised_when_all_calls_have_ended() -> None:
    """They run at once, and none goes on in an environment that is frozen; the first item's error is raised. Results
    are in the order of the items."""
    ended, together = list[int](), threading.Barrier(4, timeout=60)

    def call(number: int) -> None:
        together.wait()
        if number in (1, 3):
            raise ValueError(number)
        ended.append(number)

    with pytest.raises(ValueError, match="1"):
        Threads(4)(call, range(4))
    assert sorted(ended) == [0, 2]
    assert Threads(4)(lambda number: -number, range(20)) == [-number for number in range(20)]
