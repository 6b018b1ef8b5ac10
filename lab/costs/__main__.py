"""`make costs`: the bill for a million paid orders, beside that of the naive loop; and what is paid each month."""

import sys
from collections.abc import Iterator

from lab.costs import aws_prices, bill
from lab.costs.bill import AS_FRAMEWORKS_HAVE_IT, AT_ITS_CHEAPEST, BUSY, LOW_TRAFFIC, Line
from lab.speed.results import NAIVE, OURS, PEERS, RESULTS, TITLES, Run


def _printed(title: str, lines: list[Line]) -> Iterator[str]:
    yield title
    for line in lines:
        yield f"  {line.service:<20}{line.units:>8.3f} x{line.price:>9.4f}{line.dollars:>9.2f}   {line.what}"
    yield f"  {'together':<20}{bill.total(lines):>28.2f}"
    yield ""


def report(run: Run) -> Iterator[str]:
    """All of it."""
    yield f"Dollars for a million paid orders: {aws_prices.AS_OF}"
    yield f"What an order needs: `make bench`, {run.at}, {run.machine}"
    yield ""
    for batch, shop in ((BUSY, "a busy shop: ten orders a batch"), (LOW_TRAFFIC, "a low-traffic shop: batches of one")):
        naive = run.ways[NAIVE][str(batch)]
        ours = bill.bill(run.ways[OURS][str(batch)], batch, bill.deployed())
        yield f"== {shop}"
        yield ""
        yield from _printed("onecharge", ours)
        yield from _printed(f"the naive loop ({TITLES[NAIVE]})", bill.bill(naive, batch, AS_FRAMEWORKS_HAVE_IT))
        compared = {
            f"{TITLES[peer]}": bill.bill(run.ways[peer][str(batch)], batch, AS_FRAMEWORKS_HAVE_IT) for peer in PEERS
        }
        compared["the naive loop at its cheapest: HTTP API, arm64, 128 MB"] = bill.bill(naive, batch, AT_ITS_CHEAPEST)
        for name, lines in compared.items():
            yield f"onecharge is {bill.total(ours) / bill.total(lines):.2f} of {bill.total(lines):.2f}: {name}"
        yield ""
    monthly = bill.each_month()
    yield "== each month, however many orders there are; the naive loop has one secret, and nothing that watches it"
    yield ""
    yield from (f"  {service:<22}{dollars:>8.2f}   {what}" for service, dollars, what in monthly)
    yield f"  {'together':<22}{sum(dollars for _, dollars, _ in monthly):>8.2f}"
    yield ""
    yield "Not counted: storage, backups, data transfer, Stripe's fee."


if __name__ == "__main__":
    sys.stdout.write("\n".join(report(Run.of_json(RESULTS.read_text()))) + "\n")
