"""A claimed row is charged once: each path of `charge`, with the deployed gateway and stores over services in memory.

`stripe.charged` is the oracle: one entry for each time that money was taken. Cancellations are in test_cancel.py.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import stripe
from botocore.exceptions import ClientError, ReadTimeoutError

from onecharge.payments.charges.charge import STEPS_MAX, charge
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.leases import Claimed
from onecharge.payments.stripe_responses import LookupInconclusive
from onecharge.payments.time_bounds import LOOKUP_AGE_SECONDS, REFUSED_SECONDS
from onecharge.payments.work import Unfinished, work
from onecharge.runtime.consumer import BackOff, Done
from tests.shop.dynamodb import SENT_AGAIN
from tests.shop.stripe import client_of, sdk_error
from tests.support.builders import ORDER_ID, REQUEST, T0, stripe_intent
from tests.support.charge_harness import ChargeHarness
from tests.support.scripted_stripe import (
    ASKS_FOR_ACTION,
    LOST,
    LOST_CARD,
    MASTERCARD,
    NO_ANSWER,
    NO_FUNDS,
    VISA,
    WRONG_KEY,
    Execute,
    Step,
    afterwards,
    answer,
    answer_after,
    as_usual,
    killed,
    killed_after,
    meanwhile,
    of_another_order,
)

OLD = T0 + LOOKUP_AGE_SECONDS
CREATE_0, CREATE_1, CREATE_2 = (REQUEST.create_key(generation) for generation in range(3))
CONFIRM_0, CONFIRM_1 = (f"order:{ORDER_ID}:1:pi_{number}" for number in range(2))
STORED_FAILURE = "500 before"
"""Stripe stores a 500 under the key, and never executes the request."""
UNEXPECTED_STATE: dict[str, Any] = {"code": "payment_intent_unexpected_state"}
USED_UP = "This PaymentMethod was previously used"


@pytest.fixture
def service() -> ChargeHarness:
    return ChargeHarness()


def lookup_of(payment_intents: int) -> list[str]:
    """The requests of a lookup that finds this many."""
    return ["search", "list", *["retrieve"] * payment_intents]


# ---------------------------------------------------------------- ensure a PaymentIntent


def test_a_fresh_order_is_created_stored_and_confirmed(service: ChargeHarness) -> None:
    """In this order: when money can move, the row names the PaymentIntent."""
    seen: list[tuple[str, str | None]] = []
    service.stripe.next("confirm", meanwhile(lambda: seen.append(service.outcome)))
    assert service.deliver() == Done()
    assert service.stripe.requests == [("create", CREATE_0), ("confirm", CONFIRM_0)]
    assert seen == [("PENDING", "pi_0")]
    assert service.outcome == ("SUCCEEDED", "pi_0")


def test_a_replayed_create_is_retrieved(service: ChargeHarness) -> None:
    """A replay proves which PaymentIntent it is, not its status: here it has succeeded."""
    service.deliver()
    service.lose_row()
    assert service.deliver() == Done()
    assert service.stripe.operations == ["create", "confirm", "create", "retrieve", "refunds", "disputes"]
    assert service.outcome == ("SUCCEEDED", "pi_0")
    assert service.stripe.charged == ["pi_0"]


@pytest.mark.parametrize(
    ("step", "is_alarm"),
    [(NO_ANSWER, False), (LOST, False), (answer(502), False), (WRONG_KEY, True), (of_another_order, True)],
)
def test_an_unanswered_create_is_sent_again_under_its_key(service: ChargeHarness, step: Any, is_alarm: bool) -> None:
    """It may yet take effect, so no other generation is created beside it."""
    service.stripe.next("create", step, step)
    assert [service.deliver(), service.deliver(), service.deliver()] == [BackOff(), BackOff(), Done()]
    assert service.stripe.sent("create") == [CREATE_0] * 3
    assert service.stripe.charged == ["pi_0"]
    assert ("Alarm" in service.counted) is is_alarm


def test_a_stored_failure_is_followed_by_the_next_generation(service: ChargeHarness) -> None:
    """What Stripe may still create under the first key is never confirmed."""
    service.io.faults["stripe_create"] = "500, executed later"
    assert service.deliver() == BackOff()  # This may only be a late answer: it is no replay.
    assert service.row["generation"] == 0
    service.passes(900)
    service.stripe.time_has_passed()
    assert service.deliver() == Done()
    assert (service.row["generation"], service.outcome) == (1, ("SUCCEEDED", "pi_1"))
    assert service.stripe.sent("create") == [CREATE_0, CREATE_0, CREATE_1]
    assert service.stripe.charged == ["pi_1"]


REPLAYED = [
    answer(403, replay=True),
    answer(404, replay=True),
    answer(400, replay=True, code="parameter_unknown"),
    answer(400, replay=True, code="amount_too_large"),
]


@pytest.mark.parametrize("replayed", REPLAYED)
def test_a_replayed_refusal_of_a_create_is_followed_by_the_next_generation(
    service: ChargeHarness, replayed: Any
) -> None:
    """Nothing was executed under that key, and nothing ever will be. It is no alarm: the first refusal was."""
    service.stripe.next("create", replayed)
    assert service.deliver() == Done()
    assert service.stripe.sent("create") == [CREATE_0, CREATE_1]
    assert (service.outcome, "Alarm" in service.counted) == (("SUCCEEDED", "pi_0"), False)


@pytest.mark.parametrize("replayed", REPLAYED)
def test_a_replayed_refusal_of_a_confirm_abandons_the_payment_intent(service: ChargeHarness, replayed: Any) -> None:
    """An attempt has one key for each PaymentIntent: another PaymentIntent has another one."""
    service.stripe.next("confirm", replayed)
    assert service.deliver() == Done()
    assert service.stripe.sent("confirm") == [CONFIRM_0, f"order:{ORDER_ID}:1:pi_1"]
    assert service.stripe.intent("pi_0").cancellation_reason == "abandoned"
    assert service.outcome == ("SUCCEEDED", "pi_1")


def test_a_replayed_refusal_of_the_payment_method_declines(service: ChargeHarness) -> None:
    """It is the answer to this attempt; another card is another attempt."""
    service.stripe.next("confirm", answer(400, replay=True, code="resource_missing", param="payment_method"))
    assert service.deliver() == Done()
    assert service.outcome == ("DECLINED", "pi_0")


def test_a_refused_account_gets_one_generation_for_each_delivery(service: ChargeHarness) -> None:
    """Its refusals are stored, each under its key. One that is not replayed ends the delivery, with an alarm; the next
    delivery begins where this one ended."""
    service.io.faults["stripe_create"] = "403 stored"
    assert service.deliver() == BackOff()
    for _ in range(2):
        service.io.faults["stripe_create"] = "403 stored"
        assert service.deliver() == BackOff()
    assert service.counted.count("Alarm") == 3
    assert service.stripe.sent("create") == [CREATE_0, CREATE_0, CREATE_1, CREATE_1, CREATE_2]
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", "pi_0")


def test_a_payment_intent_that_takes_no_cards_declines_nobody(service: ChargeHarness) -> None:
    """Card payments are not active for the account: an alarm, and each order waits. Then its replay is followed by the
    next generation, which takes cards."""
    service.stripe.engine.behavior.takes_cards = False
    assert service.deliver() == BackOff()
    assert (service.row["state"], service.row.get("payment_intent_id")) == ("PENDING", None)
    assert service.counted.count("Alarm") == 1
    assert service.stripe.sent("confirm") == []
    service.stripe.engine.behavior.takes_cards = True
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", "pi_1")


def test_without_its_row_an_order_leads_to_the_same_generation(service: ChargeHarness) -> None:
    """The stored failures lead each worker to the same PaymentIntent."""
    service.io.faults["stripe_create"] = STORED_FAILURE
    service.deliver()
    service.io.faults["stripe_create"] = STORED_FAILURE  # Of the next key: the first one is replayed.
    assert [service.deliver(), service.deliver()] == [BackOff(), Done()]
    assert service.row["generation"] == 2
    service.lose_row()
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", "pi_0")
    assert service.stripe.charged == ["pi_0"]


def test_no_generation_is_skipped(service: ChargeHarness) -> None:
    """A restored row leads to the same keys, also after a canceled PaymentIntent and a stored failure."""
    service.stripe.next("confirm", NO_ANSWER)
    service.deliver()
    service.stripe.show("pi_0", "canceled", cancellation_reason="automatic")
    service.io.faults["stripe_create"] = STORED_FAILURE
    assert [service.deliver(), service.deliver()] == [BackOff(), Done()]
    assert service.stripe.sent("create") == [CREATE_0, CREATE_1, CREATE_1, CREATE_2]


def test_a_key_used_with_other_parameters_is_looked_up(service: ChargeHarness) -> None:
    """The PaymentIntent found is canceled, the next generation follows, and an alarm is raised."""
    other = service.made_before(key=CREATE_0)
    assert service.deliver() == Done()
    assert service.stripe.operations == ["create", "create", *lookup_of(2), "cancel", "confirm"]
    assert service.stripe.sent("create") == [CREATE_0, CREATE_1]
    assert service.stripe.intent(other).cancellation_reason == "abandoned"
    assert "Alarm" in service.counted


def test_a_key_used_with_other_parameters_is_not_forgotten(service: ChargeHarness) -> None:
    """Only a lookup finds what an earlier release has charged, and a stored failure in between does not skip it."""
    other = service.made_before("succeeded", key=CREATE_0)
    service.stripe.next("create", as_usual, answer(500, replay=True))
    for _ in range(3):
        service.deliver()
    assert service.outcome == ("SUCCEEDED", other)
    assert service.stripe.charged == [other]


def test_a_misused_key_is_looked_up_also_if_the_next_one_replays_what_is_canceled(service: ChargeHarness) -> None:
    """The first lookup was inconclusive, and what was created is canceled: what was charged is still found."""
    charged = service.made_before("succeeded", key=CREATE_0)
    service.stripe.next("search", NO_ANSWER)
    assert service.deliver() == BackOff()
    service.stripe.show("pi_1", "canceled", cancellation_reason="abandoned")
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", charged)
    assert service.stripe.charged == [charged]


def test_without_search_a_misused_key_is_left_to_a_person(service: ChargeHarness) -> None:
    """Whoever used it may have done so before the order's time, so a list from there on proves nothing: an alarm."""
    service.stripe.engine.behavior.has_search = False
    charged = service.made_before("succeeded", key=CREATE_0)
    assert [service.deliver(), service.deliver()] == [BackOff()] * 2
    assert service.counted.count("Alarm") >= 2
    assert (service.row["state"], service.stripe.charged) == ("PENDING", [charged])


