"""The demo orders what functions/orders_api/prices.json sells."""

import json
from pathlib import Path

import pytest

from local.demo_plan import make_plan
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
