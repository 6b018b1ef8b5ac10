"""All orders at a glance: lines, rows and Stripe's ledger ─► a row for each order, and a tally. Pure.

What was charged is counted in Stripe's ledger alone, never in our rows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from console.lines import DUPLICATE, LEASED, STRIPE_REQUEST, Line
from onecharge.contract.states import OrderStatus
from onecharge.orders.republication import DAY_SECONDS
from onecharge.orders.transitions import WAITING

_PLACED = "order placed"


@dataclass(frozen=True)
class Stored:
    """An order as the tables have it."""

    status: str
    amount_minor: int
    currency: str
    placed_at: float
    """Epoch seconds."""
    attempt: int = 1
    refunded_minor: int = 0
    """By Stripe's events."""


@dataclass(frozen=True)
class Seen:
    """What was read, of all orders."""

    now: float
    lines: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    stored: Mapping[str, Stored] = field(default_factory=dict)
    charges: Sequence[str] = ()
    """The order of each charge that succeeded, by Stripe's ledger."""
    is_complete: bool = True
    """Whether all of Stripe's charges since the console looks were read."""
    ledger_read: bool = True
    """False: Stripe does not answer, and its charges are those of the last look."""


@dataclass(frozen=True)
class OrderRow:
    """An order in the list."""

    order_id: str
    at: float
    stored: Stored | None
    deliveries: int
    duplicates: int
    """Deliveries whose claim was refused because the attempt had ended."""
    leased: int
    """Deliveries whose claim was refused because a worker had the lease: they come again."""
    requests: int
    replays: int
    charges: int
    """By Stripe's ledger."""
    is_lost: bool

    @property
    def status(self) -> str:
        return self.stored.status if self.stored else "no item"

    @property
    def waits(self) -> bool:
        return self.status in WAITING

    @property
    def is_charged_twice(self) -> bool:
        return self.charges > 1

    @property
    def is_wrong(self) -> bool:
        return self.is_lost or self.is_charged_twice


@dataclass(frozen=True)
class Tally:
    """All rows, the newest first, and their sums."""

    rows: Sequence[OrderRow]
    is_complete: bool
    ledger_read: bool

    def total(self, name: str) -> int:
        """The sum of all rows' numbers of this name, or the number of rows of which it is true."""
        return sum(getattr(row, name) for row in self.rows)

    def with_status(self, status: str) -> int:
        return sum(row.status == status for row in self.rows)


def tally(seen: Seen) -> Tally:
    charges = Counter(seen.charges)
    order_ids = {*seen.lines, *seen.stored, *charges}
    rows = [_row(seen, order_id, charges[order_id]) for order_id in order_ids]
    return Tally(sorted(rows, key=lambda row: (-row.at, row.order_id)), seen.is_complete, seen.ledger_read)


def _row(seen: Seen, order_id: str, charges: int) -> OrderRow:
    lines, stored = seen.lines.get(order_id, ()), seen.stored.get(order_id)
    # By the log, if it still has the line: "A day passes" (breaks.py) changes the time that is stored.
    placed = stored.placed_at if stored else min((line.at for line in lines), default=seen.now)
    at = next((line.at for line in lines if line.message == _PLACED), placed)
    return OrderRow(
        order_id=order_id,
        at=at,
        stored=stored,
        deliveries=len({line.delivery for line in _of_charge_order(lines) if line.delivery}),
        duplicates=sum(line.message.startswith(DUPLICATE) for line in _of_charge_order(lines)),
        leased=sum(line.message == LEASED for line in _of_charge_order(lines)),
        requests=sum(line.message == STRIPE_REQUEST for line in lines) + _is_confirm_unlogged(lines, charges),
        replays=sum(line.is_replay for line in lines),
        charges=charges,
        is_lost=_is_lost(stored, charges, lines, seen),
    )


def _is_confirm_unlogged(lines: Sequence[Line], charges: int) -> bool:
    """Whether the worker was killed while it waited for the answer to the confirm that charged."""
    return bool(lines and charges) and not any(line.verb == "confirm" for line in lines)


def _of_charge_order(lines: Iterable[Line]) -> Iterable[Line]:
    return (line for line in lines if line.service == "charge_order")


def _is_lost(stored: Stored | None, charges: int, lines: Sequence[Line], seen: Seen) -> bool:
    """An order that the API accepted and no table knows; one that says PAID and has no charge; one that waits a day."""
    if stored is None:
        return any(line.message == _PLACED for line in lines)
    if stored.status == OrderStatus.PAID:
        return charges == 0 and seen.ledger_read
    return stored.status == OrderStatus.PENDING and seen.now - stored.placed_at > DAY_SECONDS