def test_a_delivery_that_stripe_keeps_canceling_ends(service: ChargeHarness) -> None:
    """An alarm is raised, and the next delivery tries again."""

    def canceled(execute: Execute) -> Any:
        made = execute()
        service.stripe.show(made.id, "canceled", cancellation_reason="automatic")
        return client_of(service.stripe).v1.payment_intents.retrieve(made.id)

    service.stripe.next("create", *[canceled] * STEPS_MAX)
    assert service.deliver() == BackOff()
    assert "Alarm" in service.counted
    assert service.deliver() == Done()
    assert len(service.stripe.sent("create")) == STEPS_MAX + 1


# ---------------------------------------------------------------- 22 hours old: look up before the id is stored


def test_an_old_order_is_looked_up_before_its_id_is_stored(service: ChargeHarness) -> None:
    """Its row may have been lost, so the row proves nothing. Nothing else is found, so it is confirmed."""
    service.now = OLD
    stored: list[bool] = []
    service.stripe.next("list", afterwards(lambda: stored.append("payment_intent_id" in service.row)))
    assert service.deliver() == Done()
    assert service.stripe.operations == ["create", *lookup_of(1), "confirm"]
    assert stored == [False]


def test_an_order_that_becomes_old_during_the_create_is_looked_up(service: ChargeHarness) -> None:
    """The clock counts when the answer has arrived: the key may be forgotten, and another worker's charge is found."""
    service.now = OLD - 1
    service.deliver()
    service.lose_row()

    def eleven_seconds_pass() -> None:
        service.stripe.forget_keys()
        service.passes(11)

    service.stripe.next("create", meanwhile(eleven_seconds_pass))
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", "pi_0")
    assert service.stripe.charged == ["pi_0"]


