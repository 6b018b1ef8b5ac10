"""Several calls at once, as scheduled jobs make them."""

import threading

import pytest

from onecharge.runtime.parallel import Parallel, Threads, one_after_another


@pytest.mark.parametrize("parallel", [one_after_another, Threads(4)], ids=["one", "threads"])
def test_results_are_in_the_order_of_the_items(parallel: Parallel) -> None:
    """Whichever ends first; of nothing there are none."""
    assert parallel(lambda number: -number, range(20)) == [-number for number in range(20)]
    assert parallel(str, []) == []


def test_calls_run_at_once() -> None:
    """Each of four waits for the three others."""
    together = threading.Barrier(4, timeout=60)
    assert sorted(Threads(4)(lambda _: together.wait(), range(4))) == [0, 1, 2, 3]


def test_an_error_is_raised_when_all_calls_have_ended() -> None:
    """None goes on in an environment that is frozen; the error is that of the first item that has one."""
    ended = []
    first_fails = threading.Event()

    def call(number: int) -> None:
        if number == 1:
            first_fails.set()
            raise ValueError(number)
        first_fails.wait(60)
        ended.append(number)
        if number == 3:
            raise KeyError(number)

    with pytest.raises(ValueError, match="1"):
        Threads(4)(call, range(4))
    assert sorted(ended) == [0, 2, 3]
