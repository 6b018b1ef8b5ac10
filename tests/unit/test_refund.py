"""A claimed refund is made once: each path of `refund`, over DynamoDB in memory and Stripe in process."""

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.protocol import SPENT_KEY_SECONDS, FrozenRefund
from onecharge.payments.stripe_responses import LookupInconclusive
from onecharge.payments.time_bounds import REFUSED_SECONDS
from onecharge.runtime.consumer import BackOff, Done
from tests.shop.paid_order import AMOUNT_MINOR, DAY, HOUR, ORDER_ID, PAYMENT_INTENT, T0, charged
from tests.shop.stripe import SdkObject, ShopStripe, client_of, sdk_error
from tests.support.refund_harness import EVENT, REFUND_ID, RefundHarness, crash, requested_with


@pytest.fixture
def service() -> RefundHarness:
    return RefundHarness()


def raises(failure: Exception) -> Callable[[], NoReturn]:
    def fails() -> NoReturn:
        raise failure

    return fails


# ---------------------------------------------------------------- refund twice


def test_a_lost_answer_and_then_another_accounts_404_refund_once(service: RefundHarness) -> None:
    """For five minutes the secret is another account's. Each delivery raises an alarm, and nothing has FAILED."""
    service.loses_the_answer()
    service.stripe.account = 1
    for _ in range(5):
        service.passes(60)
        assert service.deliver() == BackOff()
    assert (service.row["state"], service.counted.count("Alarm")) == ("PENDING", 5)
    service.stripe.account = 0
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", [400])


@pytest.mark.parametrize("shows_nothing", [True, False])
def test_a_404_of_the_payment_intent_is_retried_with_an_alarm(service: RefundHarness, *, shows_nothing: bool) -> None:
    """The other account's list is empty, or answers 404, too."""
    service.stripe.account = 1
    service.io.will_happen = shows_nothing
    assert service.deliver() == BackOff()
    assert (service.row["state"], "Alarm" in service.counted) == ("PENDING", True)


@pytest.mark.parametrize("lost", ["answer", "row", "key", "row and key"])
def test_a_refund_that_was_made_is_found_before_it_is_sent_again(service: RefundHarness, lost: str) -> None:
    """Stripe's list has it, whatever was lost."""
    service.loses_the_answer()
    if "row" in lost:
        service.lose_row()
    if "key" in lost:
        service.passes(25 * HOUR)
        service.stripe.forget_keys()
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", [400])


def test_two_workers_that_both_find_nothing_make_one_refund(service: RefundHarness) -> None:
    """Every key is forgotten and their clocks differ by five minutes: both send the same key."""
    service.passes(25 * HOUR)
    second: list[Any] = []
    service.io.at["stripe refund"] = lambda: second.append(service.deliver(clock_differs=299))
    assert service.deliver() == BackOff()
    assert second == [Done()]
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", [400])


@pytest.mark.parametrize("kind", ["drop before", "429", "503", "401", "502", "500 after", "drop after"])
def test_a_refund_is_made_once_whatever_stripe_answers(service: RefundHarness, kind: str) -> None:
    """The next delivery looks it up, and sends the same key if there is none."""
    for _ in range(2):
        service.io.faults["stripe_refund"] = kind
        service.deliver()
    service.io.faults.clear()
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", [400])


def test_a_stored_500_that_is_executed_late_is_made_once(service: RefundHarness) -> None:
    """Its key is spent: nothing is sent anymore, and the lookup finds the refund."""
    service.io.faults["stripe_refund"] = "500, executed 20 hours later"
    assert [service.deliver(), service.deliver()] == [BackOff(), BackOff()]
    assert service.row["key_spent_at"] == service.io.time
    for _ in range(19):
        service.passes(HOUR)
        assert service.deliver() == BackOff()
    assert service.refunded == []
    service.passes(HOUR)
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", [400])


def test_a_stored_500_that_is_never_executed_needs_a_person_after_a_day(service: RefundHarness) -> None:
    """Each delivery raises an alarm, and none sends a request beside which the first might be executed."""
    service.io.faults["stripe_refund"] = "500 before"
    assert [service.deliver(), service.deliver()] == [BackOff(), BackOff()]
    service.io.at["stripe refund"] = crash
    for seconds, disposition in ((1, BackOff()), (SPENT_KEY_SECONDS - 2, BackOff()), (1, Done())):
        service.passes(seconds)
        assert service.deliver() == disposition
    assert service.outcome == ("NEEDS_REVIEW", [])
    assert service.counted.count("Alarm") == 4


def test_a_stored_refusal_is_followed_by_the_next_key(service: RefundHarness) -> None:
    """Too little balance: a refusal that is not replayed ends the delivery, and the row keeps how many keys are used
    up. Once the balance is topped up, the next delivery makes the refund, not the next day's."""
    for number in range(3):
        service.io.faults["stripe_refund"] = "balance too low"
        assert service.deliver() == BackOff()
        assert (len(service.stripe.ours.keys), service.row.get("key_number", 0)) == (number + 1, number)
    assert service.counted.count("Alarm") == 3
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", [400])