def test_a_redrive_after_13_days_finds_the_charge(service: ChargeHarness) -> None:
    """The row is lost and every key forgotten. The PaymentIntent created beside the charge is never confirmed."""
    service.deliver()
    service.lose_row()
    service.stripe.forget_keys()
    service.passes(13 * 24 * 3600)
    assert service.deliver() == Done()
    assert service.stripe.operations[2:] == ["create", *lookup_of(2), "refunds", "disputes"]
    assert service.outcome == ("SUCCEEDED", "pi_0")
    assert service.stripe.charged == ["pi_0"]


@pytest.mark.parametrize("status", ["requires_payment_method", "requires_confirmation", "requires_action"])
def test_an_open_payment_intent_that_is_found_is_canceled(service: ChargeHarness, status: str) -> None:
    """It is never confirmed: another worker's confirm of it may be on its way. Our own one is confirmed."""
    found = service.made_before(status)
    service.now = OLD
    assert service.deliver() == Done()
    assert service.stripe.operations == ["create", *lookup_of(2), "cancel", "confirm"]
    assert service.stripe.charged == ["pi_1"]
    assert service.stripe.intent(found).cancellation_reason == "abandoned"


def test_a_payment_intent_that_succeeds_while_it_is_canceled_is_the_charge(service: ChargeHarness) -> None:
    """Stripe decides the race."""
    found = service.made_before()
    service.stripe.next("cancel", meanwhile(lambda: service.stripe.show(found, "succeeded")))
    service.now = OLD
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", found)
    assert service.stripe.sent("confirm") == []


def test_a_processing_payment_intent_that_is_found_is_waited_for(service: ChargeHarness) -> None:
    """Nothing is confirmed beside it, however often the message is delivered."""
    found = service.made_before("processing")
    service.now = OLD
    assert [service.deliver(), service.deliver()] == [BackOff()] * 2
    assert service.stripe.operations == ["create", *lookup_of(2), "create", "retrieve", *lookup_of(2)]
    service.stripe.show(found, "succeeded")
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", found)


@pytest.mark.parametrize(
    ("raised", "is_alarm"),
    [(sdk_error(None), False), (sdk_error(500), False), (sdk_error(401), True), (LookupInconclusive(), True)],
)
def test_a_failed_lookup_proves_nothing(service: ChargeHarness, raised: Exception, is_alarm: bool) -> None:
    """Nothing is stored or confirmed. A failure that does not pass by itself raises an alarm."""

    def fails(_: Execute) -> Any:
        raise raised

    service.now = OLD
    service.stripe.next("search", fails)
    assert service.deliver() == BackOff()
    assert service.stripe.operations == ["create", "search"]
    assert "payment_intent_id" not in service.row
    assert ("Alarm" in service.counted) is is_alarm


def test_each_generation_of_an_old_order_is_looked_up(service: ChargeHarness) -> None:
    """Stripe has canceled the PaymentIntent that the row names. Keys may be forgotten, so another lookup follows."""
    service.stripe.next("confirm", NO_ANSWER)
    service.deliver()
    service.stripe.show("pi_0", "canceled", cancellation_reason="automatic")
    service.now = OLD
    assert service.deliver() == Done()
    assert service.stripe.operations[2:] == ["retrieve", "create", *lookup_of(2), "confirm"]


