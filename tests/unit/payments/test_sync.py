"""sync: the row says what Stripe says now, whatever the event says, and at the price of few requests."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
import stripe
from botocore.exceptions import ClientError, EndpointConnectionError

from onecharge.contract.states import PaymentState
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.stripe_events import parse_event
from onecharge.payments.stripe_responses import Deferred
from onecharge.payments.sync import TRIES, cause_of, sync
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.alarms import Cause
from onecharge.runtime.secrets import SecretUnavailable
from tests.shop.builders import AMOUNT_MINOR, ORDER_ID, T0
from tests.shop.scripted_stripe import ASKS_FOR_ACTION, DECLINED, afterwards, meanwhile
from tests.shop.sdk import sdk_error
from tests.shop.shop import Shop, order_id


def happens(shop: Shop, sent: dict[str, Any]) -> list[str]:
    """A webhook delivers the event; returns the requests to Stripe that it costs."""
    event = parse_event(stripe.Event.construct_from(sent, None))
    assert event is not None
    already = len(shop.stripe.requests)
    sync(event, shop.tools())
    return shop.stripe.operations[already:]


def raised(shop: Shop) -> list[str]:
    """The causes of the alarms since the last call."""
    causes = shop.alarms
    shop.counted.clear()
    return causes


def paid_elsewhere(shop: Shop, metadata: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """A PaymentIntent that no row names succeeds, with this metadata of order a's; returns its event."""
    made = shop.made_before("requires_payment_method")
    shop.stripe.edit_by_hand(shop.stripe.intent(made), **metadata)
    return shop.stripe.show(made, "succeeded")


