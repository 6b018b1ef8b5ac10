"""The demo's result, counted from the Stripe ledger, not from the system's own tables."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

from local.demo_plan import CURRENCY, Expected, PlannedOrder
from local.stripe_standin.admin import Ledger, LedgerCharge


@dataclass(frozen=True)
class Report:
    """The figures of `.local/demo-report.json`; amounts in minor units, all in one currency."""

    orders: int
    orders_payable: int
    charged_once: int
    charged_more_than_once: int
    not_charged: int
    charged_wrong_amount: int
    declined: int
    declined_but_charged: int
    requires_action: int
    requires_action_but_charged: int
    charges_of_nobody: int
    another_card: int
    at_the_bank: int
    canceled: int
    refunded: int
    follow_ups: int
    follow_ups_shown: int
    poison: int
    poison_in_dlq: int
    payable_in_dlq: int
    malformed: int
    malformed_refused: int
    client_retries: int
    client_retries_replayed: int
    deliveries: int
    deliveries_planned: int
    faults_met: int
    faults_planned: int
    duplicates_ignored: int
    stripe_requests: int
    stripe_replays: int
    workers_killed: int
    amount_expected: int
    amount_charged: int
    refunds_expected: int
    refunds_made: int
    seconds: float
    seed: int
    idle: bool
    offenders: dict[str, list[str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Every payable order has exactly one charge of the right amount, and nobody else has any."""
        return (
            self.idle
            and self.charged_once == self.orders_payable
            and self.amount_charged == self.amount_expected
            and not any(self.offenders.values())
            and self.poison_in_dlq == self.poison
            and self.follow_ups_shown == self.follow_ups
            and self.refunds_made == self.refunds_expected
            and self.malformed_refused == self.malformed
            and self.client_retries_replayed == self.client_retries
            # A run in which nothing was repeated and nothing broke would prove nothing.
            and self.deliveries == self.deliveries_planned
            and self.faults_met == self.faults_planned
            and self.workers_killed >= 1
        )

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "ok": self.ok}, indent=2) + "\n"


@dataclass(frozen=True)
class Verdict:
    """Each order's result, by the ledger alone."""

    charged_once: list[str]
    offenders: dict[str, list[str]]


def judge(orders: Mapping[str, PlannedOrder], ledger: Ledger) -> Verdict:
    """Compare the ledger with the plan; `orders` by their order id."""
    charges: dict[str, list[LedgerCharge]] = {order_id: ledger.charges_of(order_id) for order_id in orders}
    payable = [order_id for order_id, order in orders.items() if order.pays]
    right = {
        order_id: [(each.amount_minor, each.currency) for each in charges[order_id]]
        == [(orders[order_id].amount_minor, CURRENCY)]
        for order_id in payable
    }

    def charged_although(expected: Expected) -> list[str]:
        unpaid = {order_id: order for order_id, order in orders.items() if not order.pays}
        return [order_id for order_id, order in unpaid.items() if order.expected is expected and charges[order_id]]

    return Verdict(
        charged_once=[order_id for order_id in payable if right[order_id]],
        offenders={
            "charged more than once": [order_id for order_id in payable if len(charges[order_id]) > 1],
            "not charged": [order_id for order_id in payable if not charges[order_id]],
            "charged a wrong amount": [
                order_id for order_id in payable if len(charges[order_id]) == 1 and not right[order_id]
            ],
            "declined but charged": charged_although(Expected.DECLINED),
            "charged without the customer's authentication": charged_although(Expected.REQUIRES_ACTION),
            "charges of nobody": [each.charge_id for each in ledger.charges if each.order_id not in orders],
        },
    )


def show(report: Report, console: Console) -> None:
    """Print the figures as a table, and the ids of the orders that went wrong."""
    table = Table(title=f"onecharge demo, seed {report.seed}, {report.seconds:.0f} s", title_justify="left")
    table.add_column("what happened")
    table.add_column("how often", justify="right")
    table.add_column("", justify="center")

    def row(what: str, figure: object, good: bool | None = None) -> None:
        mark = "" if good is None else "[green]✓[/]" if good else "[bold red]✗[/]"
        table.add_row(what, str(figure), mark)

    row("orders placed over HTTP", report.orders)
    row(
        "  retried by their clients, same response",
        report.client_retries,
        report.client_retries_replayed == report.client_retries,
    )
    row("malformed requests, refused", report.malformed, report.malformed_refused == report.malformed)
    row("messages delivered to the payments queue", report.deliveries, report.deliveries == report.deliveries_planned)
    row("  of them duplicates of an order", report.duplicates_ignored)
    row("Stripe responses lost after the charge", report.faults_met, report.faults_met == report.faults_planned)
    row("  with a worker killed at its timeout", report.workers_killed, report.workers_killed >= 1)
    row("requests to Stripe", report.stripe_requests)
    row("  replayed, by their idempotency key", report.stripe_replays)
    table.add_section()
    row("payable orders", report.orders_payable)
    row("  charged exactly once", report.charged_once, report.charged_once == report.orders_payable)
    row("  charged more than once", report.charged_more_than_once, report.charged_more_than_once == 0)
    row("  not charged", report.not_charged, report.not_charged == 0)
    row("  of them with another card, after a decline", report.another_card)
    row("  of them at the bank, as a webhook said", report.at_the_bank)
    table.add_section()
    row("declined orders", report.declined)
    row("  charged all the same", report.declined_but_charged, report.declined_but_charged == 0)
    row("orders that wait for 3-D Secure", report.requires_action)
    row("  charged all the same", report.requires_action_but_charged, report.requires_action_but_charged == 0)
    row("orders canceled by their customers", report.canceled)
    row("orders refunded in part, requested twice", report.refunded)
    row(
        "later actions of customers, shown by the API",
        report.follow_ups,
        report.follow_ups_shown == report.follow_ups,
    )
    row("poison messages", report.poison)
    row("  in the DLQ, with a reason", report.poison_in_dlq, report.poison_in_dlq == report.poison)
    table.add_section()
    row("money expected", _money(report.amount_expected))
    row(
        "money charged",
        _money(report.amount_charged),
        report.amount_charged == report.amount_expected,
    )
    row("money refunded", _money(report.refunds_made), report.refunds_made == report.refunds_expected)
    console.print(table)
    for what, who in report.offenders.items():
        if who:
            console.print(f"[bold red]{what}:[/] {', '.join(who)}", highlight=False, soft_wrap=True)
    if not report.idle:
        console.print("[bold red]messages are still in the queues after the timeout[/]")


def _money(amount_minor: int) -> str:
    return f"{amount_minor / 100:,.2f} {CURRENCY}"