def test_an_old_order_with_a_usable_payment_intent_is_not_looked_up(service: ChargeHarness) -> None:
    """The row names it, and it can succeed once, whether or not its keys are remembered."""
    service.stripe.next("confirm", NO_ANSWER)
    service.deliver()
    service.now = OLD + 10**6
    service.stripe.forget_keys()
    assert service.deliver() == Done()
    assert service.stripe.operations[2:] == ["retrieve", "confirm"]


def test_two_workers_with_a_payment_intent_each_make_one_charge(service: ChargeHarness) -> None:
    """The order is old. A's row is lost while A creates, B charges, and the row is restored with A's lease.

    A's lookup follows its create, so it sees what B did.
    """
    service.now = OLD

    def b_charges() -> None:
        item = service.saved()
        service.lose_row()
        service.io.faults["stripe_confirm"] = "processing"
        service.deliver()
        service.stripe.forget_keys()
        service.restore(item)

    service.stripe.next("create", meanwhile(b_charges))
    assert service.deliver() == BackOff()
    service.stripe.show("pi_0", "succeeded")
    service.passes()
    assert service.deliver() == Done()
    assert service.stripe.charged == ["pi_0"]
    assert service.outcome == ("SUCCEEDED", "pi_0")


# ---------------------------------------------------------------- confirm


@pytest.mark.parametrize(
    ("card", "state", "code"),
    [
        (VISA, "SUCCEEDED", None),
        (NO_FUNDS, "DECLINED", "insufficient_funds"),
        (ASKS_FOR_ACTION, "REQUIRES_ACTION", None),
    ],
)
def test_the_banks_answer_ends_the_attempt(service: ChargeHarness, card: str, state: str, code: str | None) -> None:
    """A later delivery sends nothing to Stripe."""
    assert [service.deliver(payment_method=card), service.deliver(payment_method=card)] == [Done(), Done()]
    assert (service.row["state"], service.row.get("decline_code")) == (state, code)
    assert service.stripe.operations == ["create", "confirm"]


def test_a_processing_confirm_is_waited_for(service: ChargeHarness) -> None:
    """Later deliveries retrieve, and confirm nothing."""
    service.io.faults["stripe_confirm"] = "processing"
    assert [service.deliver(), service.deliver()] == [BackOff(), BackOff()]
    service.stripe.show("pi_0", "succeeded")
    assert service.deliver() == Done()
    assert service.stripe.operations == ["create", "confirm", "retrieve", "retrieve", "refunds", "disputes"]


@pytest.mark.parametrize("status", [None, 503, 401])
def test_an_unanswered_confirm_is_retrieved_first(service: ChargeHarness, status: int | None) -> None:
    """If it has not taken effect, it is sent again under the same key."""
    service.stripe.next("confirm", answer(status), answer_after(status))
    assert [service.deliver(), service.deliver(), service.deliver()] == [BackOff(), BackOff(), Done()]
    assert service.stripe.sent("confirm") == [CONFIRM_0] * 2
    assert service.stripe.operations[-3:] == ["retrieve", "refunds", "disputes"]
    assert service.stripe.charged == ["pi_0"]


@pytest.mark.parametrize(("status", "charged"), [("succeeded", "pi_0"), ("canceled", "pi_1")])
def test_an_unexpected_state_decides(service: ChargeHarness, status: str, charged: str) -> None:
    """It is paid; or Stripe has canceled it, and the next generation follows."""
    reason = {"cancellation_reason": "automatic"} if status == "canceled" else {}
    service.stripe.next("confirm", meanwhile(lambda: service.stripe.show("pi_0", status, **reason)))
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", charged)
    assert service.stripe.charged == [charged]


@pytest.mark.parametrize("replay", [False, True])
def test_an_unexpected_state_of_an_open_payment_intent_abandons_it(service: ChargeHarness, replay: bool) -> None:
    """The key has had its answer, and would replay it forever."""
    service.stripe.next("confirm", answer(400, replay=replay, **UNEXPECTED_STATE))
    assert service.deliver() == Done()
    assert service.stripe.intent("pi_0").cancellation_reason == "abandoned"
    assert service.stripe.charged == ["pi_1"]


def test_an_unexpected_state_does_not_take_over_another_attempts_action(service: ChargeHarness) -> None:
    """The PaymentIntent waits for the previous attempt's card: this attempt takes the next generation."""
    service.deliver(payment_method=LOST_CARD)

    def the_first_card_waits(_: Execute) -> Any:
        service.stripe.show("pi_0", "requires_action", payment_method=LOST_CARD, last_payment_error=None)
        raise sdk_error(400, **UNEXPECTED_STATE)

    service.stripe.next("confirm", the_first_card_waits)
    assert service.deliver(attempt=2, payment_method=MASTERCARD) == Done()
    assert service.outcome == ("SUCCEEDED", "pi_1")


def test_a_stored_failure_of_a_confirm_abandons_the_payment_intent(service: ChargeHarness) -> None:
    """Its key would replay the failure forever. The next generation has a key of its own."""
    service.io.faults["stripe_confirm"] = STORED_FAILURE
    assert [service.deliver(), service.deliver()] == [BackOff(), Done()]
    assert service.stripe.operations == [
        *("create", "confirm"),
        *("retrieve", "confirm", "retrieve", "cancel", "create", "confirm"),
    ]
    assert service.stripe.sent("confirm") == [CONFIRM_0, CONFIRM_0, CONFIRM_1]
    assert service.stripe.charged == ["pi_1"]