def test_what_the_row_shows_costs_no_request(shop: Shop) -> None:
    """Also if the event comes late, and the PaymentIntent has been paid since."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    asks = shop.stripe.webhooks[-1]
    assert happens(shop, asks) == []
    declined = shop.stripe.show("pi_0", "requires_payment_method")
    happens(shop, declined)
    assert happens(shop, declined) == []
    shop.deliver(attempt=2)
    refunded = shop.stripe.refund_by_hand("pi_0", 700)
    happens(shop, refunded)
    row = shop.row()
    assert [each for sent in (asks, declined, refunded, *shop.stripe.webhooks) for each in happens(shop, sent)] == []
    assert shop.row() == row


# ---------------------------------------------------------------- whose it is


@pytest.mark.parametrize("metadata", [{"shop": "another"}, {"shop": ""}, {"order_id": ""}])
def test_another_shops_event_is_left_alone(shop: Shop, metadata: dict[str, str]) -> None:
    """Or one of no shop, or of no order. It is counted, and no row is written. Only a dispute has to be asked for."""
    assert happens(shop, paid_elsewhere(shop, metadata)) == []
    assert happens(shop, shop.stripe.disputed("pi_0", "needs_response")) == ["retrieve", "disputes"]
    assert shop.counted == ["EventOfAnotherShop"] * 2
    assert shop.store.read(ORDER_ID) is None


@pytest.mark.parametrize("has_row", [True, False])
def test_edited_metadata_lets_no_charge_pay_another_order(shop: Shop, *, has_row: bool) -> None:
    """A person writes order b's id on order a's paid PaymentIntent. Its next event is an alarm, and b stays unpaid. An
    event of then, after the id was put back, is compared with order a: all agrees."""
    shop.deliver()
    if has_row:
        shop.crash_before("create", "b", customer_id="cus_2")
    intent = shop.stripe.intent("pi_0")
    shop.stripe.edit_by_hand(intent, order_id=order_id("b"))
    edited = shop.stripe.show("pi_0", "succeeded")
    happens(shop, shop.stripe.disputed("pi_0", "warning_needs_response"))
    b = shop.store.read(order_id("b"))
    assert (b and b.state) == (PaymentState.PENDING if has_row else None)
    assert raised(shop) == [Cause.MONEY_DIFFERS if has_row else Cause.ROW_LOST, Cause.CHARGE_DISPUTED]
    if not has_row:
        shop.stripe.edit_by_hand(intent, order_id=ORDER_ID)
        happens(shop, edited)
        assert (raised(shop), shop.store.read(order_id("b"))) == ([Cause.CHARGE_DISPUTED], None)
    assert shop.outcome == ("SUCCEEDED", "pi_0")


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_payment_intent_that_our_account_lacks_defers_the_event(shop: Shop, *, is_lost: bool) -> None:
    """The key is another account's: with an alarm, and with the right key the event is applied. Without a row, it is a
    sandbox whose test data was deleted: nothing is written, and nothing sent again."""
    shop.deliver()
    refunded = shop.stripe.refund_by_hand("pi_0", 1)
    shop.stripe.of_account = 1
    if is_lost:
        shop.lose_row()
        happens(shop, refunded)
        assert (shop.store.read(ORDER_ID), shop.alarms) == (None, [])
        return
    with pytest.raises(Deferred) as deferred:
        happens(shop, refunded)
    assert cause_of(deferred.value) is Cause.STRIPE_ACCOUNT
    shop.stripe.of_account = 0
    happens(shop, refunded)
    assert shop.payment().amount_refunded_minor == 1


# ---------------------------------------------------------------- a success


@pytest.mark.parametrize(("card", "expected"), [(ASKS_FOR_ACTION, []), (DECLINED, [Cause.PAID_AFTER_DECLINE])])
def test_a_success_is_written_once_whoever_tells_it(shop: Shop, card: str, expected: list[str]) -> None:
    """Over DECLINED with an alarm: the customer may have paid in another way by now."""
    shop.deliver(payment_method=card)
    sent = shop.stripe.show("pi_0", "succeeded")
    shop.counted.clear()
    for _ in range(2):
        happens(shop, sent)
    assert [each for each in shop.counted if each != "Alarm"] == ["Payment.SUCCEEDED"]
    assert (shop.outcome, shop.alarms) == (("SUCCEEDED", "pi_0"), expected)


def test_a_success_before_its_id_is_stored_is_no_second_one(shop: Shop) -> None:
    """The row that was read names none; by the time that Stripe is asked, its worker has stored it, and charged."""
    ahead = Shop()
    ahead.deliver()
    [sent] = ahead.stripe.webhooks
    shop.crash_before("create")
    shop.passes()
    shop.stripe.next("retrieve", meanwhile(shop.deliver))
    happens(shop, sent)
    assert (shop.outcome, shop.alarms) == (("SUCCEEDED", "pi_0"), [])


# ---------------------------------------------------------------- a lost row


def test_a_lost_row_is_written_again(shop: Shop) -> None:
    """With an alarm, with the refunds and the dispute, and expiring when the lost one would have. One that has expired
    is not: it would answer for the next order under the same key."""
    shop.deliver()
    lost = shop.payment()
    shop.stripe.refund_by_hand("pi_0", 700)
    shop.stripe.disputed("pi_0", "needs_response")
    shop.lose_row()
    shop.passes(3600)
    shop.counted.clear()
    happens(shop, shop.stripe.webhooks[0])
    found = shop.payment()
    # Stripe knows only when it was created.
    request = replace(lost.request, placed_at=T0 + 1)
    assert (found.request, found.state, found.payment_intent_id) == (request, lost.state, lost.payment_intent_id)
    assert (found.amount_refunded_minor, found.dispute) == (700, ("du_0", "needs_response"))
    assert (found.payment_method, shop.row()["expires_at"]) == ("", T0 + 1 + RETENTION_SECONDS)
    assert found.revision > lost.revision
    assert raised(shop) == [Cause.ROW_LOST, Cause.CHARGE_DISPUTED]
    shop.lose_row()
    shop.passes(RETENTION_SECONDS)
    happens(shop, shop.stripe.webhooks[0])
    assert (shop.store.read(ORDER_ID), shop.alarms) == (None, [])


# ---------------------------------------------------------------- after the charge


def test_each_dispute_that_needs_a_response_is_one_alarm(shop: Shop) -> None:
    """The row has the newest one; an event that comes twice, or a refund beside it, raises none."""
    shop.deliver()
    shop.counted.clear()
    shown = []
    for status, number in (("warning_needs_response", 0), ("needs_response", 0), ("lost", 0), ("needs_response", 1)):
        sent = shop.stripe.disputed("pi_0", status, number)
        for _ in range(2):
            happens(shop, sent)
            happens(shop, shop.stripe.refund_by_hand("pi_0", 1))
        shown.append((shop.payment().dispute, raised(shop)))
    alarm: list[str] = [Cause.CHARGE_DISPUTED]
    assert shown == [
        (("du_0", "warning_needs_response"), alarm),
        (("du_0", "needs_response"), alarm),
        (("du_0", "lost"), []),
        (("du_1", "needs_response"), alarm),
    ]
    lines = [line for line in shop.log.lines if line.get("cause") == Cause.CHARGE_DISPUTED]
    assert {(line["order_id"], line["dispute_id"]) for line in lines} == {(ORDER_ID, "du_0"), (ORDER_ID, "du_1")}


def test_a_dispute_that_stripe_does_not_list_yet_is_an_alarm(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """reconcile reads the event again, and writes the row."""
    shop.deliver()
    sent = shop.stripe.disputed("pi_0", "needs_response")
    with monkeypatch.context() as lagging:
        lagging.setattr(PaymentIntents, "with_dispute_that_counts", lambda _, intent: intent)
        happens(shop, sent)
    assert (shop.payment().dispute, shop.alarms) == (None, [Cause.CHARGE_DISPUTED])
    happens(shop, sent)
    assert shop.payment().dispute == ("du_0", "needs_response")


def test_a_dispute_beside_the_one_that_counts_is_an_alarm_too(shop: Shop) -> None:
    """American Express may inquire after a chargeback, and an older dispute may be appealed. The row stays."""
    shop.deliver()
    shop.counted.clear()
    shown = []
    for status, number in (
        *(("needs_response", 0), ("lost", 0), ("warning_needs_response", 1), ("warning_closed", 1)),
        *(("needs_response", 2), ("appeal_needs_response", 0), ("appeal_under_review", 0)),
    ):
        happens(shop, shop.stripe.disputed("pi_0", status, number))
        shown.append((shop.payment().dispute_id, len(raised(shop))))
    one, none = 1, 0
    assert shown == [
        *(("du_0", one), ("du_0", none), ("du_0", one), ("du_0", none)),
        *(("du_2", one), ("du_2", one), ("du_2", none)),
    ]


def test_a_dispute_of_a_second_charge_that_was_refunded_is_an_alarm(shop: Shop) -> None:
    """No money is left to find out about; and the row, which names the first charge, never shows the dispute."""
    shop.deliver()
    intent_id = paid_elsewhere(shop)["data"]["object"]["id"]
    happens(shop, shop.stripe.refund_by_hand(intent_id, AMOUNT_MINOR))
    assert raised(shop) == []
    happens(shop, shop.stripe.disputed(intent_id, "needs_response"))
    assert (shop.payment().dispute, raised(shop)) == (None, [Cause.CHARGE_DISPUTED])


# ---------------------------------------------------------------- others write, too; outages


@pytest.mark.parametrize(("changes", "is_deferred"), [(TRIES - 2, False), (TRIES, True)])
def test_a_row_that_keeps_changing_is_deferred(shop: Shop, changes: int, *, is_deferred: bool) -> None:
    """It is read again immediately, a few times; then the event has to come once more."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    sent = shop.stripe.show("pi_0", "succeeded")

    def changed() -> None:
        shop.store.write_if_unchanged(shop.payment(), {"last_emitted_at": shop.now}, now=shop.now)

    shop.stripe.next("retrieve", *[meanwhile(changed)] * changes)
    if is_deferred:
        with pytest.raises(Deferred):
            happens(shop, sent)
    happens(shop, sent)
    assert shop.outcome == ("SUCCEEDED", "pi_0")