def test_the_row_names_a_later_key_before_it_is_used(service: RefundHarness) -> None:
    """The worker is killed once it has sent, and Stripe executes the request hours after it has forgotten the first
    key: sent again before that, the first key would make a second refund."""
    service.io.faults["stripe_refund"] = "balance too low"
    assert service.deliver() == BackOff()
    service.io.faults["stripe_refund"] = "500, executed 20 hours later"
    service.passes(21 * HOUR)
    service.io.at["stripe refund answered"] = crash
    with pytest.raises(KeyboardInterrupt):
        service.deliver()
    service.io.faults.clear()
    service.passes(T0 + 24 * HOUR + 60 - service.io.time)
    assert (service.deliver(), service.row["key_number"]) == (BackOff(), 1)
    service.passes(17 * HOUR)
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", [400])


def test_no_later_key_is_used_from_22_hours_on(service: RefundHarness) -> None:
    """Stripe may forget the first key soon, and beside it a later one would refund again. 47 hours after the request
    nothing can be executed under a later key any more, and the first one is sent again."""
    for _ in range(2):
        service.io.faults["stripe_refund"] = "balance too low"
        service.deliver()
    for age_hours in (22, 46):
        service.passes(T0 + age_hours * HOUR - service.io.time)
        assert service.deliver() == BackOff()
        assert service.refunded == []
    service.passes(HOUR)
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", [400])


def test_a_500_whose_key_may_be_forgotten_is_not_sent_again(service: RefundHarness) -> None:
    """No delivery came for a day: Stripe may still execute the earlier request beside a new one."""
    service.io.faults["stripe_refund"] = "500, executed two days later"
    assert service.deliver() == BackOff()
    service.passes(25 * HOUR)
    service.stripe.forget_keys()
    assert (service.deliver(), service.refunded) == (BackOff(), [])
    service.passes(23 * HOUR)
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", [400])


def test_a_replayed_success_is_looked_up(service: RefundHarness) -> None:
    """Another worker has made the refund, and the bank has returned it: the stored answer still says `succeeded`."""

    def made_and_returned() -> None:
        request = FrozenRefund.of(EVENT.data, PAYMENT_INTENT)
        assert StripeRefunds(client_of(service.stripe)).create(request).refund
        service.stripe.return_refund(service.stripe.refunds[0])

    service.io.at["stripe refund"] = made_and_returned
    assert service.deliver() == Done()
    assert service.outcome == ("FAILED", [])


def test_an_answer_with_other_metadata_is_not_the_refund(service: RefundHarness) -> None:
    """Ours may have been made all the same: an alarm is raised, and it is looked up before it is sent again."""

    class Crossed(ShopStripe):
        def send(self, name: str, *given: Any, **named: Any) -> Any:
            answer = super().send(name, *given, **named)
            if name != "refund":
                return answer
            metadata = {"order_id": "ord_" + "b" * 32, "refund_id": REFUND_ID}
            other = {"id": "re_9", "status": "failed", "metadata": metadata}
            return SdkObject({**answer.to_dict(), **other}, answer.last_response)

    service.stripe = charged(Crossed(service.io, harsh=True))
    assert service.deliver() == BackOff()
    assert (service.row["state"], service.row["unanswered_at"]) == ("PENDING", service.io.time)
    assert "Alarm" in service.counted
    assert service.deliver() == Done()
    assert service.row["stripe_refund_id"] == "re_0"
    assert service.outcome == ("SUCCEEDED", [400])


# ---------------------------------------------------------------- lookups and time


def test_a_failed_lookup_sends_nothing(service: RefundHarness) -> None:
    """The next delivery looks up again."""
    service.io.faults["stripe_refunds"] = "429"
    assert service.deliver() == BackOff()
    assert not service.stripe.ours.keys
    assert service.deliver() == Done()
    assert service.refunded == [400]


def test_an_incomplete_lookup_sends_nothing(service: RefundHarness) -> None:
    """Stripe lists more refunds than are read: an alarm is raised."""
    service.io.at["stripe refunds"] = raises(LookupInconclusive())
    assert service.deliver() == BackOff()
    assert (len(service.stripe.ours.keys), "Alarm" in service.counted) == (0, True)


def test_no_request_begins_after_the_deadline(service: RefundHarness) -> None:
    """The lookup took all of the time: the next delivery looks up again."""
    service.io.at["stripe refunds"] = lambda: service.passes(20)
    assert service.deliver() == BackOff()
    assert (service.refunded, service.row["lease_expires_at"]) == ([], 0)
    assert service.deliver() == Done()