def test_a_stored_failure_does_not_take_over_another_attempts_decline(service: ChargeHarness) -> None:
    """The PaymentIntent still shows the first card's decline. The second was never tried, and is tried now."""
    service.deliver(payment_method=LOST_CARD)
    service.stripe.next("confirm", answer(503, replay=True))
    assert service.deliver(attempt=2, payment_method=MASTERCARD) == Done()
    assert service.stripe.sent("confirm")[-2:] == [f"order:{ORDER_ID}:2:pi_0", f"order:{ORDER_ID}:2:pi_1"]
    assert service.outcome == ("SUCCEEDED", "pi_1")


@pytest.mark.parametrize("before", ["retrieve", "cancel"])
def test_a_stored_failure_that_takes_effect_late_is_the_charge(service: ChargeHarness, before: str) -> None:
    """Stripe rolls it forward before it is retrieved, or canceled: nothing else is created."""
    service.io.faults["stripe_confirm"] = STORED_FAILURE
    service.deliver()
    service.stripe.next("retrieve", as_usual)
    service.stripe.next(before, meanwhile(lambda: service.stripe.show("pi_0", "succeeded")))
    assert service.deliver() == Done()
    assert service.stripe.charged == ["pi_0"]
    assert service.stripe.sent("create") == [CREATE_0]


@pytest.mark.parametrize(
    ("status", "state"),
    [("succeeded", "SUCCEEDED"), ("processing", "PENDING"), ("requires_action", "REQUIRES_ACTION")],
)
def test_a_402_is_a_decline_only_if_the_payment_intent_shows_one(
    service: ChargeHarness, status: str, state: str
) -> None:
    """The PaymentIntent decides, not the response."""

    def declined_by_word_only(execute: Execute) -> Any:
        service.stripe.show("pi_0", status)
        return answer(402, code="card_declined")(execute)

    service.stripe.next("confirm", declined_by_word_only)
    service.deliver()
    assert service.row["state"] == state


def declined(service: ChargeHarness, card: str) -> Step:
    """The confirm is declined, and the response leaves the PaymentIntent out.

    If the card asks for authentication, there is no charge: nobody is there, and the bank is not asked.
    """

    def step(execute: Execute) -> Any:
        parameters = {"payment_method": card, "off_session": True}
        with pytest.raises(stripe.CardError):
            client_of(service.stripe).v1.payment_intents.confirm(service.stripe.intents[-1].id, parameters)
        return answer(402, code="card_declined")(execute)

    return step


BY_THE_BANK = (LOST_CARD, "lost_card")
WITHOUT_CHARGE = (ASKS_FOR_ACTION, "authentication_required")


@pytest.mark.parametrize(("card", "code"), [BY_THE_BANK, WITHOUT_CHARGE])
def test_a_402_without_its_payment_intent_is_retrieved(service: ChargeHarness, card: str, code: str) -> None:
    """The PaymentIntent shows the decline; also one without a charge, of which the bank was not asked."""
    service.stripe.next("confirm", declined(service, card))
    assert service.deliver(payment_method=card) == Done()
    assert (service.outcome, service.row["decline_code"]) == (("DECLINED", "pi_0"), code)
    assert service.stripe.operations == ["create", "confirm", "retrieve"]


def test_a_decline_that_asks_for_authentication_can_be_paid_again(service: ChargeHarness) -> None:
    """The PaymentIntent requires a payment method, which no page can authenticate: the next attempt confirms it."""
    service.stripe.next("confirm", declined(service, ASKS_FOR_ACTION))
    assert service.deliver(payment_method=ASKS_FOR_ACTION) == Done()
    assert (service.row["state"], service.row["decline_code"]) == ("DECLINED", "authentication_required")
    assert service.deliver(attempt=2) == Done()
    assert service.outcome == ("SUCCEEDED", "pi_0")


@pytest.mark.parametrize(
    ("card", "code", "failure"),
    [
        (*BY_THE_BANK, sdk_error(402, code="card_declined", decline_code="lost_card")),
        (*WITHOUT_CHARGE, sdk_error(402, code="authentication_required")),
        (*BY_THE_BANK, sdk_error(500, replay=True)),
    ],
)
def test_a_decline_whose_error_was_cleared_is_not_tried_again(
    service: ChargeHarness, card: str, code: str, failure: Exception
) -> None:
    """A person has added metadata in the Dashboard. The response, or else the latest charge, still says it."""

    def cleared(execute: Execute) -> Any:
        with suppress(stripe.CardError):
            declined(service, card)(execute)
        assert service.stripe.update_by_hand(service.stripe.intent("pi_0"))
        raise failure

    service.stripe.next("confirm", cleared)
    assert service.deliver(payment_method=card) == Done()
    assert (service.outcome, service.row["decline_code"]) == (("DECLINED", "pi_0"), code)
    assert service.stripe.sent("create") == [CREATE_0]


