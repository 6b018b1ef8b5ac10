"""What happens in the demo, while it happens: a table that is redrawn on a terminal, else a line every few seconds."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.live import Live
from rich.table import Table

from local.demo_plan import Plan
from local.observe import log_events
from local.stack import Stack

_EVERY_SECONDS = 2
_LINES_EVERY = 5
"""Without a terminal a line is printed for every fifth look."""
_IGNORED = "duplicate ignored"
"""What charge_order logs of a duplicate that it acknowledges (payments/deliveries.py)."""


@dataclass
class Progress:
    """What has happened so far. The traffic counts what it sends; the rest is read from the stack and from Stripe."""

    plan: Plan
    placed: int = 0
    delivered: int = 0
    lost: int = 0
    charged: int = 0
    charged_again: int = 0
    ignored: set[str] = field(default_factory=set)
    _since_ms: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count_delivery(self) -> None:
        """Several threads deliver."""
        with self._lock:
            self.delivered += 1

    def look(self, stack: Stack) -> None:
        """Read Stripe's ledger, the faults that requests have met, and the new lines of the log."""
        charges = Counter(charge.order_id for charge in stack.stripe.ledger().charges)
        self.charged, self.charged_again = len(charges), sum(count > 1 for count in charges.values())
        self.lost = stack.stripe.faults_met()
        for event in log_events(stack.aws.client("logs"), f"/aws/lambda/{stack.stack_name}", since_ms=self._since_ms):
            self._since_ms = max(self._since_ms, event["timestamp"])
            if _IGNORED in event["message"]:
                self.ignored.add(event["message"])

    def rows(self) -> list[tuple[str, int, int | None]]:
        """What happens, how often so far, and how often in the end, where the plan knows it."""
        orders = self.plan.orders
        return [
            ("orders placed", self.placed, len(orders)),
            ("messages sent", self.delivered, self.plan.deliveries),
            ("deliveries ignored, since the order was decided", len(self.ignored), None),
            ("responses lost after a charge", self.lost, sum(order.fault is not None for order in orders)),
            ("orders charged, by Stripe's ledger", self.charged, sum(order.pays for order in orders)),
            ("orders charged twice", self.charged_again, 0),
        ]

    def as_table(self) -> Table:
        table = Table(box=None, show_header=False)
        for what, count, planned in self.rows():
            style = "bold red" if planned is not None and count > planned else "green" if count == planned else None
            table.add_row(what, str(count), f"of {planned}" if planned else "", style=style)
        return table

    def as_line(self) -> str:
        return ", ".join(f"{what}: {count}" for what, count, _ in self.rows())


@contextmanager
def shown(console: Console, stack: Stack, progress: Progress) -> Iterator[None]:
    """Show the progress, for as long as the block lasts, and once at its end."""
    is_over = threading.Event()
    live = Live(progress.as_table(), console=console, auto_refresh=False) if console.is_terminal else None

    def show() -> None:
        said, looks, ended = progress.as_line(), 0, False
        while not ended:
            ended, looks = is_over.wait(_EVERY_SECONDS), looks + 1
            with suppress(OSError, BotoCoreError, ClientError):
                progress.look(stack)
            if live:
                live.update(progress.as_table(), refresh=True)
            elif progress.as_line() != said and (ended or looks % _LINES_EVERY == 0):
                console.print(said := progress.as_line(), soft_wrap=True, highlight=False)

    with live or nullcontext():
        showing = threading.Thread(target=show, daemon=True)
        showing.start()
        try:
            yield
        finally:
            is_over.set()
            showing.join()
