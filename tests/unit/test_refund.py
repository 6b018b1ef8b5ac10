"""A claimed refund is made once: each path of `refund`, over DynamoDB in memory and Stripe in process."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from onecharge.payments.refund_rules import REFUSED_SECONDS, SPENT_KEY_SECONDS, FrozenRefund
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.stripe_responses import LookupInconclusive
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.consumer import BackOff, Disposition, Done, RetryAfter
from tests.shop.builders import AMOUNT_MINOR, BOUNDS, DAY, HOUR, ORDER_ID, PAYMENT_INTENT, T0
from tests.shop.scripted_stripe import Execute
from tests.shop.shop import OTHER_REFUND_ID, REFUND, REFUND_ID, Shop, crash, paid_shop, refund_with
from tests.shop.stripe import SdkObject, client_of, sdk_error

BOUNDARIES = 11
"""Of one delivery: before and after each request, and while Stripe has it."""


@pytest.fixture
def shop() -> Shop:
    return paid_shop()


def raises(failure: Exception) -> Callable[[], NoReturn]:
    def fails() -> NoReturn:
        raise failure

    return fails


# ---------------------------------------------------------------- deliveries


def test_a_refund_is_made_once_however_often_it_is_delivered(shop: Shop) -> None:
    """Before and after Stripe has forgotten the key."""
    assert {shop.refund() for _ in range(5)} == {Done()}
    shop.passes(3 * DAY)
    assert {shop.refund() for _ in range(5)} == {Done()}
    assert shop.refund_outcome == ("SUCCEEDED", [400])
    assert shop.counted.count("MoneyRefunded") == 1
    assert shop.refund_row["expires_at"] == shop.refund_row["finalized_at"] + RETENTION_SECONDS


def test_two_refunds_of_an_order_are_two(shop: Shop) -> None:
    """Each has its own row and key, though their amounts are equal."""
    shop.refund()
    shop.refund(refund_with(refund_id=OTHER_REFUND_ID))
    assert shop.refunded == [400, 400]


def test_a_delivery_has_so_many_boundaries(shop: Shop) -> None:
    """The two tests below leave none out; a fresh refund is three requests to Stripe, and three to DynamoDB."""
    shop.refund()
    assert shop.io.passed == BOUNDARIES


@pytest.mark.parametrize("place", range(BOUNDARIES))
@pytest.mark.parametrize("forgotten", [False, True], ids=["soon", "after the key is forgotten"])
def test_a_worker_may_crash_anywhere(shop: Shop, place: int, *, forgotten: bool) -> None:
    """Once the lease has expired, the next deliveries end with the one refund."""
    shop.io.at[place] = crash
    with pytest.raises(KeyboardInterrupt):
        shop.refund()
    shop.passes()
    for _ in range(3):
        if forgotten:
            shop.passes(25 * HOUR)
        shop.refund()
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])


@pytest.mark.parametrize("place", range(BOUNDARIES))
@pytest.mark.parametrize("late", [0, BOUNDS.lease_seconds], ids=["beside a live lease", "after the lease"])
def test_a_second_delivery_at_any_moment_refunds_nothing_twice(shop: Shop, place: int, late: int) -> None:
    """The first one goes on afterwards."""
    dispositions: list[Disposition] = []

    def deliver_meanwhile() -> None:
        shop.io.time += late
        dispositions.append(shop.refund())

    shop.io.at[place] = deliver_meanwhile
    dispositions.append(shop.refund())
    shop.passes()
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])
    assert all(isinstance(each, Done | RetryAfter | BackOff) for each in dispositions)


# ---------------------------------------------------------------- refund twice


def test_a_lost_answer_and_then_another_accounts_404_refund_once(shop: Shop) -> None:
    """For five minutes the secret is another account's. Each delivery raises an alarm, and nothing has FAILED."""
    shop.lose_refund_answer()
    shop.stripe.account = 1
    for _ in range(5):
        shop.passes(60)
        assert shop.refund() == BackOff()
    assert (shop.refund_row["state"], shop.counted.count("Alarm")) == ("PENDING", 5)
    shop.stripe.account = 0
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])


@pytest.mark.parametrize("shows_nothing", [True, False])
def test_a_404_of_the_payment_intent_is_retried_with_an_alarm(shop: Shop, *, shows_nothing: bool) -> None:
    """The other account's list is empty, or answers 404, too."""
    shop.stripe.account = 1
    shop.io.will_happen = shows_nothing
    assert shop.refund() == BackOff()
    assert (shop.refund_row["state"], "Alarm" in shop.counted) == ("PENDING", True)


