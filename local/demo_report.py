"""The demo's result, counted from the Stripe ledger, not from the system's own tables."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from local.demo_plan import Expected, FollowUp, PlannedOrder
from local.demo_traffic import Traffic
from local.price_list import sold
from stripe_standin.admin import Ledger
from stripe_standin.amounts import in_units

_KILLED = "killing worker"
"""What the emulator logs when a function reaches its timeout."""


@dataclass(frozen=True)
class Figure:
    """A row of the table, and a member of `.local/demo-report.json`; money is in minor units of one currency."""

    name: str
    what: str
    figure: int
    expected: int | None = None
    """None if the demo does not depend on it."""
    at_least: int = 0

    @property
    def is_right(self) -> bool:
        return self.figure >= self.at_least and self.expected in (None, self.figure)

    @property
    def mark(self) -> str:
        is_told = self.expected is not None or self.at_least
        return "" if not is_told else "[green]✓[/]" if self.is_right else "[bold red]✗[/]"


@dataclass(frozen=True)
class Report:
    """The figures, in sections, and who went wrong how."""

    sections: Sequence[Sequence[Figure]]
    offenders: Mapping[str, Sequence[str]]
    is_idle: bool
    seconds: float
    seed: int

    @property
    def ok(self) -> bool:
        """Every payable order has exactly one charge of the right amount, and nobody else has any.

        A run in which nothing was repeated and nothing broke would prove nothing: it is not right either.
        """
        are_right = all(each.is_right for section in self.sections for each in section)
        return are_right and self.is_idle and not any(self.offenders.values())

    def as_json(self) -> str:
        figures = {each.name: each.figure for section in self.sections for each in section}
        about = {"seconds": round(self.seconds, 1), "seed": self.seed, "idle": self.is_idle, "ok": self.ok}
        return json.dumps({**figures, "offenders": self.offenders, **about}, indent=2) + "\n"


def offenders_of(orders: Mapping[str, PlannedOrder], ledger: Ledger) -> dict[str, list[str]]:
    """Who went wrong how, by the ledger alone; `orders` by their order id."""
    charges = {order_id: ledger.charges_of(order_id) for order_id in orders}
    payable = [order_id for order_id, order in orders.items() if order.pays]
    paid = {each: [(charge.amount_minor, charge.currency) for charge in charges[each]] for each in payable}
    due = {each: [(orders[each].amount_minor, sold().currency)] for each in payable}
    return {
        "charged more than once": [each for each in payable if len(paid[each]) > 1],
        "not charged": [each for each in payable if not paid[each]],
        "charged a wrong amount": [each for each in payable if len(paid[each]) == 1 and paid[each] != due[each]],
        "charged though not payable": [each for each in orders if charges[each] and not orders[each].pays],
        "charges of nobody": [each.charge_id for each in ledger.charges if each.order_id not in orders],
    }


def count(traffic: Traffic, dead: Sequence[Mapping[str, Any]], *, is_idle: bool, seconds: float, seed: int) -> Report:
    """The report, counted from the ledger, the messages in the DLQ, and what was sent."""
    plan, admin = traffic.plan, traffic.stack.stripe
    ledger = admin.ledger()
    bodies = {body for body, _ in plan.poison}
    offenders = offenders_of(traffic.orders, ledger)
    offenders["in the DLQ though payable"] = [each["Body"][:120] for each in dead if each["Body"] not in bodies]
    wrong = {what: len(who) for what, who in offenders.items()}
    payable = [order for order in plan.orders if order.pays]
    once = len(payable) - wrong["charged more than once"] - wrong["not charged"] - wrong["charged a wrong amount"]
    followed = Counter(order.follow_up for order in plan.orders if order.follow_up)
    unpaid = Counter(order.follow_up or order.expected for order in plan.orders if not order.pays)
    poison_sent = sum(len(channels) for _, channels in plan.poison)
    with_reason = {each["Body"] for each in dead if "reason" in each.get("MessageAttributes", {})}
    killed = Path(traffic.stack.aws_log).read_text(errors="replace").count(_KILLED)
    faults = sum(order.fault is not None for order in plan.orders)
    retries = sum(order.client_retries for order in plan.orders)
    expected, charged = sum(order.amount_minor for order in payable), sum(each.amount_minor for each in ledger.charges)
    to_refund = sum(order.refunded_minor for order in plan.orders)
    refunded = sum(each["amount"] for each in ledger.refunds)
    duplicates = traffic.order_deliveries - len(traffic.orders)
    sections = (
        (
            Figure("orders", "orders placed over HTTP", len(plan.orders)),
            Figure("retries", "  retried by their clients, same response", traffic.retries_replayed, retries),
            Figure("malformed", "malformed requests, refused", traffic.malformed_refused, len(plan.malformed)),
            Figure("delivered", "messages sent to the payments queue", traffic.progress.delivered, plan.deliveries),
            Figure("duplicates", "  of them duplicates of an order", duplicates),
            Figure("poison_delivered", "  of them poison", poison_sent),
            Figure("lost", "Stripe responses lost after the charge", admin.faults_met(), faults),
            Figure("killed", "  with a worker killed at its timeout", killed, at_least=1),
            Figure("requests", "HTTP requests that Stripe received", ledger.counts.get("requests", 0)),
            Figure("replays", "  replayed, by their idempotency key", ledger.counts.get("replays", 0)),
        ),
        (
            Figure("payable", "payable orders", len(payable)),
            Figure("charged_once", "  charged exactly once", once, len(payable)),
            Figure("charged_more_than_once", "  charged more than once", wrong["charged more than once"], 0),
            Figure("not_charged", "  not charged", wrong["not charged"], 0),
            Figure("another_card", "  of them with another card, after a decline", followed[FollowUp.ANOTHER_CARD]),
            Figure("at_the_bank", "  of them at the bank, as a webhook said", followed[FollowUp.AT_THE_BANK]),
            Figure("refunded", "  of them refunded in part, requested twice", followed[FollowUp.REFUND]),
        ),
        (
            Figure("unpaid", "other orders", unpaid.total()),
            Figure("unpaid_but_charged", "  charged all the same", wrong["charged though not payable"], 0),
            Figure("declined", "  of them declined", unpaid[Expected.DECLINED]),
            Figure("requires_action", "  of them waiting for 3-D Secure", unpaid[Expected.REQUIRES_ACTION]),
            Figure("canceled", "  of them canceled by their customers", unpaid[FollowUp.CANCEL]),
        ),
        (
            Figure(
                "shown",
                "later actions of customers, shown by the API",
                traffic.follow_ups_shown(),
                followed.total(),
            ),
            Figure("poison", "different poison messages", len(plan.poison)),
            Figure("poison_in_dlq", "  in the DLQ, with a reason", len(bodies & with_reason), len(plan.poison)),
        ),
        (
            Figure("amount_expected", "money expected", expected),
            Figure("amount_charged", "money charged", charged, expected),
            Figure("amount_refunded", "money refunded", refunded, to_refund),
        ),
    )
    return Report(sections, offenders, is_idle, seconds, seed)


def show(report: Report, console: Console) -> None:
    """Print the figures as a table, and the ids of the orders that went wrong."""
    currency = sold().currency
    table = Table(title=f"onecharge demo, seed {report.seed}, {report.seconds:.0f} s", title_justify="left")
    table.add_column("what happened")
    table.add_column("how often", justify="right")
    table.add_column("", justify="center")
    for section in report.sections:
        for each in section:
            is_money = each.name.startswith("amount_")
            figure = f"{in_units(each.figure, currency.lower())} {currency}" if is_money else str(each.figure)
            table.add_row(each.what, figure, each.mark)
        table.add_section()
    console.print(table)
    for what, who in report.offenders.items():
        if who:
            console.print(f"[bold red]{what}:[/] {', '.join(who)}", highlight=False, soft_wrap=True)
    if not report.is_idle:
        console.print("[bold red]messages are still in the queues after the timeout[/]")