@pytest.mark.parametrize(
    ("details", "code"),
    [
        ({"code": "resource_missing", "param": "payment_method"}, "payment_method_unknown"),
        ({"message": USED_UP, "payment_intent": stripe_intent(id="pi_0")}, "payment_method_used"),
        ({"message": "It belongs to a customer"}, "payment_method_of_another_customer"),
        ({"code": "payment_method_unactivated"}, "payment_method_unactivated"),
        ({"code": "amount_too_small"}, "amount_too_small"),
    ],
)
def test_a_refused_card_or_amount_is_a_decline(service: ChargeHarness, details: dict[str, Any], code: str) -> None:
    """It has Stripe's message and request id. Another card is another attempt, on the same PaymentIntent."""
    service.stripe.next("confirm", answer(400, **details))
    assert service.deliver() == Done()
    row = service.row
    assert (row["state"], row["decline_code"], row["stripe_request_id"]) == ("DECLINED", code, "req_1")
    assert row["stripe_message"] == details.get("message", "message")
    assert service.deliver(attempt=2, payment_method=MASTERCARD) == Done()
    assert service.outcome == ("SUCCEEDED", "pi_0")


def test_a_card_used_up_by_this_payment_intent_has_paid(service: ChargeHarness) -> None:
    """With the key forgotten, Stripe answers with that refusal alone: the PaymentIntent is retrieved."""
    service.stripe.next("confirm", answer_after(400, message=USED_UP))
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", "pi_0")


def test_an_amount_that_stripe_does_not_take_is_declined_at_the_create(service: ChargeHarness) -> None:
    """There is no PaymentIntent, and nothing to review."""
    service.stripe.next("create", answer(400, code="amount_too_small"))
    assert service.deliver() == Done()
    assert (service.outcome, service.row["decline_code"]) == (("DECLINED", None), "amount_too_small")


@pytest.mark.parametrize("operation", ["create", "confirm"])
def test_a_refused_request_waits_an_hour_then_for_a_person(service: ChargeHarness, operation: str) -> None:
    """Each delivery raises an alarm."""
    service.stripe.next(operation, *[answer(400, code="parameter_unknown")] * 3)
    assert service.deliver() == BackOff()
    service.passes(REFUSED_SECONDS - 1)
    assert service.deliver() == BackOff()
    assert service.row["stripe_request_id"] == "req_1"
    service.passes(1)
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["decline_code"]) == ("NEEDS_REVIEW", "parameter_unknown")
    assert service.counted.count("Alarm") == 3


@pytest.mark.parametrize("fault", ["answer lost", SENT_AGAIN])
def test_the_alarm_of_a_review_is_raised_before_the_row_says_so(service: ChargeHarness, fault: str) -> None:
    """The write's answer is lost, or botocore's second request is refused: the next delivery is a duplicate, which
    raises none."""
    service.made_before("succeeded")
    service.made_before("succeeded")
    service.now = OLD
    service.stripe.next("search", meanwhile(lambda: service.io.faults.update(dynamodb_UpdateItem=fault)))
    with suppress(ClientError, ReadTimeoutError):
        service.deliver()
    assert "Alarm" in service.counted
    service.passes()
    service.deliver()
    assert service.row["state"] == "NEEDS_REVIEW"


def test_a_worker_that_dies_after_it_stored_the_id_loses_no_refund(service: ChargeHarness) -> None:
    """The row was lost; the next delivery finds the charge by the id, and cannot know that."""
    service.deliver()
    service.stripe.refund_by_hand("pi_0", 1099)
    service.lose_row()
    service.stripe.next("disputes", afterwards(lambda: service.io.faults.update(dynamodb_UpdateItem="answer lost")))
    with pytest.raises(ReadTimeoutError):
        service.deliver()
    assert service.outcome == ("PENDING", "pi_0")
    service.passes()
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["amount_refunded_minor"]) == ("SUCCEEDED", 1099)


@pytest.mark.parametrize("keys", ["remembered", "forgotten"])
def test_an_order_placed_again_knows_its_refunds_and_disputes(service: ChargeHarness, keys: str) -> None:
    """Both services lost it, and its client retries: found under its key or by a lookup, it is PAID as it was."""
    service.deliver()
    service.stripe.refund_by_hand("pi_0", 1099)
    service.stripe.disputed("pi_0", "needs_response")
    service.lose_row()
    if keys == "forgotten":
        service.stripe.forget_keys()
        service.now = OLD
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", "pi_0")
    assert (service.row["amount_refunded_minor"], service.row["dispute_status"]) == (1099, "needs_response")
    assert "Alarm" in service.counted


def test_a_request_that_we_mend_within_the_hour_is_charged(service: ChargeHarness) -> None:
    """A refusal of a later attempt has an hour of its own."""
    service.stripe.next("confirm", answer(400))
    assert [service.deliver(payment_method=LOST_CARD) for _ in range(2)] == [BackOff(), Done()]
    service.passes(REFUSED_SECONDS)
    service.stripe.next("confirm", answer(400))
    assert service.deliver(attempt=2) == BackOff()
    assert service.row["state"] == "PENDING"


def test_a_replayed_confirm_is_retrieved(service: ChargeHarness) -> None:
    """The replay still asks for action; since then the customer's bank has refused to authenticate."""
    code = "payment_intent_authentication_failure"
    service.stripe.next("confirm", killed_after)
    with pytest.raises(KeyboardInterrupt):
        service.deliver(payment_method=ASKS_FOR_ACTION)
    service.stripe.bank_decides(service.stripe.intent("pi_0"), pays=False)
    service.passes()
    assert service.deliver() == Done()
    assert (service.row["state"], service.row["decline_code"]) == ("DECLINED", code)
    assert service.stripe.operations[2:] == ["retrieve", "confirm", "retrieve"]


