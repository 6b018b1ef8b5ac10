"""The measurements, in rounds: each design has its turn in each, so that a slow minute of the machine is in all."""

import random
import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path

from lab.costs.bill import BUSY, LOW_TRAFFIC
from lab.speed.functions import AWS_SECONDS, DESIGNS, PACKAGES, STRIPE_SECONDS, Servers, WorkFailed
from lab.speed.results import OURS, Invocation, Run
from lab.speed.shops import MeasuredShop, delivered_again

_WARM_UP = 20
"""Batches of each design before the first that counts: connections are open, and Python has specialized its code."""

Say = Callable[[str], object]
"""What is done now."""


def measure(shops: Sequence[MeasuredShop], servers: Servers, run: Run, say: Say) -> None:
    """Measure each design in all rounds. Raises WorkFailed."""
    ways: dict[tuple[str, int], list[list[Invocation]]] = defaultdict(list)
    for shop in shops:
        say(f"warming up {shop.design}")
        _warm_up(shop, servers, run)
    chance = random.Random(1)
    for number in range(run.rounds):
        say(f"measuring, round {number + 1} of {run.rounds}")
        for shop in chance.sample(list(shops), len(shops)):
            for size in (BUSY, LOW_TRAFFIC):
                ways[shop.design, size].append(_round(shop, servers, size, run))
    for shop in shops:
        run.peak_mb[shop.design] = shop.peak_mb()
        run.ways[shop.design] = {
            str(size): list(_steps(_metered(shop, servers, size), ways[shop.design, size]))
            for size in (BUSY, LOW_TRAFFIC)
        }


def _warm_up(shop: MeasuredShop, servers: Servers, run: Run) -> None:
    """Charge some batches where nothing takes time, and see that each order is charged once."""
    servers.reset_stripe(seconds=0)
    batches = [shop.whole_way(BUSY) for _ in range(_WARM_UP)]
    charged = servers.charged()
    if len(set(charged)) != len(charged) or len(charged) != BUSY * _WARM_UP:
        raise WorkFailed(f"{shop.design} has made {len(charged)} charges for {BUSY * _WARM_UP} orders")
    for batch in batches:
        shop.charge(delivered_again(batch))
    if servers.charged() != charged:
        run.charges_again.append(shop.design)


def _round(shop: MeasuredShop, servers: Servers, size: int, run: Run) -> list[Invocation]:
    """One batch of orders on its whole way, and its duplicates, with the latencies of Stripe and AWS."""
    servers.reset_stripe(seconds=STRIPE_SECONDS)
    shop.aws_seconds = AWS_SECONDS
    batch = shop.whole_way(size)
    way = list(shop.taken)
    if size == BUSY:
        [fresh] = [each for each in way if each.function == shop.charging]
        run.fresh_ms[shop.design].append(round(fresh.wall_ms, 1))
        run.cpu_ms[shop.design].append(round(fresh.cpu_ms / size, 3))
        run.duplicates_ms[shop.design].append(round(shop.charge(delivered_again(batch)).wall_ms, 1))
    return way


def _metered(shop: MeasuredShop, servers: Servers, size: int) -> list[Invocation]:
    servers.reset_stripe(seconds=0)
    shop.aws_seconds, shop.is_metered = 0, True
    shop.whole_way(size)
    shop.is_metered = False
    return shop.taken


def _steps(metered: Sequence[Invocation], rounds: Sequence[Sequence[Invocation]]) -> Iterator[Invocation]:
    """What was metered once, with the median times of all rounds."""
    ways = [[list(same) for _, same in groupby(way, key=lambda each: each.function)] for way in (metered, *rounds)]
    for once, *timed in zip(*ways, strict=True):
        of_all = list(chain.from_iterable(timed))
        yield Invocation(
            function=once[0].function,
            times=len(once),
            wall_ms=round(statistics.median(each.wall_ms for each in of_all), 1),
            cpu_ms=round(statistics.median(each.cpu_ms for each in of_all), 2),
            log_bytes=round(statistics.median(each.log_bytes for each in of_all)),
            calls=_mean([each.calls for each in once]),
            units=_mean([each.units for each in once]),
        )


def _mean(counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = sorted({name for each in counts for name in each})
    return {name: round(sum(each.get(name, 0) for each in counts) / len(counts), 3) for name in names}


def measure_cold_starts(shops: Sequence[MeasuredShop], servers: Servers, work_dir: Path, run: Run, say: Say) -> None:
    """Start each design, and charge one order, with Stripe and AWS that answer immediately."""
    plain = work_dir / "plain"  # Plain `sam build` ships no .pyc files. Ours compiles them by default.
    shutil.copytree(PACKAGES, plain, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    servers.reset_stripe(seconds=0)
    chance = random.Random(1)
    for number in range(run.rounds + 1):
        say(f"starting, round {number} of {run.rounds}")
        for shop in chance.sample(list(shops), len(shops)):
            shop.aws_seconds = 0
            with_pyc = _cold_start(shop, None)
            by_default = with_pyc if shop.design == OURS else _cold_start(shop, (*DESIGNS, plain))
            if number:  # The first one reads the files from the disk.
                run.cold_pyc_ms[shop.design].append(with_pyc)
                run.cold_ms[shop.design].append(by_default)


def _cold_start(shop: MeasuredShop, folders: Sequence[Path] | None) -> float:
    event = shop.event_of(shop.place(1))
    started = time.monotonic()
    function = shop.start(shop.charging, folders)
    try:
        function.invoke(event)
        return round((time.monotonic() - started) * 1000, 1)
    finally:
        function.end()
