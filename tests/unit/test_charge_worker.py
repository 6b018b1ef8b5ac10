"""The worker finishes a claimed payment: every path, over a real store in memory and a Stripe that keeps keys.

`stripe.successes` is the oracle: one entry for each time that money was taken.
"""

from dataclasses import replace
from typing import Any

import pytest
import stripe as stripe_sdk

from onecharge.payments.charges.cancel import finish_cancellation
from onecharge.payments.charges.charge import STEPS_MAX, charge
from onecharge.payments.charges.protocol import CancelReason, Payment
from onecharge.payments.leases import Claimed
from onecharge.payments.stripe_responses import LookupInconclusive, ResponseKind
from onecharge.payments.time_bounds import LOOKUP_AGE_SECONDS, REFUSED_SECONDS
from onecharge.payments.work import Unfinished
from onecharge.payments.work import work as work_on
from onecharge.runtime.consumer import BackOff, Done
from testing.builders import BOUNDS, ORDER_ID, REQUEST, T0, intent
from testing.charge_harness import ChargeHarness
from testing.fake_gateway import (
    NO_ANSWER,
    Execute,
    FakeGateway,
    afterwards,
    executed_but,
    killed,
    killed_after,
    meanwhile,
    refused,
)
from testing.harness import Log
from testing.tools import Cancellation

OLD = T0 + LOOKUP_AGE_SECONDS
CREATE_0, CREATE_1 = REQUEST.create_key(0), REQUEST.create_key(1)
CONFIRM_0 = f"order:{ORDER_ID}:1:pi_0"


@pytest.fixture
def service() -> ChargeHarness:
    return ChargeHarness()


def operations(service: ChargeHarness) -> list[str]:
    return [operation for operation, _ in service.stripe.requests]


def outcome(service: ChargeHarness) -> tuple[str, str | None]:
    """The row's state, and its PaymentIntent."""
    return service.row["state"], service.row.get("payment_intent_id")


def work(service: ChargeHarness, *, deadline: float = OLD * 2) -> Payment | Unfinished:
    """Claim the first attempt, and work on it."""
    claim = service.store.claim(
        REQUEST,
        attempt=1,
        payment_method="pm_card_visa",
        correlation_id="c",
        owner="owner",
        now=int(service.now),
        lease_seconds=35,
    )
    assert isinstance(claim, Claimed)
    tools = replace(service.tools(), deadline=deadline)
    return work_on(lambda row: charge(row, tools), claim.row, tools.store, tools.instruments)


def after_the_lease(service: ChargeHarness) -> None:
    service.now += BOUNDS.lease_seconds


# ---------------------------------------------------------------- ensure: write the id, then confirm


def test_a_fresh_order_is_created_written_down_and_confirmed(service: ChargeHarness) -> None:
    """In this order: when money can move, the row names the PaymentIntent."""
    seen: list[tuple[str, str | None]] = []
    service.stripe.next("confirm", meanwhile(lambda: seen.append(outcome(service))))
    assert service.deliver() == Done()
    assert service.stripe.requests == [("create", CREATE_0), ("confirm", CONFIRM_0)]
    assert seen == [("PENDING", "pi_0")]
    assert outcome(service) == ("SUCCEEDED", "pi_0")


def test_a_replayed_create_is_retrieved(service: ChargeHarness) -> None:
    """It proves which PaymentIntent it is, not what it is by now: here it has been confirmed."""
    service.deliver()
    service.lose_row()
    assert service.deliver() == Done()
    assert operations(service) == ["create", "confirm", "create", "retrieve"]
    assert outcome(service) == ("SUCCEEDED", "pi_0")
    assert service.stripe.successes == ["pi_0"]


def test_a_create_whose_answer_is_lost_is_sent_again_under_its_key(service: ChargeHarness) -> None:
    """No second PaymentIntent."""
    service.stripe.next("create", executed_but(ResponseKind.NO_ANSWER))
    service.stripe.stored.clear()
    assert [service.deliver(), service.deliver()] == [BackOff(), Done()]
    assert service.stripe.sent("create") == [CREATE_0] * 2
    assert service.stripe.successes == [service.row["payment_intent_id"]]


@pytest.mark.parametrize(
    "kind", [ResponseKind.RETRYABLE, ResponseKind.ACCOUNT, ResponseKind.NO_ANSWER, ResponseKind.WRONG_METADATA]
)
def test_a_502_that_nothing_stored_keeps_its_generation(service: ChargeHarness, kind: ResponseKind) -> None:
    """Issue: row lost. What nothing stored may yet take effect under its key, and no other is opened beside it."""
    service.stripe.next("create", refused(kind), refused(kind))
    assert [service.deliver(), service.deliver(), service.deliver()] == [BackOff(), BackOff(), Done()]
    assert service.stripe.sent("create") == [CREATE_0] * 3
    assert ("Alarm" in service.counted) is (kind in (ResponseKind.ACCOUNT, ResponseKind.WRONG_METADATA))


def test_a_stored_500_is_followed_by_the_next_generation(service: ChargeHarness) -> None:
    """What may yet be created under the first key is never confirmed."""
    service.stripe.next("create", service.stripe.store_failure(CREATE_0))
    assert service.deliver() == BackOff()  # Not yet a replay: the answer may only be late.
    assert service.row["generation"] == 0
    service.stripe.add(ORDER_ID, intent("requires_payment_method", payment_intent_id="pi_orphan"))
    assert service.deliver() == Done()
    assert service.row["generation"] == 1
    assert service.stripe.sent("create") == [CREATE_0, CREATE_0, CREATE_1]
    assert service.stripe.successes == [service.row["payment_intent_id"]]
    assert service.stripe.intents["pi_orphan"].status == "requires_payment_method"