@pytest.mark.parametrize("lost", ["answer", "row", "key", "row and key"])
def test_a_refund_that_was_made_is_found_before_it_is_sent_again(shop: Shop, lost: str) -> None:
    """Stripe's list has it, whatever was lost."""
    shop.lose_refund_answer()
    if "row" in lost:
        shop.lose_refund()
    if "key" in lost:
        shop.passes(25 * HOUR)
        shop.stripe.forget_keys()
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])


def test_two_workers_that_both_find_nothing_make_one_refund(shop: Shop) -> None:
    """Every key is forgotten and their clocks differ by five minutes: both send the same key."""
    shop.passes(25 * HOUR)
    second: list[Any] = []
    shop.io.at["stripe refund"] = lambda: second.append(shop.refund(ahead=299))
    assert shop.refund() == BackOff()
    assert second == [Done()]
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])


@pytest.mark.parametrize("kind", ["drop before", "429", "503", "401", "502", "500 after", "drop after"])
def test_a_refund_is_made_once_whatever_stripe_answers(shop: Shop, kind: str) -> None:
    """The next delivery looks it up, and sends the same key if there is none."""
    for _ in range(2):
        shop.io.faults["stripe_refund"] = kind
        shop.refund()
    shop.io.faults.clear()
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])


def test_a_stored_500_that_is_executed_late_is_made_once(shop: Shop) -> None:
    """Its key is spent: nothing is sent anymore, and the lookup finds the refund."""
    shop.io.faults["stripe_refund"] = "500, executed 20 hours later"
    assert [shop.refund(), shop.refund()] == [BackOff(), BackOff()]
    assert shop.refund_row["sending_stopped_at"] == shop.io.time
    for _ in range(19):
        shop.passes(HOUR)
        assert shop.refund() == BackOff()
    assert shop.refunded == []
    shop.passes(HOUR)
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])


def test_a_stored_500_that_is_never_executed_needs_a_person_after_a_day(shop: Shop) -> None:
    """Each delivery raises an alarm, and none sends a request beside which the first might be executed."""
    shop.io.faults["stripe_refund"] = "500 before"
    assert [shop.refund(), shop.refund()] == [BackOff(), BackOff()]
    shop.io.at["stripe refund"] = crash
    for seconds, disposition in ((1, BackOff()), (SPENT_KEY_SECONDS - 2, BackOff()), (1, Done())):
        shop.passes(seconds)
        assert shop.refund() == disposition
    assert shop.refund_outcome == ("NEEDS_REVIEW", [])
    assert shop.counted.count("Alarm") == 4


def test_a_stored_refusal_is_followed_by_the_next_key(shop: Shop) -> None:
    """Too little balance: a refusal that is not replayed ends the delivery, and the row keeps how many keys are used
    up. Once the balance is topped up, the next delivery makes the refund, not the next day's."""
    for number in range(3):
        shop.io.faults["stripe_refund"] = "balance too low"
        assert shop.refund() == BackOff()
        assert (len(shop.stripe.ours.keys), shop.refund_row.get("key_number", 0)) == (number + 1, number)
    assert shop.counted.count("Alarm") == 3
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])


def test_the_row_names_a_later_key_before_it_is_used(shop: Shop) -> None:
    """The worker is killed once it has sent, and Stripe executes the request hours after it has forgotten the first
    key: sent again before that, the first key would make a second refund."""
    shop.io.faults["stripe_refund"] = "balance too low"
    assert shop.refund() == BackOff()
    shop.io.faults["stripe_refund"] = "500, executed 20 hours later"
    shop.passes(21 * HOUR)
    shop.io.at["stripe refund answered"] = crash
    with pytest.raises(KeyboardInterrupt):
        shop.refund()
    shop.io.faults.clear()
    shop.passes(T0 + 24 * HOUR + 60 - shop.io.time)
    assert (shop.refund(), shop.refund_row["key_number"]) == (BackOff(), 1)
    shop.passes(17 * HOUR)
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])


def test_no_later_key_is_used_from_22_hours_on(shop: Shop) -> None:
    """Stripe may forget the first key soon, and beside it a later one would refund again. 47 hours after the request
    nothing can be executed under a later key any more, and the first one is sent again."""
    for _ in range(2):
        shop.io.faults["stripe_refund"] = "balance too low"
        shop.refund()
    for age_hours in (22, 46):
        shop.passes(T0 + age_hours * HOUR - shop.io.time)
        assert shop.refund() == BackOff()
        assert shop.refunded == []
    shop.passes(HOUR)
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])


