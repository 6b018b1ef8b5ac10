"""The demo fails if an order is charged twice, or if nothing was repeated and nothing broke."""

from io import StringIO

import pytest
from rich.console import Console

from lab.demo import make_plan
from lab.demo_count import Planned, figures_of, offenders_of, show
from local.price_list import sold
from onecharge.contract.money import require_chargeable
from orders_api.prices import PRICES
from stripe_standin.admin import Ledger, LedgerCharge
from stripe_standin.faults import Fault

PRICE = sold().unit_amount
ORDERS = {
    "ord_paid": Planned("pm_card_visa", 2, True, Fault.HANG_AFTER, 1, ["topic"]),
    "ord_declined": Planned("pm_card_visa_chargeDeclined", 3, False, None, 0, []),
}


def is_right(charged: list[tuple[str, int]], **changes: int) -> tuple[bool, str]:
    """Whether the demo is right about these charges (order id and pieces), and what it prints."""
    charges = tuple(LedgerCharge("ch", "pi", order, n * PRICE, sold().currency, None, 1) for order, n in charged)
    ledger, out = Ledger(charges, (), (), {}), StringIO()
    counted = {"replayed": 1, "dead": 0, "lost": 1, "killed": 1, **changes}
    figures = figures_of(ORDERS, ledger, **counted)
    return show(figures, offenders_of(ORDERS, ledger), "demo", Console(file=out, width=200)), out.getvalue()


@pytest.mark.parametrize(
    ("charged", "wrong"),
    [
        ([("ord_paid", 2)], ""),
        ([("ord_paid", 2), ("ord_paid", 2)], "charged more than once: ord_paid\n"),
        ([], "not charged: ord_paid\n"),
        ([("ord_paid", 3)], "charged a wrong amount: ord_paid\n"),
        ([("ord_paid", 2), ("ord_declined", 3)], "charged though declined: ord_declined\n"),
        ([("ord_paid", 2), ("ord_other", 2)], "charges of no order: ch\n"),
    ],
    ids=str,
)
def test_a_wrong_charge_fails_the_demo(charged: list[tuple[str, int]], wrong: str) -> None:
    """By Stripe's ledger, whatever status an order shows; the order is named."""
    right, printed = is_right(charged)
    assert right is not bool(wrong)
    assert printed.partition("┘\n")[2] == wrong


@pytest.mark.parametrize("changes", [{"replayed": 0}, {"dead": 1}, {"lost": 0}, {"killed": 0}], ids=str)
def test_a_run_that_proves_nothing_fails_the_demo(changes: dict[str, int]) -> None:
    """A retry with another response, a message in the DLQ, a fault that no request met, no killed worker."""
    assert is_right([("ord_paid", 2)], **changes)[0] is False


def test_the_demo_orders_what_is_on_the_price_list() -> None:
    """In amounts that can be charged and that tell one order from another; each fault, and five deliveries of one."""
    plan = make_plan(60, 1)
    assert PRICES[sold().sku][sold().currency] == PRICE
    for order in plan:
        require_chargeable(order.amount_minor, sold().currency)
    assert len({order.amount_minor for order in plan}) == 60
    assert {order.fault for order in plan} == {None, Fault.HANG_AFTER, Fault.ERROR_500_AFTER, Fault.DROP_AFTER}
    assert max(len(order.duplicates) for order in plan) == 4
    assert (sum(order.pays for order in plan), make_plan(60, 1)) == (48, plan)
