"""Several calls at once, as scheduled jobs make them."""

import threading

import pytest

from onecharge.runtime.parallel import Parallel, Threads, one_after_another


@pytest.mark.parametrize("parallel", [one_after_another, Threads(4)], ids=["one", "threads"])
def test_results_are_in_the_order_of_the_items(parallel: Parallel) -> None:
    """Whichever ends first; of nothing there are none."""
    assert parallel(lambda number: -number, range(20)) == [-number for number in range(20)]
    assert parallel(str, []) == []


def test_an_error_is_raised_when_all_calls_have_ended() -> None:
    """They run at once, and none goes on in an environment that is frozen; the first item's error is raised."""
    ended, together = list[int](), threading.Barrier(4, timeout=60)

    def call(number: int) -> None:
        together.wait()
        if number in (1, 3):
            raise ValueError(number)
        ended.append(number)

    with pytest.raises(ValueError, match="1"):
        Threads(4)(call, range(4))
    assert sorted(ended) == [0, 2]