def test_a_row_that_is_lost_meanwhile_is_written_again_by_the_next_event(shop: Shop) -> None:
    """It was there when Stripe was asked."""
    shop.deliver()
    sent = shop.stripe.refund_by_hand("pi_0", 700)
    shop.stripe.next("retrieve", afterwards(shop.lose_row))
    with pytest.raises(Deferred):
        happens(shop, sent)
    happens(shop, sent)
    assert (shop.outcome, shop.payment().amount_refunded_minor) == (("SUCCEEDED", "pi_0"), 700)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ClientError({"Error": {"Code": "ThrottlingException"}}, "GetItem"), None),
        (ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetItem"), Cause.UNEXPECTED_ERROR),
        (ClientError({"Error": {"Code": "AuthorizationError"}}, "Publish"), Cause.UNEXPECTED_ERROR),
        (EndpointConnectionError(endpoint_url="x"), None),
        (SecretUnavailable("x"), None),
        (sdk_error(503), None),
        (sdk_error(403), Cause.STRIPE_ACCOUNT),
        (Deferred("x"), None),
        (Deferred("x", alarm=Cause.HELD), Cause.HELD),
        (KeyError("x"), Cause.UNEXPECTED_ERROR),
    ],
)
def test_an_outage_is_no_alarm_and_what_needs_a_person_is(error: Exception, cause: Cause | None) -> None:
    """A missing right or a refused key stays until somebody acts."""
    assert cause_of(error) is cause
