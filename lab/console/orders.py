"""All orders at a glance: lines, rows and Stripe's ledger ─► a row for each order, and their sums. Pure.

Charges are counted in Stripe's ledger alone, never in our rows. None stands for a number that could not be read.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lab.console.lines import DUPLICATE, HELD, LEASED, STRIPE_REQUEST, Line
from onecharge.contract.states import OrderStatus
from onecharge.orders.republication import DAY_SECONDS
from onecharge.orders.transitions import WAITING

_PLACED = "order placed"


@dataclass(frozen=True)
class OrderRow:
    """An order in the list."""

    order_id: str
    at: float
    """When it was placed, in epoch seconds."""
    item: Mapping[str, Any]
    """As the Orders table has it; empty if it has none."""
    deliveries: int
    duplicates: int
    """Deliveries whose claim was refused because the attempt had ended."""
    leased: int
    """Deliveries whose claim was refused because a worker had the lease: they come again."""
    requests: int
    replays: int
    charges: int | None
    """By Stripe's ledger; None if it was not read."""
    is_held: bool
    is_lost: bool

    @property
    def status(self) -> str:
        return str(self.item.get("status", "no item"))

    @property
    def is_paid(self) -> bool:
        return self.status == OrderStatus.PAID

    @property
    def is_waiting(self) -> bool:
        return self.status in WAITING

    @property
    def is_charged_twice(self) -> bool:
        return (self.charges or 0) > 1

    @property
    def is_wrong(self) -> bool:
        return self.is_lost or self.is_charged_twice


@dataclass(frozen=True)
class Tally:
    """All rows, the newest first, and their sums."""

    rows: Sequence[OrderRow]
    is_ledger_read: bool

    def total(self, name: str) -> int:
        """The sum of this number of all rows, or the number of rows of which it is true."""
        return sum(getattr(row, name) or 0 for row in self.rows)

    def in_ledger(self, name: str) -> str:
        """The same for what only the ledger shows; "?" if it was not read."""
        return str(self.total(name)) if self.is_ledger_read else "?"


def tally(
    lines: Mapping[str, Sequence[Line]],
    items: Mapping[str, Mapping[str, Any]],
    charges: Counter[str] | None,
    now: float,
) -> Tally:
    """Lines and items are by order id, charges those that succeeded; None if Stripe does not answer."""
    rows = []
    for order_id in {*lines, *items, *(charges or ())}:
        charged = charges[order_id] if charges is not None else None
        rows.append(_row(order_id, lines.get(order_id, ()), items.get(order_id, {}), charged, now))
    return Tally(sorted(rows, key=lambda row: (-row.at, row.order_id)), charges is not None)


def _row(order_id: str, lines: Sequence[Line], item: Mapping[str, Any], charges: int | None, now: float) -> OrderRow:
    worker = [line for line in lines if line.service == "charge_order"]
    # A release publishes the payment's outcome, or the order's message for the worker.
    said = [line.message for line in lines if line.service in ("charge_order", "publish_events") and not line.verb]
    stored_at = datetime.fromisoformat(str(item["placed_at"])).timestamp() if item else now
    # The button "A day passes" changes the time that is stored.
    at = next((line.at for line in lines if line.message == _PLACED), stored_at)
    # A worker that is killed while it waits for the answer to its confirm does not log it.
    is_confirm_unlogged = bool(lines and charges) and not any(line.verb == "confirm" for line in lines)
    match item.get("status"):
        case None:
            is_lost = any(line.message == _PLACED for line in lines)
        case OrderStatus.PAID:
            is_lost = charges == 0
        case status:
            is_lost = status == OrderStatus.PENDING and now - stored_at > DAY_SECONDS
    return OrderRow(
        order_id=order_id,
        at=at,
        item=item,
        deliveries=len({line.delivery for line in worker if line.delivery}),
        duplicates=sum(message.startswith(DUPLICATE) for message in said),
        leased=said.count(LEASED),
        requests=sum(line.message == STRIPE_REQUEST for line in lines) + is_confirm_unlogged,
        replays=sum(line.is_replay for line in lines),
        charges=charges,
        is_held=said[-1:] == [HELD],
        is_lost=is_lost,
    )
