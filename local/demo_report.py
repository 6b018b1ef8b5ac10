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
from stripe_standin.admin import Ledger, LedgerCharge
from stripe_standin.amounts import in_units

_KILLED = "killing worker"
"""What the emulator logs when a function reaches its timeout."""


@dataclass(frozen=True)
class Figure:
    """A row of the table, and a member of `.local/demo-report.json`; money is in minor units of one currency."""

    name: str
    what: str
    figure: int
    is_right: bool | None = None
    """None if the demo does not depend on it."""


@dataclass(frozen=True)
class Report:
    """The figures, in sections, and who went wrong how."""

    sections: Sequence[Sequence[Figure]]
    offenders: Mapping[str, Sequence[str]]
    is_idle: bool
    seconds: float
    seed: int

    @property
    def figures(self) -> dict[str, int]:
        return {each.name: each.figure for section in self.sections for each in section}

    @property
    def ok(self) -> bool:
        """Every payable order has exactly one charge of the right amount, and nobody else has any.

        A run in which nothing was repeated and nothing broke would prove nothing: it is not right either.
        """
        are_right = all(each.is_right is not False for section in self.sections for each in section)
        return are_right and self.is_idle and not any(self.offenders.values())

    def as_json(self) -> str:
        about = {"seconds": round(self.seconds, 1), "seed": self.seed, "idle": self.is_idle, "ok": self.ok}
        return json.dumps({**self.figures, "offenders": self.offenders, **about}, indent=2) + "\n"


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
        == [(orders[order_id].amount_minor, sold().currency)]
        for order_id in payable
    }

    return Verdict(
        charged_once=[order_id for order_id in payable if right[order_id]],
        offenders={
            "charged more than once": [order_id for order_id in payable if len(charges[order_id]) > 1],
            "not charged": [order_id for order_id in payable if not charges[order_id]],
            "charged a wrong amount": [
                order_id for order_id in payable if len(charges[order_id]) == 1 and not right[order_id]
            ],
            "charged though not payable": [each for each in orders if charges[each] and not orders[each].pays],
            "charges of nobody": [each.charge_id for each in ledger.charges if each.order_id not in orders],
        },
    )


def count(traffic: Traffic, dead: Sequence[Mapping[str, Any]], *, is_idle: bool, seconds: float, seed: int) -> Report:
    """The report, counted from the ledger, the messages in the DLQ, and what was sent."""
    plan, admin = traffic.plan, traffic.stack.stripe
    ledger = admin.ledger()
    verdict = judge(traffic.orders, ledger)
    bodies = {poison.body for poison in plan.poison}
    stuck = [each["Body"][:120] for each in dead if each["Body"] not in bodies]
    offenders = {**verdict.offenders, "in the DLQ though payable": stuck}

    def exactly(name: str, what: str, figure: int, expected: int) -> Figure:
        return Figure(name, what, figure, is_right=figure == expected)

    def none(name: str, what: str, offence: str) -> Figure:
        return exactly(name, what, len(offenders[offence]), 0)

    def follow_ups(name: str, what: str, follow_up: FollowUp) -> Figure:
        return Figure(name, what, sum(order.follow_up is follow_up for order in plan.orders))

    payable = [order for order in plan.orders if order.pays]
    unpaid = Counter(order.follow_up or order.expected for order in plan.orders if not order.pays)
    with_reason = {each["Body"] for each in dead if "reason" in each.get("MessageAttributes", {})}
    killed = Path(traffic.stack.aws_log).read_text(errors="replace").count(_KILLED)
    faults = sum(order.fault is not None for order in plan.orders)
    retries = sum(order.client_retries for order in plan.orders)
    followed = sum(order.follow_up is not None for order in plan.orders)
    paid, expected = sum(each.amount_minor for each in ledger.charges), sum(order.amount_minor for order in payable)
    refunded, to_refund = sum(each["amount"] for each in ledger.refunds), sum(o.refunded_minor for o in plan.orders)
    happened = [
        Figure("orders", "orders placed over HTTP", len(plan.orders)),
        exactly("retries", "  retried by their clients, same response", traffic.retries_replayed, retries),
        exactly("malformed", "malformed requests, refused", traffic.malformed_refused, len(plan.malformed)),
        exactly("delivered", "messages sent to the payments queue", traffic.progress.delivered, plan.deliveries),
        Figure("duplicates", "  of them duplicates of an order", traffic.order_deliveries - len(traffic.orders)),
        Figure("poison_delivered", "  of them poison", sum(len(each.deliveries) for each in plan.poison)),
        exactly("lost", "Stripe responses lost after the charge", admin.faults_met(), faults),
        Figure("killed", "  with a worker killed at its timeout", killed, is_right=killed >= 1),
        Figure("requests", "HTTP requests that Stripe received", ledger.counts.get("requests", 0)),
        Figure("replays", "  replayed, by their idempotency key", ledger.counts.get("replays", 0)),
    ]
    charged = [
        Figure("payable", "payable orders", len(payable)),
        exactly("charged_once", "  charged exactly once", len(verdict.charged_once), len(payable)),
        none("charged_more_than_once", "  charged more than once", "charged more than once"),
        none("not_charged", "  not charged", "not charged"),
        follow_ups("another_card", "  of them with another card, after a decline", FollowUp.ANOTHER_CARD),
        follow_ups("at_the_bank", "  of them at the bank, as a webhook said", FollowUp.AT_THE_BANK),
        follow_ups("refunded", "  of them refunded in part, requested twice", FollowUp.REFUND),
    ]
    others = [
        Figure("unpaid", "other orders", unpaid.total()),
        none("unpaid_but_charged", "  charged all the same", "charged though not payable"),
        Figure("declined", "  of them declined", unpaid[Expected.DECLINED]),
        Figure("requires_action", "  of them waiting for 3-D Secure", unpaid[Expected.REQUIRES_ACTION]),
        Figure("canceled", "  of them canceled by their customers", unpaid[FollowUp.CANCEL]),
    ]
    also = [
        exactly("shown", "later actions of customers, shown by the API", traffic.follow_ups_shown(), followed),
        Figure("poison", "different poison messages", len(plan.poison)),
        exactly("poison_in_dlq", "  in the DLQ, with a reason", len(bodies & with_reason), len(plan.poison)),
    ]
    money = [
        Figure("amount_expected", "money expected", expected),
        exactly("amount_charged", "money charged", paid, expected),
        exactly("amount_refunded", "money refunded", refunded, to_refund),
    ]
    return Report((happened, charged, others, also, money), offenders, is_idle, seconds, seed)


def show(report: Report, console: Console) -> None:
    """Print the figures as a table, and the ids of the orders that went wrong."""
    currency = sold().currency
    table = Table(title=f"onecharge demo, seed {report.seed}, {report.seconds:.0f} s", title_justify="left")
    table.add_column("what happened")
    table.add_column("how often", justify="right")
    table.add_column("", justify="center")
    for section in report.sections:
        for each in section:
            mark = "" if each.is_right is None else "[green]✓[/]" if each.is_right else "[bold red]✗[/]"
            is_money = each.name.startswith("amount_")
            figure = f"{in_units(each.figure, currency.lower())} {currency}" if is_money else str(each.figure)
            table.add_row(each.what, figure, mark)
        table.add_section()
    console.print(table)
    for what, who in report.offenders.items():
        if who:
            console.print(f"[bold red]{what}:[/] {', '.join(who)}", highlight=False, soft_wrap=True)
    if not report.is_idle:
        console.print("[bold red]messages are still in the queues after the timeout[/]")
