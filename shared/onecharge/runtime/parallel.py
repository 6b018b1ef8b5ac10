"""Runs the work of scheduled jobs in parallel: most of it is waiting for AWS and Stripe."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Protocol


class Parallel(Protocol):
    """Calls the function with each item, and returns the results in the order of the items.

    All calls have ended when it returns or raises: a Lambda environment that is frozen within a request would continue
    it minutes later. If calls raise, the error of the first of those items is raised.
    """

    def __call__[Item, Result](self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]: ...


def one_after_another[Item, Result](call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """A Parallel that is sequential, for tests and simulations, which decide the order. It ends at the first error."""
    return [call(item) for item in items]


class Threads:
    """A Parallel with `number` threads. Clients of boto3 and Stripe may be shared between them."""

    def __init__(self, number: int) -> None:
        self._pool = ThreadPoolExecutor(number)

    def __call__[Item, Result](self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        futures = [self._pool.submit(call, item) for item in items]
        wait(futures)
        return [future.result() for future in futures]
