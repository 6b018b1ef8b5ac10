"""`make costs`: the bill for a million paid orders, beside the naive loop's; what each lever gives; what a month is."""

import sys
from collections.abc import Iterator, Sequence

from benchmarks.costs import prices
from benchmarks.costs.bill import (
    BUSY,
    FOR_EACH_MONTH,
    LOW_TRAFFIC,
    PROVISIONED_USE,
    Line,
    NaiveDesign,
    deployed,
    levers,
    measured,
    naive_loop,
    onecharge,
    provisioned_million_writes,
    total,
    write_floor,
)
from benchmarks.costs.quantities import Measured
from testing.arguments import Arguments

TARGET = 0.5
"""Of the naive loop's dollars."""
CHEAPEST_NAIVE = {"memory_mb": 128, "architecture": "arm64", "api": "HTTP API"}
"""The naive loop by somebody who knows the prices. 128 MB is the least that Lambda has."""


def bill(title: str, lines: Sequence[Line]) -> Iterator[str]:
    yield title
    for line in lines:
        if line.dollars:
            yield (
                f"  {line.service:<20}{line.units_for_each_order:>8.3f} at{line.dollars_for_a_million:>9.4f}"
                f"{line.dollars:>9.2f}   {line.what}"
            )
    yield f"  {'together':<20}{total(list(lines)):>28.2f}"
    yield ""


def verdict(ours: float, naive: float) -> str:
    """The ratio, and whether it is what is to be reached."""
    ratio = ours / naive
    return f"{ratio:.2f} of it: {'reached' if ratio <= TARGET else 'not reached'} (to reach: at most {TARGET})"


def comparison(batch: int, of: Measured) -> Iterator[str]:
    ours = total(onecharge(deployed(batch), of))
    naive = total(naive_loop(NaiveDesign(batch), of))
    cheapest = total(naive_loop(NaiveDesign(batch, **CHEAPEST_NAIVE), of))  # type: ignore[arg-type]  # By name.
    steady = next(total(onecharge(each.with_it, of)) for each in levers(batch) if "provisioned" in each.name)
    yield f"onecharge {ours:.2f}, the naive loop {naive:.2f}: {verdict(ours, naive)}"
    yield f"  with provisioned writes {steady:.2f}: {verdict(steady, naive)}"
    yield f"  the naive loop at its cheapest (128 MB, arm64, HTTP API) {cheapest:.2f}: {verdict(ours, cheapest)}"
    yield ""


def floor(batch: int, of: Measured) -> Iterator[str]:
    """The dollars below which no order comes: each write that the design cannot do without, at list price."""
    yield "What an order cannot do without: writes to DynamoDB, in dollars for a million orders, on demand"
    needed = write_floor(of)
    for what, units in needed:
        yield f"  {units:>5.3g} units{units * prices.DYNAMODB_MILLION_WRITES:>9.2f}   {what}"
    units = sum(each for _, each in needed)
    half = TARGET * total(naive_loop(NaiveDesign(batch), of))
    provisioned = units * provisioned_million_writes()
    yield f"  {units:>5.3g} units{units * prices.DYNAMODB_MILLION_WRITES:>9.2f}   together; {half:.2f} is to be reached"
    yield f"            {provisioned:>9.2f}   together, provisioned, {PROVISIONED_USE:.0%} of it used"
    yield ""


def lever_table(batch: int, of: Measured) -> Iterator[str]:
    yield "What each lever gives, alone, in dollars for a million orders of a busy shop"
    for lever in levers(batch):
        why_not = f"   not taken: {lever.why_not}" if lever.why_not else ""
        yield f"  {lever.gives(of):>7.2f}   {lever.name}{why_not}"
    yield ""


def report(of: Measured) -> Iterator[str]:
    """All of it."""
    yield f"Dollars for a million paid orders: {prices.AS_OF}"
    yield f"Measured by `make costs MEASURE=1`: {of.machine}; Stripe takes {of.stripe_seconds} s."
    yield "Time on Lambda is computed from it: waiting, and CPU time by the share of a vCPU that the memory buys."
    yield ""
    for batch, shop in (
        (BUSY, "a busy shop: ten orders a batch"),
        (LOW_TRAFFIC, "a low-traffic shop: each order is a batch"),
    ):
        yield f"== {shop}"
        yield ""
        yield from bill("onecharge", onecharge(deployed(batch), of))
        yield from bill("the naive loop", naive_loop(NaiveDesign(batch), of))
        yield from comparison(batch, of)
    yield from floor(BUSY, of)
    yield from lever_table(BUSY, of)
    yield "== each month, however many orders there are; the naive loop has one secret, and nothing that watches it"
    yield ""
    yield from (f"  {service:<22}{dollars:>8.2f}   {what}" for service, dollars, what in FOR_EACH_MONTH)
    yield f"  {'together':<22}{sum(dollars for _, dollars, _ in FOR_EACH_MONTH):>8.2f}"
    yield ""
    yield "Not counted: storage, backups, data transfer, Stripe's fee."


def main() -> int:
    parser = Arguments(prog="make costs", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure anew first, and write measured.json")
    if parser.parse_args().measure:
        from benchmarks.costs.measure import main as measure

        measure()
    sys.stdout.write("\n".join(report(measured())) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
