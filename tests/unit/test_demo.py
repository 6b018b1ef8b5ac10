"""The demo orders what functions/orders_api/prices.json sells, and shows what happens while it happens."""

import json
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from local import demo_live
from local.demo import worth_a_look
from local.demo_live import Progress, shown
from local.demo_plan import FollowUp, make_plan
from local.demo_report import Report, offenders_of
from local.price_list import sold
from local.processes import StartupError
from onecharge.contract.money import require_chargeable
from orders_api.prices import PRICES
from stripe_standin.admin import Ledger, LedgerCharge


def test_the_demo_orders_what_is_on_the_price_list() -> None:
    """At its prices, in amounts that can be charged and that tell one order from another."""
    amounts = set()
    for order in make_plan(60, 1).orders:
        [item] = order.body["items"]
        currency = order.body["currency"]
        assert order.amount_minor == item["quantity"] * PRICES[item["sku"]][currency]
        require_chargeable(order.amount_minor, currency)
        require_chargeable(order.refunded_minor, currency)
        assert order.refunded_minor < order.amount_minor
        amounts.add(order.amount_minor)
    assert len(amounts) == 60


@pytest.mark.parametrize(
    ("charged", "wrong"),
    [
        ({"ord_paid": [5]}, ""),
        ({"ord_paid": [5, 5]}, "charged more than once"),
        ({}, "not charged"),
        ({"ord_paid": [6]}, "charged a wrong amount"),
        ({"ord_paid": [5], "ord_declined": [5]}, "charged though not payable"),
        ({"ord_paid": [5], "ord_other": [5]}, "charges of nobody"),
    ],
    ids=str,
)
def test_a_wrong_charge_fails_the_demo(charged: dict[str, list[int]], wrong: str) -> None:
    """By Stripe's ledger, whatever status an order shows."""
    orders: Any = {f"ord_{name}": SimpleNamespace(pays=name == "paid", amount_minor=5) for name in ("paid", "declined")}
    made = [(order_id, amount) for order_id, amounts in charged.items() for amount in amounts]
    charges = [LedgerCharge("ch", "pi", order_id, amount, sold().currency, None, 1) for order_id, amount in made]
    found = offenders_of(orders, Ledger(tuple(charges), (), (), {}))
    assert [each for each, who in found.items() if who] == [wrong] * bool(wrong)
    assert Report((), found, is_idle=True, seconds=1, seed=1).ok is not bool(wrong)


def test_each_fault_has_an_order_to_look_at() -> None:
    """Every order is named once at most, and is one that it happened to."""
    orders = {f"ord_{number}": order for number, order in enumerate(make_plan(60, 1).orders)}
    named = worth_a_look(orders)
    assert len(set(named.values())) == len(named)
    assert {orders[order_id].fault for order_id in named.values()} >= {each.fault for each in orders.values()}
    assert {orders[order_id].follow_up for order_id in named.values()} >= {*FollowUp}


@pytest.mark.parametrize(
    "prices", [{}, {"mug": {}}, {"stamp": {"EUR": 49}}, {"house": {"EUR": 999_999_999_999}}], ids=str
)
def test_a_list_that_it_cannot_order_from_is_named(tmp_path: Path, prices: dict[str, dict[str, int]]) -> None:
    """One piece is below Stripe's minimum, or a hundred are too much: one sentence, and not a traceback."""
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(prices))
    with pytest.raises(StartupError, match=f"{path} has no price"):
        sold(path)
    (tmp_path / "more.json").write_text(json.dumps(prices | {"chair": {"CHF": 8900}}))
    assert sold(tmp_path / "more.json") == ("chair", "CHF", 8900)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_happens_is_shown(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Charges by the ledger, of one order twice; each line of the log once, however often it is read. A terminal is
    redrawn; elsewhere a line says it, without colors, and only when something has changed."""
    monkeypatch.setattr(demo_live, "_EVERY_SECONDS", 0.01)
    monkeypatch.setenv("TERM", "xterm-256color")
    charges = [SimpleNamespace(order_id=order_id) for order_id in ("ord_1", "ord_1", "ord_2")]
    log = [{"timestamp": 1, "message": f"duplicate ignored: {name}"} for name in ("m-1", "m-2")]
    monkeypatch.setattr(demo_live, "log_events", lambda *_, since_ms: log)
    stripe: Any = SimpleNamespace(ledger=lambda: SimpleNamespace(charges=charges), faults_met=lambda: 4)
    stack: Any = SimpleNamespace(stack_name="s", stripe=stripe, aws=SimpleNamespace(client=str))
    out, progress = StringIO(), Progress(make_plan(10, 1))
    with shown(Console(file=out, force_terminal=is_terminal, width=200), stack, progress):
        progress.placed = 10
    counts = [count for _, count, _ in progress.rows()]
    assert counts == [10, 0, 2, 4, 2, 1]
    lines = out.getvalue().splitlines()
    assert ("\x1b[" in out.getvalue()) is is_terminal
    assert "orders charged twice" in out.getvalue()
    assert is_terminal or len(set(lines)) == len(lines)