def test_row_lost_in_generation_2(service: ChargeHarness) -> None:
    """A worker without the row finds the same way through the stored answers, to the same PaymentIntent."""
    service.stripe.next("create", service.stripe.store_failure(CREATE_0))
    service.deliver()
    service.stripe.next("create", lambda execute: execute(), service.stripe.store_failure(CREATE_1))
    assert [service.deliver(), service.deliver()] == [BackOff(), Done()]
    assert service.row["generation"] == 2
    service.lose_row()
    assert service.deliver() == Done()
    assert len(service.stripe.successes) == 1
    assert outcome(service) == ("SUCCEEDED", service.stripe.successes[0])


def test_a_key_used_with_other_parameters_is_looked_up(service: ChargeHarness) -> None:
    """What was made of it is canceled, the next generation follows, and an alarm is raised."""
    service.stripe.add(ORDER_ID, intent("requires_payment_method", payment_intent_id="pi_other"))
    service.stripe.stored[CREATE_0] = ("other parameters", service.stripe.retrieve("pi_other"))
    service.stripe.requests.clear()
    assert service.deliver() == Done()
    assert operations(service) == ["create", "create", "find", "cancel", "confirm"]
    assert service.stripe.sent("create") == [CREATE_0, CREATE_1]
    assert "Alarm" in service.counted


def test_other_parameters_before_a_stored_failure_are_not_forgotten(service: ChargeHarness) -> None:
    """No key leads to what an earlier release has charged: it is looked up, however many generations that takes."""
    service.stripe.add(ORDER_ID, intent("requires_payment_method", payment_intent_id="pi_other"))
    service.stripe.show("pi_other", status="succeeded")
    service.stripe.stored[CREATE_0] = ("other parameters", service.stripe.retrieve("pi_other"))
    service.stripe.next("create", lambda execute: execute(), refused(ResponseKind.STORED_FAILURE))
    for _ in range(3):
        service.deliver()
    assert outcome(service) == ("SUCCEEDED", "pi_other")
    assert service.stripe.successes == ["pi_other"]


# ---------------------------------------------------------------- 22 hours old: look up before the id is written


def test_an_old_order_is_looked_up_before_its_id_is_written(service: ChargeHarness) -> None:
    """Nothing else there: it is confirmed; the row proves nothing, for it may have been lost."""
    service.now = OLD
    found_before_the_write: list[bool] = []
    service.stripe.next("create", afterwards(lambda: found_before_the_write.append("payment_intent_id" in service.row)))
    assert service.deliver() == Done()
    assert operations(service) == ["create", "find", "confirm"]
    assert found_before_the_write == [False]


def test_an_order_younger_than_that_is_not_looked_up(service: ChargeHarness) -> None:
    """Its keys are remembered."""
    service.now = OLD - 1
    service.deliver()
    assert operations(service) == ["create", "confirm"]


def test_redriven_on_day_13_with_its_row_lost(service: ChargeHarness) -> None:
    """The charge of day one is found, and none is made: what was created beside it is never confirmed."""
    service.deliver()
    service.lose_row()
    service.stripe.forget_keys()
    service.now += 13 * 24 * 3600
    assert service.deliver() == Done()
    assert operations(service)[2:] == ["create", "find"]
    assert outcome(service) == ("SUCCEEDED", "pi_0")
    assert service.stripe.successes == ["pi_0"]


def test_two_that_succeeded_are_for_a_person(service: ChargeHarness) -> None:
    """With an alarm."""
    for each in ("pi_a", "pi_b"):
        service.stripe.add(ORDER_ID, intent("succeeded", payment_intent_id=each))
    service.now = OLD
    assert service.deliver() == Done()
    assert service.row["state"] == "NEEDS_REVIEW"
    assert "Alarm" in service.counted


def test_what_was_canceled_by_the_customer_stays_canceled(service: ChargeHarness) -> None:
    """Though the row has been lost: the trace is at Stripe."""
    assert service.cancel() is Cancellation.CANCELED
    service.lose_row()
    service.stripe.forget_keys()
    service.now = OLD
    assert service.deliver() == Done()
    assert service.row["state"] == "CANCELED"
    assert service.stripe.successes == []


@pytest.mark.parametrize("status", ["requires_payment_method", "requires_confirmation", "requires_action"])
def test_what_is_found_open_is_canceled_and_our_own_confirmed(service: ChargeHarness, status: str) -> None:
    """What is merely found is never confirmed: somebody's confirm of it may be on its way."""
    service.stripe.add(ORDER_ID, intent(status, payment_intent_id="pi_found", generation=4))
    service.now = OLD
    assert service.deliver() == Done()
    assert operations(service) == ["create", "find", "cancel", "confirm"]
    assert service.stripe.successes == ["pi_1"]
    assert service.stripe.intents["pi_found"].cancellation_reason == "abandoned"


def test_what_succeeds_while_it_is_canceled_has_succeeded(service: ChargeHarness) -> None:
    """Stripe decides the race."""
    service.stripe.add(ORDER_ID, intent("requires_payment_method", payment_intent_id="pi_found"))
    service.stripe.next("cancel", meanwhile(lambda: service.stripe.show("pi_found", status="succeeded")))
    service.now = OLD
    assert service.deliver() == Done()
    assert outcome(service) == ("SUCCEEDED", "pi_found")
    assert service.stripe.sent("confirm") == []


def test_what_is_found_processing_is_waited_for(service: ChargeHarness) -> None:
    """Nothing is confirmed beside it, however often the message comes back."""
    service.stripe.add(ORDER_ID, intent("processing", payment_intent_id="pi_found"))
    service.now = OLD
    assert [service.deliver(), service.deliver()] == [BackOff()] * 2
    assert operations(service) == ["create", "find", "create", "retrieve", "find"]
    service.stripe.show("pi_found", status="succeeded")
    assert service.deliver() == Done()
    assert outcome(service) == ("SUCCEEDED", "pi_found")