def test_a_500_whose_key_may_be_forgotten_is_not_sent_again(shop: Shop) -> None:
    """No delivery came for a day: Stripe may still execute the earlier request beside a new one."""
    shop.io.faults["stripe_refund"] = "500, executed two days later"
    assert shop.refund() == BackOff()
    shop.passes(25 * HOUR)
    shop.stripe.forget_keys()
    assert (shop.refund(), shop.refunded) == (BackOff(), [])
    shop.passes(23 * HOUR)
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])


def test_a_replayed_success_is_looked_up(shop: Shop) -> None:
    """Another worker has made the refund, and the bank has returned it: the stored answer still says `succeeded`."""

    def made_and_returned() -> None:
        request = FrozenRefund.of(REFUND.data, PAYMENT_INTENT)
        assert StripeGateway(client_of(shop.stripe)).create_refund(request).found
        shop.stripe.return_refund(shop.stripe.refunds[0])

    shop.io.at["stripe refund"] = made_and_returned
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("FAILED", [])


def test_an_answer_with_other_metadata_is_not_the_refund(shop: Shop) -> None:
    """Ours may have been made all the same: an alarm is raised, and it is looked up before it is sent again."""

    def crossed(execute: Execute) -> Any:
        answer = execute()
        metadata = {"order_id": "ord_" + "b" * 32, "refund_id": REFUND_ID}
        other = {"id": "re_9", "status": "failed", "metadata": metadata}
        return SdkObject({**answer.to_dict(), **other}, answer.last_response)

    shop.stripe.next("create refund", crossed)
    assert shop.refund() == BackOff()
    assert (shop.refund_row["state"], shop.refund_row["unanswered_at"]) == ("PENDING", shop.io.time)
    assert "Alarm" in shop.counted
    assert shop.refund() == Done()
    assert shop.refund_row["stripe_refund_id"] == "re_0"
    assert shop.refund_outcome == ("SUCCEEDED", [400])


# ---------------------------------------------------------------- lookups and time


def test_a_failed_lookup_sends_nothing(shop: Shop) -> None:
    """The next delivery looks up again."""
    shop.io.faults["stripe_refunds"] = "429"
    assert shop.refund() == BackOff()
    assert not shop.stripe.ours.keys
    assert shop.refund() == Done()
    assert shop.refunded == [400]


def test_an_incomplete_lookup_sends_nothing(shop: Shop) -> None:
    """Stripe lists more refunds than are read: an alarm is raised."""
    shop.io.at["stripe refunds"] = raises(LookupInconclusive())
    assert shop.refund() == BackOff()
    assert (len(shop.stripe.ours.keys), "Alarm" in shop.counted) == (0, True)


def test_a_list_that_shows_less_than_the_charge_sends_nothing(shop: Shop) -> None:
    """Row and key are gone, and the list does not show the refund yet: sent again, it would be a second one."""
    shop.lose_refund_answer()
    shop.lose_refund()
    shop.passes(25 * HOUR)
    shop.stripe.forget_keys()
    shop.stripe.next("refunds", lambda _: SimpleNamespace(data=[], has_more=False))
    assert (shop.refund(), shop.refunded, "Alarm" in shop.counted) == (BackOff(), [400], True)
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])


def test_no_request_begins_after_the_deadline(shop: Shop) -> None:
    """The lookup took all of the time: the next delivery looks up again."""
    shop.io.at["stripe refunds"] = lambda: shop.passes(20)
    assert shop.refund() == BackOff()
    assert (shop.refunded, shop.refund_row["lease_expires_at"]) == ([], 0)
    assert shop.refund() == Done()


@pytest.mark.parametrize(("hours", "overdue"), [(23, 0), (25, 1)])
def test_a_refund_that_is_unfinished_for_a_day_raises_an_alarm(shop: Shop, hours: int, overdue: int) -> None:
    """An outage alone raises none."""
    shop.io.faults["stripe_refund"] = "503"
    shop.passes(hours * HOUR)
    assert shop.refund() == BackOff()
    assert (shop.counted.count("RefundOverdue"), shop.counted.count("Alarm")) == (overdue, overdue)


# ---------------------------------------------------------------- refusals


def test_a_refund_of_money_that_was_refunded_by_hand_has_failed(shop: Shop) -> None:
    """No more is refunded than was paid. The code says why, an alarm is raised, and the amount is free again."""
    shop.refund_by_hand(AMOUNT_MINOR)
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("FAILED", [AMOUNT_MINOR])
    assert (shop.refund_row["failure_code"], "Alarm" in shop.counted) == ("charge_already_refunded", True)


