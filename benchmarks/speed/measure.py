"""The measurements: whole invocations of each function, in rounds, one function after the other within a round."""

import json
import random
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.speed.deliveries import BATCH, again, fresh
from benchmarks.speed.functions import (
    Variant,
    Worker,
    WorkFailed,
    command_of,
    environment_of,
    running_worker,
)
from benchmarks.speed.servers import Meter, Servers

STRIPE_SECONDS, DYNAMODB_SECONDS = 0.300, 0.004
"""How long a request takes where wall time is measured. Where CPU is, they take no time but their own."""
WARM_UP = 8
"""Batches of each function before the first that counts."""
_CPU_BATCHES = 3
"""Batches of each function in a round, whose median counts."""

OnProgress = Callable[[], None]


@dataclass(frozen=True)
class Spread:
    """The median of some figures, and their quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> "Spread":
        low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
        return cls(median, low, high)


@dataclass(frozen=True)
class Requests:
    """What one batch of ten has asked for: exact, however busy the machine is."""

    dynamodb: int
    stripe: int
    write_units: float
    read_units: float
    other: int = 0
    """To other services of AWS's; of ours, those to DynamoDB that take slots of Stripe's limit."""


@dataclass(frozen=True)
class Figures:
    """What was measured of one function. Times are milliseconds for a batch of ten, one figure for each round."""

    fresh: Requests
    duplicate: Requests
    times: Mapping[str, Sequence[float]]
    """`fresh_cpu`, `duplicate_cpu`, `fresh_wall`, `duplicate_wall`."""


class NotCharged(WorkFailed):
    """A function did not charge each order once; its figures would mean nothing."""


def measure(variants: Sequence[Variant], servers: Servers, rounds: int, on_progress: OnProgress) -> dict[str, Figures]:
    """Measure each function in so many rounds, each in another order. Raises WorkFailed."""
    with ExitStack() as stack:
        workers = [stack.enter_context(running_worker(variant, servers)) for variant in variants]
        counted = {worker.variant.name: _requests(worker, servers) for worker in workers}
        times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        chance = random.Random(1)
        for _ in range(rounds):
            for worker in chance.sample(workers, len(workers)):
                for name, seconds in (cpu(worker, servers) | _wall(worker, servers)).items():
                    times[worker.variant.name][name].append(seconds * 1000)
                on_progress()
    return {name: Figures(*counted[name], times[name]) for name in counted}


def count_requests(worker: Worker, servers: Servers) -> tuple[Requests, Requests]:
    """What a batch of ten fresh orders asks for, and what its duplicates do. Raises NotCharged."""
    servers.set(metering=True)
    batch = fresh()
    worker.invoke(batch)
    first = servers.meter()
    charged = len(servers.stripe.ledger().charges)
    if charged != BATCH:
        raise NotCharged(f"{worker.variant.name} has charged {charged} of {BATCH} orders")
    servers.set(metering=True)
    worker.invoke(again(batch))
    second = servers.meter()
    return _asked(first), _asked(second)


def _asked(meter: Meter) -> Requests:
    return Requests(meter.dynamodb, meter.stripe, meter.write_units, meter.read_units, meter.other)


def warm_up(worker: Worker, servers: Servers) -> None:
    """Open the connections, and let Python specialize what runs often."""
    servers.set()
    batches = [fresh() for _ in range(WARM_UP)]
    worker.invoke(*batches)
    worker.invoke(*map(again, batches))


def _requests(worker: Worker, servers: Servers) -> tuple[Requests, Requests]:
    warm_up(worker, servers)
    return count_requests(worker, servers)


def cpu(worker: Worker, servers: Servers) -> dict[str, float]:
    """Seconds of CPU that a batch of ten takes, and that its duplicates take."""
    servers.set()
    batches = [fresh() for _ in range(_CPU_BATCHES)]
    first = worker.invoke(*batches)
    second = worker.invoke(*map(again, batches))
    return {"fresh_cpu": statistics.median(first.cpu), "duplicate_cpu": statistics.median(second.cpu)}


def _wall(worker: Worker, servers: Servers) -> dict[str, float]:
    servers.set(stripe_seconds=STRIPE_SECONDS, dynamodb_seconds=DYNAMODB_SECONDS)
    batch = fresh()
    first = worker.invoke(batch)
    second = worker.invoke(again(batch))
    return {"fresh_wall": first.wall[0], "duplicate_wall": second.wall[0]}


def cold_starts(
    variants: Sequence[Variant], servers: Servers, rounds: int, on_progress: OnProgress
) -> dict[str, list[float]]:
    """Milliseconds from before the interpreter starts until the answer to the first write of a claim."""
    tables = {variant.name: variant.create_table(servers) for variant in variants}
    taken: dict[str, list[float]] = defaultdict(list)
    chance = random.Random(1)
    for number in range(rounds + 1):
        for variant in chance.sample(list(variants), len(variants)):
            milliseconds = _cold_start(variant, servers, tables[variant.name])
            if number:  # The first one reads the files from the disk.
                taken[variant.name].append(milliseconds)
                on_progress()
    return taken


def _cold_start(variant: Variant, servers: Servers, table: str) -> float:
    servers.set()
    environment = environment_of(variant, servers, table)
    event = json.dumps(fresh(1))
    started = time.monotonic()
    done = subprocess.run(
        command_of(variant, "--once"), env=environment, input=event, capture_output=True, text=True, check=False
    )
    claimed = servers.meter().first_write
    if done.returncode or claimed is None:
        raise WorkFailed(f"{variant.name} has claimed nothing: {done.stderr[-2000:]}")
    return (claimed - started) * 1000


def memory(variant: Variant, servers: Servers, orders: Sequence[int], on_progress: OnProgress) -> list[float]:
    """The highest memory in use, in MB, after each of these numbers of orders."""
    peaks: list[float] = []
    done = 0
    with running_worker(variant, servers) as worker:
        for goal in orders:
            while done < goal:
                if done % 500 == 0:
                    servers.set()  # Stripe's side forgets, or it would grow.
                work = worker.invoke(*[fresh() for _ in range(5)])
                done += 5 * BATCH
                on_progress()
            peaks.append(work.peak_kb / 1000)
    return peaks


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ours by theirs, round by round, so that a slow minute of the machine is in both."""
    return Spread.of([mine / other for mine, other in zip(ours, theirs, strict=True)])


def profile(variant: Variant, servers: Servers, *, duplicates: bool) -> str:
    """Where the CPU of fifty batches of one order goes, by function; of their duplicates instead."""
    servers.set()
    with running_worker(variant, servers) as worker:
        batches: list[dict[str, Any]] = [fresh(1) for _ in range(50)]
        worker.invoke(*[fresh(1) for _ in range(20)])
        if not duplicates:
            return worker.profile(*batches)
        worker.invoke(*batches)
        return worker.profile(*map(again, batches))
