"""Stripe's later word about a refund: an event is a hint, and what Stripe lists then is told again."""

from dataclasses import replace
from typing import Any

import pytest

from onecharge.payments.refund_rules import StripeRefund
from onecharge.payments.stripe_events import StripeEvent
from onecharge.payments.stripe_responses import Deferred
from onecharge.payments.sync import OUTAGES
from onecharge.runtime.alarms import Cause
from tests.shop.builders import DAY, PAYMENT_INTENT, T0
from tests.shop.shop import REFUND_ID, Shop, paid_shop

MADE, RETURNED = ("succeeded", None, 400), ("failed", "lost_or_stolen_card", 0)


@pytest.fixture
def shop() -> Shop:
    """Its first refund is made and told."""
    shop = paid_shop()
    shop.refund()
    shop.published.clear()
    shop.counted.clear()
    return shop


def happens(shop: Shop, status: str = "failed", **changes: Any) -> None:
    """An event says this of the refund."""
    refund = replace(StripeRefund("re_0", status, 400, "EUR", refund_id=REFUND_ID), **changes)
    about: Any = {"event_id": "evt_1", "type": "refund.failed", "created": T0, "payment_intent_id": PAYMENT_INTENT}
    shop.apply(StripeEvent(**about, refund=refund))


def bank_returns(shop: Shop) -> None:
    shop.stripe.return_refund(shop.stripe.refunds[0])


def test_late_repeated_and_disordered_events_tell_what_stripe_lists(shop: Shop) -> None:
    """Whatever they say. Once the bank has returned it, no delivery refunds it again."""
    happens(shop, "failed")
    bank_returns(shop)
    for status in ("pending", "failed", "succeeded"):
        happens(shop, status)
    shop.refund()
    assert shop.told == [MADE, *[RETURNED] * 4]
    assert {each.data.amount_minor for each in shop.published} == {400}
    assert (shop.payment().amount_refunded_minor, len(shop.stripe.sent("create refund"))) == (0, 1)


def test_a_refund_of_a_payment_whose_row_has_expired_is_not_told(shop: Shop) -> None:
    """Nor of one whose row names another PaymentIntent. That it failed has to be known all the same."""
    row = shop.row()
    shop.lose_row()
    bank_returns(shop)
    shop.passes(501 * DAY)
    happens(shop)
    shop.restore({**row, "payment_intent_id": "pi_9"})
    happens(shop)
    expected = [Cause.REFUND_FAILED, Cause.MONEY_DIFFERS, Cause.REFUND_FAILED]
    assert (shop.told, shop.alarms) == ([], expected)


@pytest.mark.parametrize("refund_id", [None, "", "R-17", "rfd_1", f"{REFUND_ID}\n"])
def test_a_refund_by_hand_is_not_told(shop: Shop, refund_id: str | None) -> None:
    """It has no refund id, or another system's. Its charge's event counts it; if it fails, a person has to know."""
    happens(shop, "succeeded", refund_id=refund_id)
    assert shop.alarms == []
    happens(shop, "failed", refund_id=refund_id)
    assert (shop.told, shop.alarms) == ([], [Cause.REFUND_FAILED])


@pytest.mark.parametrize("account", [0, 1])
def test_an_event_that_stripe_does_not_confirm_is_deferred(shop: Shop, account: int) -> None:
    """The API key may be another account's, or the list lags: Stripe sends the event again."""
    shop.stripe.account = account
    with pytest.raises(OUTAGES):
        happens(shop, refund_id="rfd_" + "c" * 32)
    assert shop.told == []


def test_an_event_of_edited_metadata_is_deferred_for_a_day(shop: Shop) -> None:
    """Then it is an alarm: otherwise the events after it would never be read."""
    [made] = shop.stripe.refunds
    made.metadata = {}
    with pytest.raises(Deferred):
        happens(shop)
    shop.passes(DAY)
    happens(shop)
    assert (shop.told, shop.alarms) == ([], [Cause.MONEY_DIFFERS])