def test_a_decline_under_a_key_of_another_card_is_not_the_attempts(service: ChargeHarness) -> None:
    """A restored row counts its attempts again: its own card is tried with the next PaymentIntent, with an alarm."""
    key = {"idempotency_key": CONFIRM_0}

    def confirmed_with_another_card() -> None:
        with suppress(stripe.CardError):
            client_of(service.stripe).v1.payment_intents.confirm("pi_0", {"payment_method": LOST_CARD}, key)

    service.stripe.next("confirm", meanwhile(confirmed_with_another_card))
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", "pi_1")
    assert service.stripe.intent("pi_0").cancellation_reason == "abandoned"
    assert service.stripe.charged == ["pi_1"]
    assert "Alarm" in service.counted


# ---------------------------------------------------------------- attempts


def test_attempt_2_with_a_decline_whose_answer_is_lost(service: ChargeHarness) -> None:
    """The new charge is its own: it is declined, with its own code."""
    service.deliver(payment_method=NO_FUNDS)
    service.stripe.next("confirm", LOST)
    dispositions = [service.deliver(attempt=2, payment_method=LOST_CARD) for _ in range(2)]
    assert dispositions == [BackOff(), Done()]
    assert (service.row["state"], service.row["decline_code"], service.row["attempt"]) == ("DECLINED", "lost_card", 2)


def test_a_decline_without_a_charge_is_not_the_next_attempts(service: ChargeHarness) -> None:
    """Nobody authenticated, so the bank was not asked. The third card is tried all the same."""
    service.deliver(payment_method=NO_FUNDS)
    service.stripe.show("pi_0", "canceled", cancellation_reason="abandoned")
    service.stripe.next("confirm", declined(service, ASKS_FOR_ACTION))
    service.deliver(attempt=2, payment_method=ASKS_FOR_ACTION)
    assert service.row["state"] == "DECLINED"
    assert service.deliver(attempt=3) == Done()
    assert service.outcome == ("SUCCEEDED", "pi_1")


def test_an_action_that_nobody_takes_makes_way_for_another_card(service: ChargeHarness) -> None:
    """The waiting PaymentIntent is abandoned before the next generation is confirmed."""
    service.deliver(payment_method=ASKS_FOR_ACTION)
    assert service.deliver(attempt=2) == Done()
    assert service.stripe.intent("pi_0").cancellation_reason == "abandoned"
    assert service.outcome == ("SUCCEEDED", "pi_1")


def test_a_customer_who_authenticates_while_another_card_is_tried_pays_once(service: ChargeHarness) -> None:
    """Stripe decides the race."""
    service.deliver(payment_method=ASKS_FOR_ACTION)
    service.stripe.next("cancel", meanwhile(lambda: service.stripe.show("pi_0", "succeeded")))
    assert service.deliver(attempt=2) == Done()
    assert service.stripe.charged == ["pi_0"]
    assert service.outcome == ("SUCCEEDED", "pi_0")


# ---------------------------------------------------------------- leases, crashes, lost rows, clocks


def another_finishes(service: ChargeHarness) -> None:
    """The lease has expired; another delivery claims the row, and finishes it."""
    service.passes()
    assert service.deliver() == Done()


@pytest.mark.parametrize("operation", ["create", "confirm"])
@pytest.mark.parametrize("when", [meanwhile, afterwards])
def test_a_worker_that_lost_its_lease_writes_nothing(service: ChargeHarness, operation: str, when: Any) -> None:
    """The row is the other's, and its charge is the only one."""
    service.stripe.next(operation, when(lambda: another_finishes(service)))
    assert service.deliver() == BackOff()
    assert "WriteRefused" in service.counted
    assert service.outcome == ("SUCCEEDED", "pi_0")
    assert service.stripe.charged == ["pi_0"]


def test_a_worker_that_lost_its_lease_cannot_release_it(service: ChargeHarness) -> None:
    """The other worker's lease stays."""

    def another_claims(execute: Execute) -> Any:
        service.passes()
        service.stripe.next("retrieve", killed)
        with pytest.raises(KeyboardInterrupt):
            service.deliver()
        return NO_ANSWER(execute)

    service.stripe.next("confirm", another_claims)
    assert service.deliver() == BackOff()
    assert service.row["lease_expires_at"] > service.now


@pytest.mark.parametrize("killed_at", ["create", "confirm"])
@pytest.mark.parametrize("how", [killed, killed_after])
def test_a_crashed_worker_is_followed_by_the_next_delivery(service: ChargeHarness, killed_at: str, how: Any) -> None:
    """It begins once the lease has expired, and there is one charge."""
    service.stripe.next(killed_at, how)
    with pytest.raises(KeyboardInterrupt):
        service.deliver()
    another_finishes(service)
    assert service.stripe.charged == ["pi_0"]


@pytest.mark.parametrize("operation", ["create", "confirm"])
@pytest.mark.parametrize("when", [meanwhile, afterwards])
@pytest.mark.parametrize("begins_at", [T0 + 1, OLD - 200])
def test_a_worker_whose_clock_is_299_seconds_ahead_charges_nothing_twice(
    service: ChargeHarness, operation: str, when: Any, begins_at: int
) -> None:
    """It takes every lease for expired, and works beside the first one."""
    service.now = begins_at

    def the_second() -> None:
        service.ahead = 299
        assert service.deliver() == Done()

    service.stripe.next(operation, when(the_second))
    service.deliver()
    service.ahead = 0
    assert service.deliver() == Done()
    assert len(service.stripe.charged) == 1
    assert service.outcome == ("SUCCEEDED", service.stripe.charged[0])