@pytest.mark.parametrize(
    ("error", "alarm"),
    [
        (stripe_sdk.APIConnectionError("…"), False),
        (stripe_sdk.APIError("…", http_status=500), False),
        (stripe_sdk.PermissionError("…", http_status=403, json_body={"error": {"type": "…"}}), True),
        (LookupInconclusive(), True),
    ],
)
def test_a_lookup_that_fails_proves_nothing(service: ChargeHarness, error: Exception, alarm: bool) -> None:
    """Nothing is written or confirmed; and what does not pass by itself is an alarm."""
    service.now = OLD
    service.stripe.lookup = error
    assert service.deliver() == BackOff()
    assert operations(service) == ["create", "find"]
    assert "payment_intent_id" not in service.row
    assert ("Alarm" in service.counted) is alarm


def test_a_lookup_is_repeated_for_every_generation_of_an_old_order(service: ChargeHarness) -> None:
    """Its PaymentIntent is written down and canceled by Stripe: keys may be forgotten, so everything is seen again."""
    service.stripe.next("confirm", NO_ANSWER)
    service.deliver()
    service.stripe.show("pi_0", status="canceled", cancellation_reason="automatic")
    service.now = OLD
    assert service.deliver() == Done()
    assert operations(service)[2:] == ["retrieve", "create", "find", "confirm"]


def test_an_old_order_with_a_usable_payment_intent_needs_no_lookup(service: ChargeHarness) -> None:
    """It is written down, and can succeed once."""
    service.stripe.next("confirm", NO_ANSWER)
    service.deliver()
    service.now = OLD + 10**6
    service.stripe.forget_keys()
    assert service.deliver() == Done()
    assert operations(service)[2:] == ["retrieve", "confirm"]


def test_decided_at_22_59_59_and_sent_11_seconds_later(service: ChargeHarness) -> None:
    """Issue: clocks. What counts is the clock when the answer is there: the order is old by then, and is looked up."""
    service.now = OLD - 1

    def eleven_seconds_go_by() -> None:
        service.now += 11

    service.stripe.next("create", meanwhile(eleven_seconds_go_by))
    assert service.deliver() == Done()
    assert operations(service) == ["create", "find", "confirm"]
    assert service.stripe.successes == ["pi_0"]


def test_a_row_restored_with_its_lease_and_a_create_that_took_effect_late(service: ChargeHarness) -> None:
    """Found by the specification: two workers past 22 hours, each with a PaymentIntent of its own, make one charge.

    A's row is lost while A creates, B charges, and the row that A claimed is restored with A's lease. A's lookup comes
    after its create, so it sees what B did.
    """
    service.now = OLD
    service.stripe.banks["pm_card_visa"] = "processing"
    restored: list[Any] = []

    def b_charges() -> None:
        [item] = service.client.scan(TableName="payments")["Items"]
        restored.append(item)
        service.lose_row()
        service.deliver()
        service.stripe.forget_keys()
        service.client.put_item(TableName="payments", Item=restored[0])

    service.stripe.next("create", meanwhile(b_charges))
    assert service.deliver() == BackOff()
    service.stripe.show("pi_0", status="succeeded")
    after_the_lease(service)
    assert service.deliver() == Done()
    assert service.stripe.successes == ["pi_0"]
    assert outcome(service) == ("SUCCEEDED", "pi_0")


def test_sent_11_seconds_later_when_another_has_charged(service: ChargeHarness) -> None:
    """Issue: clocks. The key was forgotten meanwhile, the row lost: the charge is found, and none is made."""
    service.now = OLD - 1
    service.deliver()
    service.lose_row()

    def the_key_is_forgotten() -> None:
        service.stripe.forget_keys()
        service.now += 11

    service.now = OLD - 1
    service.stripe.next("create", meanwhile(the_key_is_forgotten))
    assert service.deliver() == Done()
    assert outcome(service) == ("SUCCEEDED", "pi_0")
    assert service.stripe.successes == ["pi_0"]


# ---------------------------------------------------------------- confirm


@pytest.mark.parametrize(
    ("answer", "state", "code"),
    [
        ("succeeded", "SUCCEEDED", None),
        ("insufficient_funds", "DECLINED", "insufficient_funds"),
        ("authentication_required", "REQUIRES_ACTION", None),
        ("requires_action", "REQUIRES_ACTION", None),
    ],
)
def test_what_the_bank_answers_is_final(service: ChargeHarness, answer: str, state: str, code: str | None) -> None:
    """Later deliveries ask nobody."""
    service.stripe.banks["pm_card_visa"] = answer
    assert [service.deliver(), service.deliver()] == [Done(), Done()]
    assert (service.row["state"], service.row.get("decline_code")) == (state, code)
    assert operations(service) == ["create", "confirm"]


def test_what_the_bank_processes_is_waited_for(service: ChargeHarness) -> None:
    """The row stays, and the next delivery retrieves; nothing is confirmed twice."""
    service.stripe.banks["pm_card_visa"] = "processing"
    assert [service.deliver(), service.deliver()] == [BackOff(), BackOff()]
    service.stripe.show("pi_0", status="succeeded")
    assert service.deliver() == Done()
    assert operations(service) == ["create", "confirm", "retrieve", "retrieve"]


@pytest.mark.parametrize(
    "kind", [ResponseKind.NO_ANSWER, ResponseKind.RETRYABLE, ResponseKind.ACCOUNT, ResponseKind.WRONG_METADATA]
)
def test_a_confirm_without_an_answer_is_retrieved_first(service: ChargeHarness, kind: ResponseKind) -> None:
    """If it took effect that is seen; if not it is sent again, under the same key."""
    service.stripe.next("confirm", refused(kind), executed_but(kind))
    assert [service.deliver(), service.deliver(), service.deliver()] == [BackOff(), BackOff(), Done()]
    assert service.stripe.sent("confirm") == [CONFIRM_0] * 2
    assert operations(service)[-1] == "retrieve"
    assert service.stripe.successes == ["pi_0"]


