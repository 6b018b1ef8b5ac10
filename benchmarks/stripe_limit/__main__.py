"""`make stripe-limit`: is Stripe's limit kept, and used?

Charges a queue full of orders with the deployed function, under a stand-in that enforces the limit, over HTTP. Exits
with 1 if less than nine tenths of the limit are used, a request is refused, or an order is dead-lettered or lost.

`--simulated` compares designs instead, in simulated time under the stand-in's limiter: within seconds, on any machine.
"""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.stripe_limit.measure import Conditions, measure
from local.processes import StartupError
from testing.arguments import Arguments, at_least
from testing.limited_stripe import LATENCIES, Backlog, Design

USED_AT_LEAST = 0.9
LATENCY_SECONDS = ((0.1, 0.1), (0.3, 0.3), (1.0, 1.0), (0.1, 1.0))


def workers_for(limit: int) -> int:
    """As template.yaml describes ChargeConcurrency."""
    return limit // 4 + 2


def seconds_of(text: str) -> tuple[float, float]:
    """`300` or `100-1000`, in milliseconds."""
    least, _, most = text.partition("-")
    return int(least) / 1000, int(most or least) / 1000


def measured(
    limits: list[int], latencies: Sequence[tuple[float, float]], orders: int, *, unpaced: bool
) -> tuple[Table, bool]:
    """The table, and whether everything was reached."""
    table = Table(
        "limit", "workers", "Stripe, ms", "orders", "s", "orders/s", "used", "429s", "DLQ", "receives", "billed"
    )
    reached, progress = True, Console(stderr=True)
    for limit in limits:
        for latency in latencies:
            conditions = Conditions(limit, workers_for(limit), orders, latency, knows_the_limit=not unpaced)
            result = measure(conditions)
            used = orders / result.seconds / limit
            reached &= (
                used >= USED_AT_LEAST
                and result.refused == result.dead_letters == 0
                and result.charges == result.orders_charged == orders
                and result.receive_count_max == 1
            )
            least, most = (round(each * 1000) for each in latency)
            table.add_row(
                *(str(limit), str(conditions.workers), str(most) if least == most else f"{least} to {most}"),
                *(str(result.charges), f"{result.seconds:.1f}", f"{orders / result.seconds:.1f}", f"{used:.0%}"),
                *(str(result.refused), str(result.dead_letters), str(result.receive_count_max)),
                f"{result.billed_seconds:.2f} s",
            )
            progress.print(f"limit {limit}, {latency}: {result}", highlight=False)
    return table, reached


def simulated(limits: list[int]) -> Table:
    """All designs, two minutes of backlog each."""
    table = Table("limit", "design", "workers", *(f"{each.name}: used, 429s" for each in LATENCIES))
    for limit in limits:
        few, many = max(2, round(limit * 0.06)), workers_for(limit)
        for design, workers in (
            (Design.CONCURRENCY, few),
            (Design.OWN_SHARE, few),
            (Design.OWN_SHARE, many),
            (Design.UNEVEN_CONFIRMS, many),
            (Design.SHARED_SLOTS, many),
        ):
            results = [Backlog(limit, workers, latency, design, 120 * limit).run() for latency in LATENCIES]
            cells = [f"{each.orders_per_second / limit:.0%}, {each.refused:,}" for each in results]
            table.add_row(str(limit), design, str(workers), *cells)
    return table


def main() -> int:
    parser = Arguments(prog="make stripe-limit", description=__doc__)
    parser.add_argument("--limit", type=at_least(1, "LIMIT"), action="append", help="of each endpoint, requests/s")
    parser.add_argument("--latency", type=seconds_of, action="append", help="of Stripe: 300, or 100-1000; ms")
    parser.add_argument("--orders", type=at_least(1, "ORDERS"), default=3000)
    parser.add_argument("--unpaced", action="store_true", help="the function is not given the limit: it is refused")
    parser.add_argument("--simulated", action="store_true", help="compare designs in simulated time")
    options = parser.parse_args()
    limits = options.limit or [100]
    console = Console(width=None if sys.stdout.isatty() else 150)
    if options.simulated:
        console.print(simulated(options.limit or [25, 100]))
        return 0
    try:
        table, reached = measured(limits, options.latency or LATENCY_SECONDS, options.orders, unpaced=options.unpaced)
    except StartupError as reason:
        console.print(str(reason), highlight=False)
        return 1
    console.print(table)
    console.print(
        "reached" if reached else "NOT reached: nine tenths of the limit, no 429, no dead letter, each received once"
    )
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