def test_a_worker_of_a_lost_row_does_not_own_the_next_one(service: ChargeHarness) -> None:
    """Lease owners are random, so the row that is claimed again has a different one."""

    def lost_and_claimed_again() -> None:
        service.lose_row()
        service.stripe.next("create", killed)
        with pytest.raises(KeyboardInterrupt):
            service.deliver()

    service.stripe.next("create", afterwards(lost_and_claimed_again))
    assert service.deliver() == BackOff()
    assert "payment_intent_id" not in service.row
    assert service.stripe.operations == ["create", "create"]


def test_a_row_lost_before_the_confirm_leads_to_the_same_payment_intent(service: ChargeHarness) -> None:
    """The next claim finds it by its key, and confirms it under the same key."""

    def lost_and_charged() -> None:
        service.lose_row()
        assert service.deliver() == Done()

    service.stripe.next("confirm", meanwhile(lost_and_charged))
    assert service.deliver() == BackOff()
    assert service.stripe.charged == ["pi_0"]
    assert service.stripe.sent("confirm") == [CONFIRM_0] * 2


def test_an_older_row_leads_to_the_charge(service: ChargeHarness) -> None:
    """The restored row names a PaymentIntent that was abandoned since."""
    service.io.faults["stripe_confirm"] = STORED_FAILURE
    service.deliver()
    older = service.saved()
    service.deliver()
    service.restore(older)
    assert service.deliver() == Done()
    assert service.outcome == ("SUCCEEDED", "pi_1")
    assert service.stripe.charged == ["pi_1"]


# ---------------------------------------------------------------- time, and the log


@pytest.mark.parametrize(
    ("has_intent", "late_after", "sent"),
    [(False, None, []), (False, "create", ["create"]), (True, None, []), (True, "retrieve", ["retrieve"])],
)
def test_no_request_begins_after_the_deadline(
    service: ChargeHarness, has_intent: bool, late_after: str | None, sent: list[str]
) -> None:
    """The row is released for the next delivery."""
    if has_intent:
        service.stripe.next("confirm", NO_ANSWER)
        service.deliver()
        service.stripe.requests.clear()
    if late_after:
        service.stripe.next(late_after, afterwards(lambda: service.passes(100)))
    deadline = service.now + (50 if late_after else 0)
    assert worked(service, deadline=deadline) == Unfinished("too little time left")
    assert service.stripe.operations == sent
    assert service.row["lease_expires_at"] == 0
    assert service.deliver() == Done()


@pytest.mark.parametrize(
    ("late_after", "sent"),
    [("create", []), ("search", ["search", "list"]), ("list", ["search", "list"])],
)
def test_a_lookup_without_enough_time_proves_nothing(service: ChargeHarness, late_after: str, sent: list[str]) -> None:
    """The id is not stored, and the next delivery looks up again."""
    service.now = OLD
    service.stripe.next(late_after, afterwards(lambda: service.passes(100)))
    assert isinstance(worked(service, deadline=service.now + 50), Unfinished)
    assert service.stripe.operations == ["create", *sent]
    assert "payment_intent_id" not in service.row
    assert service.deliver() == Done()
    assert service.stripe.operations[-5:] == ["retrieve", *lookup_of(1), "confirm"]


@pytest.mark.parametrize(("late_after", "sent"), [("retrieve", []), ("refunds", ["refunds"])])
def test_refunds_and_disputes_are_not_read_after_the_deadline(
    service: ChargeHarness, late_after: str, sent: list[str]
) -> None:
    """Each of the two requests may take as long as Stripe's timeout allows."""
    service.stripe.next("confirm", LOST)
    assert service.deliver() == BackOff()
    service.passes()
    service.stripe.next(late_after, afterwards(lambda: service.passes(100)))
    assert service.deliver() == BackOff()
    assert service.stripe.operations == ["create", "confirm", "retrieve", *sent]
    assert service.deliver() == Done()


@pytest.mark.parametrize("status", ["succeeded", "requires_payment_method"])
def test_what_a_lookup_finds_at_the_deadline_is_left_to_the_next_delivery(service: ChargeHarness, status: str) -> None:
    """Refunds and disputes are not read, and nothing is canceled: the timeout would kill the whole batch."""
    service.now = OLD
    service.made_before(status)
    service.stripe.next("retrieve", as_usual, afterwards(lambda: service.passes(100)))
    assert worked(service, deadline=service.now + 50) == Unfinished("too little time left")
    assert service.stripe.operations == ["create", *lookup_of(2)]


def worked(service: ChargeHarness, *, deadline: float) -> Payment | Unfinished:
    """Claim the first attempt, and work on it until the deadline."""
    tools = replace(service.tools(), deadline=deadline)
    claim = tools.store.claim(
        REQUEST,
        attempt=1,
        payment_method=VISA,
        correlation_id="c",
        owner="owner",
        now=service.now,
        lease_seconds=35,
    )
    assert isinstance(claim, Claimed)
    return work(lambda row: charge(row, tools), claim.row, tools.store, tools.instruments)