@pytest.mark.parametrize("status", ["succeeded", "canceled"])
@pytest.mark.parametrize("with_intent", [True, False])
def test_an_unexpected_state_is_acted_on(service: ChargeHarness, status: str, with_intent: bool) -> None:
    """What it is decides: paid, or canceled by Stripe and followed by the next generation."""

    def another_was_first(_: Execute) -> Any:
        service.stripe.show("pi_0", status=status, cancellation_reason=None)
        shown = service.stripe.intents["pi_0"] if with_intent else None
        return refused(ResponseKind.UNEXPECTED_STATE, "payment_intent_unexpected_state", shown)(_)

    service.stripe.next("confirm", another_was_first)
    assert service.deliver() == Done()
    assert len(service.stripe.successes) == 1
    assert outcome(service) == ("SUCCEEDED", "pi_0" if status == "succeeded" else "pi_1")


@pytest.mark.parametrize("replayed", [True, False])
def test_an_unexpected_state_of_what_is_open_by_now_is_abandoned(service: ChargeHarness, replayed: bool) -> None:
    """Its key has had its answer: asked again for ever it would be the same one."""
    failure = refused(ResponseKind.UNEXPECTED_STATE, "payment_intent_unexpected_state")
    if replayed:
        service.stripe.next("confirm", NO_ANSWER)
        service.deliver()
        service.stripe.stored[CONFIRM_0] = ("pm_card_visa", failure(lambda: service.stripe.retrieve("pi_0")))
    else:
        service.stripe.next("confirm", failure)
    assert service.deliver() == Done()
    assert service.stripe.intents["pi_0"].cancellation_reason == "abandoned"
    assert service.stripe.successes == ["pi_1"]


def test_an_unexpected_state_does_not_make_another_s_action_ours(service: ChargeHarness) -> None:
    """It waits for the card of the attempt before: this attempt takes the next generation."""
    service.stripe.banks["pm_card_visa"] = "lost_card"
    service.deliver()

    def the_first_card_waits(_: Execute) -> Any:
        service.stripe.show("pi_0", status="requires_action", payment_method="pm_card_visa", error_code=None)
        return refused(ResponseKind.UNEXPECTED_STATE, shown=service.stripe.intents["pi_0"])(_)

    service.stripe.next("confirm", the_first_card_waits)
    assert service.deliver(attempt=2, payment_method="pm_second") == Done()
    assert outcome(service) == ("SUCCEEDED", "pi_1")


def test_a_stored_failure_is_retrieved_then_abandoned(service: ChargeHarness) -> None:
    """It is answered so for ever: cancel, then the next generation, with a key of its own."""
    service.stripe.next("confirm", service.stripe.store_failure(CONFIRM_0))
    assert [service.deliver(), service.deliver()] == [BackOff(), Done()]
    assert operations(service) == [
        "create",
        "confirm",
        "retrieve",
        "confirm",
        "retrieve",
        "cancel",
        "create",
        "confirm",
    ]
    assert service.stripe.sent("confirm") == [CONFIRM_0, CONFIRM_0, f"order:{ORDER_ID}:1:pi_1"]
    assert service.stripe.successes == ["pi_1"]


def test_a_stored_failure_does_not_make_another_attempt_s_decline_ours(service: ChargeHarness) -> None:
    """The PaymentIntent still shows the first card's decline: the second was never tried, and is tried now."""
    service.stripe.banks["pm_card_visa"] = "lost_card"
    service.deliver()
    service.stripe.next("confirm", refused(ResponseKind.STORED_FAILURE, "503"))
    assert service.deliver(attempt=2, payment_method="pm_second") == Done()
    assert service.stripe.sent("confirm")[-2:] == [f"order:{ORDER_ID}:2:pi_0", f"order:{ORDER_ID}:2:pi_1"]
    assert outcome(service) == ("SUCCEEDED", "pi_1")


@pytest.mark.parametrize("when", ["before the retrieve", "before the cancel"])
def test_a_stored_failure_that_takes_effect_late(service: ChargeHarness, when: str) -> None:
    """Stripe rolls forward: it has succeeded, and nothing is created."""
    service.stripe.next("confirm", service.stripe.store_failure(CONFIRM_0))
    service.deliver()
    succeed = meanwhile(lambda: service.stripe.show("pi_0", status="succeeded"))
    service.stripe.next("retrieve", lambda execute: execute())
    service.stripe.next("retrieve" if when == "before the retrieve" else "cancel", succeed)
    assert service.deliver() == Done()
    assert service.stripe.successes == ["pi_0"]


@pytest.mark.parametrize("kind", ["424", "503", "lock_timeout"])
def test_stored_non_answers_are_not_sent_again_for_23_hours(service: ChargeHarness, kind: str) -> None:
    """Issue: stored non-answers. One confirm learns that it is a replay; then the escape, at once."""
    service.stripe.next("confirm", refused(ResponseKind.STORED_FAILURE, kind))
    assert service.deliver() == Done()
    assert service.stripe.sent("confirm") == [CONFIRM_0, f"order:{ORDER_ID}:1:pi_1"]
    assert service.stripe.successes == ["pi_1"]


@pytest.mark.parametrize(
    ("status", "state"),
    [("succeeded", "SUCCEEDED"), ("processing", "PENDING"), ("requires_action", "REQUIRES_ACTION")],
)
def test_a_402_whose_payment_intent_says_otherwise_is_no_decline(
    service: ChargeHarness, status: str, state: str
) -> None:
    """Issue: stored non-answers. The PaymentIntent decides."""

    def declined(_: Execute) -> Any:
        service.stripe.show("pi_0", status=status)
        return refused(ResponseKind.DECLINED, "card_declined", service.stripe.intents["pi_0"])(_)

    service.stripe.next("confirm", declined)
    service.deliver()
    assert service.row["state"] == state