def test_a_refusal_after_a_released_lease_is_a_failure(shop: Shop) -> None:
    """A worker that has released its lease sends nothing anymore."""
    shop.io.faults["stripe_refund"] = "401"
    assert shop.refund() == BackOff()
    shop.refund_by_hand(AMOUNT_MINOR)
    assert shop.refund() == Done()
    assert shop.refund_row["state"] == "FAILED"


def test_a_refusal_is_looked_up_before_it_is_a_failure(shop: Shop) -> None:
    """The reason may be this very refund, made meanwhile, whose key was forgotten."""
    made = {"refund_id": REFUND_ID, "order_id": ORDER_ID}
    shop.io.at["stripe refund"] = lambda: shop.refund_by_hand(AMOUNT_MINOR, **made)
    assert shop.refund(refund_with(amount_minor=AMOUNT_MINOR)) == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [AMOUNT_MINOR])


def test_a_refusal_is_not_a_failure_while_an_earlier_worker_may_send(shop: Shop) -> None:
    """It has looked up and not yet sent. Another worker is refused, and then there is money left again."""

    def another_is_refused() -> None:
        by_hand = shop.refund_by_hand(AMOUNT_MINOR)
        assert shop.refund(ahead=299) == Done()
        assert shop.refund_row["state"] == "NEEDS_REVIEW"
        shop.stripe.return_refund(by_hand)

    shop.io.at["stripe refund"] = another_is_refused
    shop.refund()
    assert shop.refund_outcome == ("NEEDS_REVIEW", [400])


def test_a_refusal_is_not_a_failure_while_an_earlier_request_may_be_executed(shop: Shop) -> None:
    """A gateway answered 502 and passed the request on. The next one is refused, and then there is money left again."""
    shop.io.faults["stripe_refund"] = "502, executed 20 hours later"
    assert shop.refund() == BackOff()
    assert shop.refund_row["unanswered_at"] == shop.io.time
    by_hand = shop.refund_by_hand(AMOUNT_MINOR)
    assert shop.refund() == Done()
    shop.stripe.return_refund(by_hand)
    shop.passes(DAY)
    assert shop.refund_outcome == ("NEEDS_REVIEW", [400])


def test_a_refused_request_waits_an_hour_then_for_a_person(shop: Shop) -> None:
    """The row has Stripe's message."""
    refusal = raises(sdk_error(400, code="parameter_unknown", message="no such parameter"))
    shop.io.at["stripe refund"] = refusal
    assert shop.refund() == BackOff()
    assert (shop.refund_row["refused_at"], shop.refund_row["stripe_message"]) == (shop.io.time, "no such parameter")
    shop.passes(REFUSED_SECONDS)
    shop.io.at["stripe refund"] = refusal
    assert shop.refund() == Done()
    assert (shop.refund_row["state"], shop.refund_row["failure_code"]) == ("NEEDS_REVIEW", "parameter_unknown")


# ---------------------------------------------------------------- what a lookup finds


def test_two_refunds_of_one_id_need_a_person(shop: Shop) -> None:
    """No third one is made."""
    for _ in range(2):
        shop.refund_by_hand(400, refund_id=REFUND_ID)
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("NEEDS_REVIEW", [400, 400])


RETURNED, ASKS = "lost_or_stolen_card", "requires_action, or a status that is not known"


@pytest.mark.parametrize(
    ("status", "state", "code"),
    [
        ("succeeded", "SUCCEEDED", None),
        ("pending", "SUCCEEDED", None),
        ("failed", "FAILED", RETURNED),
        ("canceled", "FAILED", RETURNED),
        ("requires_action", "NEEDS_REVIEW", ASKS),
        ("something new", "NEEDS_REVIEW", ASKS),
    ],
)
def test_each_status_of_a_refund_at_stripe(shop: Shop, status: str, state: str, code: str | None) -> None:
    """Stripe documents all but the last."""
    made = shop.refund_by_hand(400, refund_id=REFUND_ID)
    made.status, made.failure_reason = status, RETURNED
    assert shop.refund() == Done()
    row = shop.refund_row
    assert (row["state"], row["stripe_refund_id"], row.get("failure_code")) == (state, "re_0", code)


def test_a_refusal_that_is_replayed_after_22_hours_is_followed_by_no_later_key(shop: Shop) -> None:
    """Stripe may forget the first key soon: sent under the next one, the refund could be made again."""
    shop.io.faults["stripe_refund"] = "balance too low"
    assert shop.refund() == BackOff()
    shop.passes(23 * HOUR)
    assert shop.refund() == BackOff()
    assert (shop.refund_row.get("key_number", 0), shop.refunded) == (0, [])
    shop.passes(2 * HOUR)
    assert shop.refund() == Done()
    assert shop.refund_outcome == ("SUCCEEDED", [400])