@pytest.mark.parametrize(("hours", "overdue"), [(23, 0), (25, 1)])
def test_a_refund_that_is_unfinished_for_a_day_raises_an_alarm(
    service: RefundHarness, hours: int, overdue: int
) -> None:
    """An outage alone raises none."""
    service.io.faults["stripe_refund"] = "503"
    service.passes(hours * HOUR)
    assert service.deliver() == BackOff()
    assert (service.counted.count("RefundOverdue"), service.counted.count("Alarm")) == (overdue, overdue)


# ---------------------------------------------------------------- refusals


def test_a_refund_of_money_that_was_refunded_by_hand_has_failed(service: RefundHarness) -> None:
    """No more is refunded than was paid. The code says why, an alarm is raised, and the amount is free again."""
    service.made_by_hand(AMOUNT_MINOR)
    assert service.deliver() == Done()
    assert service.outcome == ("FAILED", [AMOUNT_MINOR])
    assert (service.row["failure_code"], "Alarm" in service.counted) == ("charge_already_refunded", True)


def test_a_refusal_after_a_released_lease_is_a_failure(service: RefundHarness) -> None:
    """A worker that has released its lease sends nothing anymore."""
    service.io.faults["stripe_refund"] = "401"
    assert service.deliver() == BackOff()
    service.made_by_hand(AMOUNT_MINOR)
    assert service.deliver() == Done()
    assert service.row["state"] == "FAILED"


def test_a_refusal_is_looked_up_before_it_is_a_failure(service: RefundHarness) -> None:
    """The reason may be this very refund, made meanwhile, whose key was forgotten."""
    made = {"refund_id": REFUND_ID, "order_id": ORDER_ID}
    service.io.at["stripe refund"] = lambda: service.made_by_hand(AMOUNT_MINOR, **made)
    assert service.deliver(requested_with(amount_minor=AMOUNT_MINOR)) == Done()
    assert service.outcome == ("SUCCEEDED", [AMOUNT_MINOR])


def test_a_refusal_is_not_a_failure_while_an_earlier_worker_may_send(service: RefundHarness) -> None:
    """It has looked up and not yet sent. Another worker is refused, and then there is money left again."""

    def another_is_refused() -> None:
        by_hand = service.made_by_hand(AMOUNT_MINOR)
        assert service.deliver(clock_differs=299) == Done()
        assert service.row["state"] == "NEEDS_REVIEW"
        service.stripe.return_refund(by_hand)

    service.io.at["stripe refund"] = another_is_refused
    service.deliver()
    assert service.outcome == ("NEEDS_REVIEW", [400])


def test_a_refusal_is_not_a_failure_while_an_earlier_request_may_be_executed(service: RefundHarness) -> None:
    """A gateway answered 502 and passed the request on. The next one is refused, and then there is money left again."""
    service.io.faults["stripe_refund"] = "502, executed 20 hours later"
    assert service.deliver() == BackOff()
    assert service.row["unanswered_at"] == service.io.time
    by_hand = service.made_by_hand(AMOUNT_MINOR)
    assert service.deliver() == Done()
    service.stripe.return_refund(by_hand)
    service.passes(DAY)
    assert service.outcome == ("NEEDS_REVIEW", [400])


def test_a_refused_request_waits_an_hour_then_for_a_person(service: RefundHarness) -> None:
    """The row has Stripe's message."""
    refusal = raises(sdk_error(400, code="parameter_unknown", message="no such parameter"))
    service.io.at["stripe refund"] = refusal
    assert service.deliver() == BackOff()
    assert (service.row["refused_at"], service.row["stripe_message"]) == (service.io.time, "no such parameter")
    service.passes(REFUSED_SECONDS)
    service.io.at["stripe refund"] = refusal
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["failure_code"]) == ("NEEDS_REVIEW", "parameter_unknown")


# ---------------------------------------------------------------- what a lookup finds


def test_two_refunds_of_one_id_need_a_person(service: RefundHarness) -> None:
    """No third one is made."""
    for _ in range(2):
        service.made_by_hand(400, refund_id=REFUND_ID)
    assert service.deliver() == Done()
    assert service.outcome == ("NEEDS_REVIEW", [400, 400])


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
def test_each_status_of_a_refund_at_stripe(service: RefundHarness, status: str, state: str, code: str | None) -> None:
    """Stripe documents all but the last."""
    made = service.made_by_hand(400, refund_id=REFUND_ID)
    made.status, made.failure_reason = status, RETURNED
    assert service.deliver() == Done()
    row = service.row
    assert (row["state"], row["stripe_refund_id"], row.get("failure_code")) == (state, "re_0", code)


def test_a_refusal_that_is_replayed_after_22_hours_is_followed_by_no_later_key(service: RefundHarness) -> None:
    """Stripe may forget the first key soon: sent under the next one, the refund could be made again."""
    service.io.faults["stripe_refund"] = "balance too low"
    assert service.deliver() == BackOff()
    service.passes(23 * HOUR)
    assert service.deliver() == BackOff()
    assert (service.row.get("key_number", 0), service.refunded) == (0, [])
    service.passes(2 * HOUR)
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", [400])