def test_a_402_without_its_payment_intent_is_retrieved(service: ChargeHarness) -> None:
    """It is a decline once the PaymentIntent says so."""

    def declined(_: Execute) -> Any:
        service.stripe.show("pi_0", error_code="lost_card", latest_charge="ch_1")
        return refused(ResponseKind.DECLINED, "lost_card")(_)

    service.stripe.next("confirm", declined)
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["decline_code"]) == ("DECLINED", "lost_card")


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (ResponseKind.PAYMENT_METHOD_REFUSED, "payment_method_unknown"),
        (ResponseKind.PAYMENT_METHOD_REFUSED, "payment_method_used"),
        (ResponseKind.PAYMENT_METHOD_REFUSED, "payment_method_of_another_customer"),
        (ResponseKind.PAYMENT_METHOD_REFUSED, "payment_method_unactivated"),
        (ResponseKind.AMOUNT_REFUSED, "amount_too_small"),
    ],
)
def test_dead_ends_are_declines(service: ChargeHarness, kind: ResponseKind, code: str, shown: bool) -> None:
    """Issue: dead ends. With Stripe's request id; another card is another attempt, on the same PaymentIntent.

    Stripe may put the PaymentIntent into the error, which is open as it was before.
    """

    def refuses(_: Execute) -> Any:
        return refused(kind, code, service.stripe.intents["pi_0"] if shown else None)(_)

    service.stripe.next("confirm", refuses)
    assert service.deliver() == Done()
    row = service.row
    assert (row["state"], row["decline_code"], row["stripe_request_id"]) == ("DECLINED", code, "req_1")
    assert row["stripe_message"] == "message"
    assert service.deliver(attempt=2, payment_method="pm_other") == Done()
    assert outcome(service) == ("SUCCEEDED", "pi_0")


def test_a_card_is_used_up_because_this_very_payment_intent_succeeded(service: ChargeHarness) -> None:
    """With the key forgotten, the refusal is all that Stripe says: it is retrieved before anybody says DECLINED."""

    def used_up(_: Execute) -> Any:
        service.stripe.show("pi_0", status="succeeded")
        return refused(ResponseKind.PAYMENT_METHOD_REFUSED, "payment_method_used")(_)

    service.stripe.next("confirm", used_up)
    assert service.deliver() == Done()
    assert outcome(service) == ("SUCCEEDED", "pi_0")


def test_30_cents_are_declined_at_the_create(service: ChargeHarness) -> None:
    """Issue: dead ends. There is no PaymentIntent, and nothing to review."""
    service.stripe.next("create", refused(ResponseKind.AMOUNT_REFUSED, "amount_too_small"))
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["decline_code"]) == ("DECLINED", "amount_too_small")


@pytest.mark.parametrize("operation", ["create", "confirm"])
def test_what_stripe_refuses_waits_an_hour_then_for_a_person(service: ChargeHarness, operation: str) -> None:
    """With an alarm each time; if we mend it within the hour, the order is charged."""
    service.stripe.next(operation, *[refused(ResponseKind.INVALID, "parameter_unknown")] * 3)
    assert service.deliver() == BackOff()
    first = service.now
    service.now = first + REFUSED_SECONDS - 1
    assert service.deliver() == BackOff()
    assert service.row["stripe_request_id"] == "req_1"
    service.now = first + REFUSED_SECONDS
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["decline_code"]) == ("NEEDS_REVIEW", "parameter_unknown")
    assert service.counted.count("Alarm") == 3


def test_what_we_mend_within_the_hour_is_charged(service: ChargeHarness) -> None:
    """And a refusal much later has an hour of its own."""
    service.stripe.banks["pm_card_visa"] = "lost_card"
    service.stripe.next("confirm", refused(ResponseKind.INVALID))
    assert [service.deliver(), service.deliver()] == [BackOff(), Done()]
    service.now += REFUSED_SECONDS
    service.stripe.next("confirm", refused(ResponseKind.INVALID))
    assert service.deliver(attempt=2, payment_method="pm_other") == BackOff()
    assert service.row["state"] == "PENDING"


def test_other_money_is_for_a_person(service: ChargeHarness) -> None:
    """The PaymentIntent that is written down is not the frozen amount's: it is not confirmed."""
    service.stripe.next("confirm", NO_ANSWER)
    service.deliver()
    service.stripe.show("pi_0", amount_minor=1)
    assert service.deliver() == Done()
    assert service.row["state"] == "NEEDS_REVIEW"
    assert service.stripe.successes == []


def test_stripe_cancels_whatever_is_created(service: ChargeHarness) -> None:
    """One invocation does not go on for ever; somebody hears of it, and the next delivery tries again."""

    def canceled_at_once(execute: Execute) -> Any:
        response = execute()
        assert response.intent
        service.stripe.show(response.intent.payment_intent_id, status="canceled", cancellation_reason="fraudulent")
        return service.stripe.retrieve(response.intent.payment_intent_id)

    service.stripe.next("create", *[canceled_at_once] * STEPS_MAX)
    assert service.deliver() == BackOff()
    assert "Alarm" in service.counted
    assert service.deliver() == Done()
    assert len(service.stripe.sent("create")) == STEPS_MAX + 1


# ---------------------------------------------------------------- attempts


def test_attempt_2_with_the_same_card_after_a_decline_is_confirmed(service: ChargeHarness) -> None:
    """It is not declined unseen: the charge that the PaymentIntent shows is the first attempt's."""
    service.stripe.banks["pm_card_visa"] = "insufficient_funds"
    service.deliver()
    service.stripe.banks.clear()
    assert service.deliver(attempt=2) == Done()
    assert service.stripe.sent("confirm") == [CONFIRM_0, f"order:{ORDER_ID}:2:pi_0"]
    assert outcome(service) == ("SUCCEEDED", "pi_0")


def test_attempt_2_with_a_decline_whose_answer_is_lost(service: ChargeHarness) -> None:
    """The new charge is its own: declined, with its own code."""
    service.stripe.banks |= {"pm_card_visa": "insufficient_funds", "pm_second": "lost_card"}
    service.deliver()
    service.stripe.next("confirm", executed_but(ResponseKind.NO_ANSWER))
    assert service.deliver(attempt=2, payment_method="pm_second") == BackOff()
    assert service.deliver(attempt=2, payment_method="pm_second") == Done()
    assert (service.row["state"], service.row["decline_code"], service.row["attempt"]) == ("DECLINED", "lost_card", 2)


