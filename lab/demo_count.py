"""The demo's result, counted from Stripe's ledger, not from the system's own tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from local.price_list import sold
from stripe_standin.admin import Ledger
from stripe_standin.amounts import in_units
from stripe_standin.faults import Fault


@dataclass(frozen=True)
class Planned:
    """One order, how often its client sends it, and how often its message is delivered beyond the first time."""

    card: str
    quantity: int
    """Different for each order, so that a fault can be injected into the requests of one alone."""
    pays: bool
    fault: Fault | None
    retries: int
    duplicates: Sequence[str]
    """How each duplicate arrives: published again to the `topic`, or sent to the `queue`, as a redrive does."""

    @property
    def amount_minor(self) -> int:
        return self.quantity * sold().unit_amount


@dataclass(frozen=True)
class Figure:
    """A row of the table."""

    what: str
    count: int | str
    is_right: bool | None = None
    """None if the demo does not depend on it."""


def offenders_of(orders: Mapping[str, Planned], ledger: Ledger) -> dict[str, list[str]]:
    """Which orders went wrong, and how, by the ledger alone; `orders` by their order id."""
    paid = {each: [(charge.amount_minor, charge.currency) for charge in ledger.charges_of(each)] for each in orders}
    due = {each: [(order.amount_minor, sold().currency)] for each, order in orders.items()}
    payable = [each for each, order in orders.items() if order.pays]
    return {
        "charged more than once": [each for each in payable if len(paid[each]) > 1],
        "not charged": [each for each in payable if not paid[each]],
        "charged a wrong amount": [each for each in payable if len(paid[each]) == 1 and paid[each] != due[each]],
        "charged though declined": [each for each, order in orders.items() if paid[each] and not order.pays],
        "charges of no order": [each.charge_id for each in ledger.charges if each.order_id not in orders],
    }


def figures_of(
    orders: Mapping[str, Planned], ledger: Ledger, *, replayed: int, dead: int, lost: int, killed: int
) -> list[Figure]:
    """The rows. A run in which nothing was repeated and nothing broke would prove nothing: it is not right either."""
    planned, money = orders.values(), sold().currency
    faults, retries = sum(order.fault is not None for order in planned), sum(order.retries for order in planned)
    expected = sum(order.amount_minor for order in planned if order.pays)
    charged = sum(each.amount_minor for each in ledger.charges)
    duplicates = sum(len(order.duplicates) for order in planned)
    return [
        Figure("orders placed over HTTP", len(orders)),
        Figure("  retries of their clients, with the same response", replayed, replayed == retries),
        Figure("duplicates of their messages", duplicates),
        Figure("Stripe's responses lost after the charge", lost, lost == faults),
        Figure("  with a worker killed at its timeout", killed, killed > 0),
        Figure("HTTP requests that Stripe received", ledger.counts.get("requests", 0)),
        Figure("  replayed, by their idempotency key", ledger.counts.get("replays", 0)),
        Figure("orders that can be paid", sum(order.pays for order in planned)),
        *(Figure(f"  {what}", len(who), not who) for what, who in offenders_of(orders, ledger).items()),
        Figure("messages in the DLQ", dead, dead == 0),
        Figure("money expected", f"{in_units(expected, money.lower())} {money}"),
        Figure("money charged", f"{in_units(charged, money.lower())} {money}"),
    ]


def show(figures: Sequence[Figure], offenders: Mapping[str, Sequence[str]], title: str, console: Console) -> bool:
    """Print the figures, and the ids of the orders that went wrong; returns whether all is right."""
    table = Table(title=title, title_justify="left")
    table.add_column("what happened")
    table.add_column("how often", justify="right")
    table.add_column("", justify="center")
    marks = {None: "", True: "[green]✓[/]", False: "[bold red]✗[/]"}
    for each in figures:
        table.add_row(each.what, str(each.count), marks[each.is_right])
    console.print(table)
    for what, who in offenders.items():
        if who:
            console.print(f"[bold red]{what}:[/] {', '.join(who)}", highlight=False, soft_wrap=True)
    return all(each.is_right is not False for each in figures)
