"""The demo orders what functions/orders_api/prices.json sells."""

import json
from pathlib import Path

import pytest

from local.demo import worth_a_look
from local.demo_plan import FollowUp, make_plan
from local.price_list import sold
from local.processes import StartupError
from onecharge.contract.money import require_chargeable, require_minimum
from orders_api.prices import PRICES


def test_the_demo_orders_what_is_on_the_price_list() -> None:
    """At its prices, in amounts that can be charged and that tell one order from another."""
    amounts = set()
    for order in make_plan(60, 1).orders:
        [item] = order.body["items"]
        currency = order.body["currency"]
        assert order.amount_minor == item["quantity"] * PRICES[item["sku"]][currency]
        require_chargeable(order.amount_minor, currency)
        require_minimum(order.amount_minor, currency)
        require_chargeable(order.refunded_minor, currency)
        assert order.refunded_minor < order.amount_minor
        amounts.add(order.amount_minor)
    assert len(amounts) == 60


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