def test_a_decline_without_a_charge_is_not_the_next_attempt_s(service: ChargeHarness) -> None:
    """Authentication failed, so the bank was never asked: the third card is tried all the same."""
    service.stripe.banks["pm_card_visa"] = "insufficient_funds"
    service.deliver()
    service.stripe.show("pi_0", status="canceled", cancellation_reason="abandoned")

    def authentication_fails(_: Execute) -> Any:
        code = "payment_intent_authentication_failure"
        service.stripe.show("pi_1", error_code=code)
        return refused(ResponseKind.DECLINED, code, service.stripe.intents["pi_1"])(_)

    service.stripe.next("confirm", authentication_fails)
    service.deliver(attempt=2, payment_method="pm_second")
    assert service.row["state"] == "DECLINED"
    assert service.deliver(attempt=3, payment_method="pm_third") == Done()
    assert outcome(service) == ("SUCCEEDED", "pi_1")


def test_a_decline_without_a_charge_is_a_decline(service: ChargeHarness) -> None:
    """The confirm has been answered: nothing is abandoned for it, and no other PaymentIntent is created."""

    def authentication_fails(_: Execute) -> Any:
        service.stripe.show("pi_0", error_code="payment_intent_authentication_failure")
        return refused(ResponseKind.DECLINED, shown=service.stripe.intents["pi_0"])(_)

    service.stripe.next("confirm", authentication_fails)
    assert service.deliver() == Done()
    assert outcome(service) == ("DECLINED", "pi_0")
    assert operations(service) == ["create", "confirm"]


def test_a_replayed_confirm_is_retrieved(service: ChargeHarness) -> None:
    """It shows the PaymentIntent as it was: since then the customer's bank has refused to authenticate."""
    service.stripe.banks["pm_card_visa"] = "requires_action"
    service.stripe.next("confirm", killed_after)
    with pytest.raises(KeyboardInterrupt):
        service.deliver()
    code = "payment_intent_authentication_failure"
    response = service.stripe.retrieve("pi_0")
    service.stripe.stored[CONFIRM_0] = ("pm_card_visa", response)
    service.stripe.show("pi_0", status="requires_payment_method", error_code=code)
    after_the_lease(service)
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["decline_code"]) == ("DECLINED", code)


def test_a_confirm_key_that_was_sent_with_another_card(service: ChargeHarness) -> None:
    """What the PaymentIntent shows is the attempt's all the same; and somebody hears of it."""
    service.stripe.next("confirm", NO_ANSWER)
    service.deliver()
    service.stripe.stored[CONFIRM_0] = ("pm_other", service.stripe.retrieve("pi_0"))
    service.stripe.next("retrieve", lambda execute: execute())
    service.stripe.next("retrieve", meanwhile(lambda: service.stripe.show("pi_0", error_code="lost_card")))
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["decline_code"]) == ("DECLINED", "lost_card")
    assert "Alarm" in service.counted


def test_what_stripe_does_not_cancel_is_left_alone(service: ChargeHarness) -> None:
    """As long as it can be confirmed nothing is created beside it, and nobody says CANCELED."""
    service.stripe.next("confirm", NO_ANSWER)
    service.deliver()
    service.stripe.next("cancel", lambda _: service.stripe.retrieve("pi_0"))
    assert service.cancel() is Cancellation.CANCELING
    assert "Alarm" in service.counted
    assert service.cancel() is Cancellation.CANCELED


def test_an_action_that_nobody_takes_makes_way_for_another_card(service: ChargeHarness) -> None:
    """The waiting PaymentIntent is canceled as abandoned before the next generation is confirmed."""
    service.stripe.banks["pm_card_visa"] = "requires_action"
    service.deliver()
    assert service.deliver(attempt=2, payment_method="pm_second") == Done()
    assert service.stripe.intents["pi_0"].cancellation_reason == "abandoned"
    assert outcome(service) == ("SUCCEEDED", "pi_1")


def test_a_customer_who_authenticates_while_another_card_is_tried(service: ChargeHarness) -> None:
    """Stripe decides the race: one charge."""
    service.stripe.banks["pm_card_visa"] = "requires_action"
    service.deliver()
    service.stripe.next("cancel", meanwhile(lambda: service.stripe.show("pi_0", status="succeeded")))
    assert service.deliver(attempt=2, payment_method="pm_second") == Done()
    assert service.stripe.successes == ["pi_0"]
    assert outcome(service) == ("SUCCEEDED", "pi_0")


# ---------------------------------------------------------------- cancellations


def test_a_cancellation_of_what_nobody_has_paid_leaves_a_trace(service: ChargeHarness) -> None:
    """A PaymentIntent is created and canceled for the customer; then the order's own message charges nothing."""
    assert service.cancel() is Cancellation.CANCELED
    assert operations(service) == ["create", "cancel"]
    assert service.stripe.intents["pi_0"].cancellation_reason == CancelReason.BY_CUSTOMER
    assert service.deliver() == Done()
    assert outcome(service) == ("CANCELED", "pi_0")


def test_what_stripe_refuses_for_good_needs_no_trace(service: ChargeHarness) -> None:
    """There is nothing that could be charged."""
    service.stripe.next("create", refused(ResponseKind.AMOUNT_REFUSED))
    assert service.cancel() is Cancellation.CANCELED


def test_a_cancellation_of_a_paid_order_says_paid(service: ChargeHarness) -> None:
    """And asks nobody."""
    service.deliver()
    service.stripe.requests.clear()
    assert service.cancel() is Cancellation.PAID
    assert service.stripe.requests == []


@pytest.mark.parametrize("state", ["insufficient_funds", "requires_action"])
def test_a_cancellation_of_a_declined_or_waiting_order(service: ChargeHarness, state: str) -> None:
    """Its PaymentIntent, which could still be confirmed, is canceled."""
    service.stripe.banks["pm_card_visa"] = state
    service.deliver()
    assert service.cancel() is Cancellation.CANCELED
    assert service.stripe.intents["pi_0"].is_canceled_by_customer


def test_an_abandoned_payment_intent_is_no_trace(service: ChargeHarness) -> None:
    """CANCELED needs one that was canceled for the customer: it is created for that."""
    service.stripe.banks["pm_card_visa"] = "requires_action"
    service.deliver()
    service.stripe.show("pi_0", status="canceled", cancellation_reason="abandoned")
    assert service.cancel() is Cancellation.CANCELED
    assert service.stripe.intents["pi_1"].is_canceled_by_customer
    assert outcome(service) == ("CANCELED", "pi_1")


def test_a_cancellation_seen_when_the_id_is_written(service: ChargeHarness) -> None:
    """It came while the PaymentIntent was created: it is canceled, and never confirmed."""
    answers: list[Cancellation] = []
    service.stripe.next("create", afterwards(lambda: answers.append(service.cancel())))
    assert service.deliver() == Done()
    assert answers == [Cancellation.CANCELING]
    assert operations(service) == ["create", "cancel"]
    assert service.row["state"] == "CANCELED"


def test_a_cancellation_seen_at_the_claim(service: ChargeHarness) -> None:
    """It came while nobody could reach Stripe: the next delivery cancels."""
    service.stripe.next("confirm", NO_ANSWER)
    service.deliver()
    service.stripe.next("retrieve", NO_ANSWER)
    assert service.cancel() is Cancellation.CANCELING
    assert service.deliver() == Done()
    assert service.stripe.successes == []
    assert service.row["state"] == "CANCELED"


@pytest.mark.parametrize("when", [meanwhile, afterwards])
def test_an_in_flight_charge_when_the_cancel_arrives(service: ChargeHarness, when: Any) -> None:
    """Issue: row lost. The lease owner's confirm has won: the order is charged once, and PAID."""
    answers: list[Cancellation] = []
    service.stripe.next("confirm", when(lambda: answers.append(service.cancel())))
    assert service.deliver() == Done()
    assert answers == [Cancellation.CANCELING]
    assert service.cancel() is Cancellation.PAID
    assert service.stripe.successes == ["pi_0"]


def test_an_in_flight_charge_when_the_cancel_arrives_and_the_row_is_lost(service: ChargeHarness) -> None:
    """Issue: row lost. The cancellation finds its PaymentIntent by its key, and Stripe decides: one of them wins."""
    answers: list[Cancellation] = []

    def row_lost_and_canceled() -> None:
        service.lose_row()
        answers.append(service.cancel())

    service.stripe.next("confirm", meanwhile(row_lost_and_canceled))
    assert service.deliver() == BackOff()
    assert answers == [Cancellation.CANCELED]
    assert service.stripe.successes == []
    assert outcome(service) == ("CANCELED", "pi_0")


def test_an_in_flight_decline_when_the_cancel_arrives_ends_as_canceled(service: ChargeHarness) -> None:
    """DECLINED would take the row off the index of what is unfinished: whoever claims next cancels."""
    service.stripe.banks["pm_card_visa"] = "lost_card"
    service.stripe.next("confirm", afterwards(lambda: service.cancel()))
    assert service.deliver() == BackOff()
    assert service.row["state"] != "DECLINED"
    after_the_lease(service)
    assert service.deliver() == Done()
    assert service.row["state"] == "CANCELED"


def test_a_cancellation_while_it_is_processing_waits(service: ChargeHarness) -> None:
    """Nobody says CANCELED; Stripe has not decided."""
    service.stripe.banks["pm_card_visa"] = "processing"
    service.deliver()
    assert service.cancel() is Cancellation.CANCELING
    service.stripe.show("pi_0", status="succeeded")
    assert service.cancel() is Cancellation.PAID


def test_a_cancellation_whose_worker_dies_is_finished_by_another(service: ChargeHarness) -> None:
    """By the reconciler's way in, once the lease is free."""
    service.stripe.next("create", killed_after)
    with pytest.raises(KeyboardInterrupt):
        service.cancel()
    after_the_lease(service)
    payment = service.store.read(ORDER_ID)
    assert payment is not None
    assert finish_cancellation(payment, service.tools()).state == "CANCELED"


# ---------------------------------------------------------------- leases and clocks


def another_finishes(service: ChargeHarness) -> None:
    """The lease has expired; another delivery claims the row, and finishes it."""
    after_the_lease(service)
    assert service.deliver() == Done()


@pytest.mark.parametrize("operation", ["create", "confirm"])
@pytest.mark.parametrize("when", [meanwhile, afterwards])
def test_a_worker_that_lost_its_lease_writes_nothing(service: ChargeHarness, operation: str, when: Any) -> None:
    """Wherever it was: the row is the other's, its charge is the only one."""
    service.stripe.next(operation, when(lambda: another_finishes(service)))
    assert service.deliver() == BackOff()
    assert "WriteRefused" in service.counted
    assert len(service.stripe.successes) == 1
    assert outcome(service) == ("SUCCEEDED", service.stripe.successes[0])


def test_a_worker_that_lost_its_lease_cannot_release_it(service: ChargeHarness) -> None:
    """The other's lease stays."""

    def another_claims() -> None:
        after_the_lease(service)
        service.stripe.next("retrieve", killed)
        with pytest.raises(KeyboardInterrupt):
            service.deliver()

    def is_overtaken(execute: Execute) -> Any:
        another_claims()
        return NO_ANSWER(execute)

    service.stripe.next("confirm", is_overtaken, NO_ANSWER)
    assert service.deliver() == BackOff()
    assert service.row["lease_expires_at"] > service.now


@pytest.mark.parametrize("killed_at", ["create", "confirm"])
@pytest.mark.parametrize("how", [killed, killed_after])
def test_a_crashed_worker_is_followed_by_the_next_delivery(service: ChargeHarness, killed_at: str, how: Any) -> None:
    """Once its lease has expired; wherever it died, there is one charge."""
    service.stripe.next(killed_at, how)
    with pytest.raises(KeyboardInterrupt):
        service.deliver()
    after_the_lease(service)
    assert service.deliver() == Done()
    assert len(service.stripe.successes) == 1


@pytest.mark.parametrize("operation", ["create", "confirm"])
@pytest.mark.parametrize("when", [meanwhile, afterwards])
@pytest.mark.parametrize("young", [True, False])
def test_a_second_worker_299_seconds_ahead(service: ChargeHarness, operation: str, when: Any, young: bool) -> None:
    """Issue: clocks. It takes every lease for expired, works beside the first, and there is one charge."""
    if not young:
        service.now = OLD - 200

    def the_second() -> None:
        service.ahead = 299
        assert service.deliver() == Done()

    service.stripe.next(operation, when(the_second))
    service.deliver()
    service.ahead = 0
    assert service.deliver() == Done()
    assert len(service.stripe.successes) == 1
    assert outcome(service) == ("SUCCEEDED", service.stripe.successes[0])


def test_lease_owners_do_not_restart_with_a_lost_row(service: ChargeHarness) -> None:
    """Issue: row lost. A worker of the row that was lost is no owner of the one that began anew."""

    def lost_and_claimed_anew() -> None:
        service.lose_row()
        service.stripe.next("create", killed)
        with pytest.raises(KeyboardInterrupt):
            service.deliver()

    service.stripe.next("create", afterwards(lost_and_claimed_anew))
    assert service.deliver() == BackOff()
    assert "payment_intent_id" not in service.row
    assert operations(service) == ["create", "create"]


def test_a_row_that_is_lost_between_write_and_confirm(service: ChargeHarness) -> None:
    """The second claim finds the PaymentIntent by its key, and confirms the same one under the same key."""

    def lost_and_charged_anew() -> None:
        service.lose_row()
        assert service.deliver() == Done()

    service.stripe.next("confirm", meanwhile(lost_and_charged_anew))
    assert service.deliver() == BackOff()
    assert service.stripe.successes == ["pi_0"]
    assert service.stripe.sent("confirm") == [CONFIRM_0] * 2


def test_an_older_row_that_was_restored(service: ChargeHarness) -> None:
    """It names a PaymentIntent that was abandoned since: its way leads to the one that was paid."""
    service.stripe.next("confirm", service.stripe.store_failure(CONFIRM_0))
    service.deliver()
    older = service.client.get_item(TableName="payments", Key={"order_id": {"S": ORDER_ID}})["Item"]
    service.deliver()
    assert service.stripe.successes == ["pi_1"]
    service.client.put_item(TableName="payments", Item=older)
    assert service.deliver() == Done()
    assert outcome(service) == ("SUCCEEDED", "pi_1")
    assert service.stripe.successes == ["pi_1"]


# ---------------------------------------------------------------- time


@pytest.mark.parametrize(
    ("late_from", "sent"),
    [("claim", []), ("create", ["create"]), ("retrieve", ["retrieve"]), ("find", [])],
)
def test_past_the_deadline_no_request_is_begun(service: ChargeHarness, late_from: str, sent: list[str]) -> None:
    """The row is released, and waits for the next delivery."""

    def late() -> None:
        service.now += 100

    deadline = service.now + 50
    if late_from == "create":
        service.stripe.next("create", afterwards(late))
    elif late_from == "retrieve":
        service.stripe.next("confirm", NO_ANSWER)
        service.deliver()
        service.stripe.requests.clear()
        service.stripe.next("retrieve", afterwards(late))
    else:
        service.now = deadline = OLD if late_from == "find" else service.now
    assert work(service, deadline=deadline) == Unfinished("too little time left")
    assert operations(service) == sent
    assert service.row["lease_expires_at"] == 0
    service.now += 1
    assert service.deliver() == Done()


# ---------------------------------------------------------------- what is logged


def test_every_end_is_one_log_line(log: Log) -> None:
    """With order id, attempt, correlation id and PaymentIntent; no secret of the customer's."""
    stripe = FakeGateway()
    service = ChargeHarness(stripe=stripe, logger=log.logger)
    stripe.next("confirm", NO_ANSWER)
    service.deliver()
    service.deliver()
    ids = {"order_id": ORDER_ID, "attempt": 1, "correlation_id": "c", "payment_intent_id": "pi_0"}
    assert [line["message"] for line in log.lines] == ["payment not finished", "payment finalized"]
    assert all(line.items() >= ids.items() for line in log.lines)


@pytest.mark.parametrize("paid", [True, False])
def test_an_old_order_that_cannot_be_created_is_looked_up_before_it_is_canceled(
    service: ChargeHarness, paid: bool
) -> None:
    """Its row and keys may be gone, and a deploy's parameters refused: CANCELED is said only if nothing was charged."""
    if paid:
        service.deliver()
        service.lose_row()
    service.now = OLD
    service.stripe.next("create", refused(ResponseKind.AMOUNT_REFUSED))
    assert service.cancel() is (Cancellation.PAID if paid else Cancellation.CANCELED)
    assert operations(service)[-2:] == ["create", "find"]


def test_no_generation_is_skipped(service: ChargeHarness) -> None:
    """Found by the specification: a row that was restored leads to the same keys as one that was not.

    After a canceled PaymentIntent and a stored failure the row names both; the next generation is still the next one.
    """
    service.stripe.next("confirm", NO_ANSWER)
    service.deliver()
    service.stripe.show("pi_0", status="canceled", cancellation_reason="automatic")
    service.stripe.next("create", service.stripe.store_failure(CREATE_1))
    assert [service.deliver(), service.deliver()] == [BackOff(), Done()]
    assert service.stripe.sent("create") == [CREATE_0, CREATE_1, CREATE_1, REQUEST.create_key(2)]


def test_a_slow_stripe_only_slows(service: ChargeHarness) -> None:
    """Four seconds a request: a delivery that has to retrieve first has time to confirm as well."""

    def slow() -> None:
        service.now += 4

    service.stripe.next("create", afterwards(slow), afterwards(slow))
    service.stripe.next("confirm", NO_ANSWER, afterwards(slow))
    service.stripe.next("retrieve", afterwards(slow), afterwards(slow))
    assert [service.deliver(), service.deliver()] == [BackOff(), Done()]
    assert outcome(service) == ("SUCCEEDED", "pi_0")
