"""A claimed row is charged once: each path of `charge`, with the deployed gateway and stores over services in memory.

`stripe.charged` is the oracle: one entry for each time that money was taken. Cancellations are in test_cancel.py.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import stripe
from botocore.exceptions import ClientError, ReadTimeoutError

from onecharge.contract.events import DO_NOT_TRY_AGAIN
from onecharge.payments.charge import STEPS_MAX, charge
from onecharge.payments.charge_rules import GROUPED_TERMS, Payment
from onecharge.payments.deliveries import Unfinished, finalize_claimed
from onecharge.payments.rows import Claimed
from onecharge.payments.stripe_responses import LookupInconclusive
from onecharge.payments.time_bounds import LOOKUP_AGE_SECONDS, REFUSED_SECONDS
from onecharge.runtime.consumer import BackOff, Done
from stripe_standin.payment_methods import PaymentMethod
from tests.shop.builders import ORDER_ID, REQUEST, T0, stripe_intent
from tests.shop.dynamodb import SENT_AGAIN
from tests.shop.scripted_stripe import (
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
from tests.shop.shop import Shop
from tests.shop.stripe import client_of, sdk_error

DAY = 24 * 3600
OLD = T0 + LOOKUP_AGE_SECONDS
CREATE_0, CREATE_1, CREATE_2 = (REQUEST.create_key(generation) for generation in range(3))
CONFIRM_0, CONFIRM_1 = (f"order:{ORDER_ID}:1:pi_{number}" for number in range(2))
STORED_FAILURE = "500 before"
"""Stripe stores a 500 under the key, and never executes the request."""
UNEXPECTED_STATE: dict[str, Any] = {"code": "payment_intent_unexpected_state"}
USED_UP = "This PaymentMethod was previously used"


@pytest.fixture
def shop() -> Shop:
    return Shop()


def lookup_of(payment_intents: int) -> list[str]:
    """The requests of a lookup that finds this many."""
    return ["search", "list", *["retrieve"] * payment_intents]


# ---------------------------------------------------------------- ensure a PaymentIntent


def test_a_fresh_order_is_created_stored_and_confirmed(shop: Shop) -> None:
    """In this order: when money can move, the row names the PaymentIntent."""
    seen: list[tuple[str, str | None]] = []
    shop.stripe.next("confirm", meanwhile(lambda: seen.append(shop.outcome)))
    assert shop.deliver() == Done()
    assert shop.stripe.requests == [("create", CREATE_0), ("confirm", CONFIRM_0)]
    assert seen == [("PENDING", "pi_0")]
    assert shop.outcome == ("SUCCEEDED", "pi_0")


def test_a_replayed_create_is_retrieved(shop: Shop) -> None:
    """A replay proves which PaymentIntent it is, not its status: here it has succeeded."""
    shop.deliver()
    shop.lose_row()
    assert shop.deliver() == Done()
    assert shop.stripe.operations == ["create", "confirm", "create", "retrieve", "refunds", "disputes", "warnings"]
    assert shop.outcome == ("SUCCEEDED", "pi_0")
    assert shop.stripe.charged == ["pi_0"]


@pytest.mark.parametrize(
    ("step", "is_alarm"),
    [(NO_ANSWER, False), (LOST, False), (answer(502), False), (WRONG_KEY, True), (of_another_order, True)],
)
def test_an_unanswered_create_is_sent_again_under_its_key(shop: Shop, step: Any, is_alarm: bool) -> None:
    """It may yet take effect, so no other generation is created beside it."""
    shop.stripe.next("create", step, step)
    assert [shop.deliver(), shop.deliver(), shop.deliver()] == [BackOff(), BackOff(), Done()]
    assert shop.stripe.sent("create") == [CREATE_0] * 3
    assert shop.stripe.charged == ["pi_0"]
    assert ("Alarm" in shop.counted) is is_alarm


def test_a_stored_failure_is_followed_by_the_next_generation(shop: Shop) -> None:
    """What Stripe may still create under the first key is never confirmed."""
    shop.io.faults["stripe_create"] = "500, executed later"
    assert shop.deliver() == BackOff()  # This may only be a late answer: it is no replay.
    assert shop.row()["generation"] == 0
    shop.passes(900)
    shop.stripe.time_has_passed()
    assert shop.deliver() == Done()
    assert (shop.row()["generation"], shop.outcome) == (1, ("SUCCEEDED", "pi_1"))
    assert shop.stripe.sent("create") == [CREATE_0, CREATE_0, CREATE_1]
    assert shop.stripe.charged == ["pi_1"]


REPLAYED = [
    answer(403, replay=True),
    answer(404, replay=True),
    answer(400, replay=True, code="parameter_unknown"),
    answer(400, replay=True, code="amount_too_large"),
]


@pytest.mark.parametrize("replayed", REPLAYED)
def test_a_replayed_refusal_of_a_create_is_followed_by_the_next_generation(shop: Shop, replayed: Any) -> None:
    """Nothing was executed under that key, and nothing ever will be. It is no alarm: the first refusal was."""
    shop.stripe.next("create", replayed)
    assert shop.deliver() == Done()
    assert shop.stripe.sent("create") == [CREATE_0, CREATE_1]
    assert (shop.outcome, "Alarm" in shop.counted) == (("SUCCEEDED", "pi_0"), False)


@pytest.mark.parametrize("replayed", REPLAYED)
def test_a_replayed_refusal_of_a_confirm_abandons_the_payment_intent(shop: Shop, replayed: Any) -> None:
    """An attempt has one key for each PaymentIntent: another PaymentIntent has another one."""
    shop.stripe.next("confirm", replayed)
    assert shop.deliver() == Done()
    assert shop.stripe.sent("confirm") == [CONFIRM_0, f"order:{ORDER_ID}:1:pi_1"]
    assert shop.stripe.intent("pi_0").cancellation_reason == "abandoned"
    assert shop.outcome == ("SUCCEEDED", "pi_1")


def test_a_replayed_refusal_of_the_payment_method_declines(shop: Shop) -> None:
    """It is the answer to this attempt; another card is another attempt."""
    shop.stripe.next("confirm", answer(400, replay=True, code="resource_missing", param="payment_method"))
    assert shop.deliver() == Done()
    assert shop.outcome == ("DECLINED", "pi_0")


def test_a_refused_account_gets_one_generation_for_each_delivery(shop: Shop) -> None:
    """Its refusals are stored, each under its key. One that is not replayed ends the delivery, with an alarm; the next
    delivery begins where this one ended."""
    shop.io.faults["stripe_create"] = "403 stored"
    assert shop.deliver() == BackOff()
    for _ in range(2):
        shop.io.faults["stripe_create"] = "403 stored"
        assert shop.deliver() == BackOff()
    assert shop.counted.count("Alarm") == 3
    assert shop.stripe.sent("create") == [CREATE_0, CREATE_0, CREATE_1, CREATE_1, CREATE_2]
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_0")


def test_a_payment_intent_that_takes_no_cards_declines_nobody(shop: Shop) -> None:
    """Card payments are not active for the account: an alarm, and each order waits. Then its replay is followed by the
    next generation, which takes cards."""
    shop.stripe.engine.behavior.takes_cards = False
    assert shop.deliver() == BackOff()
    assert (shop.row()["state"], shop.row().get("payment_intent_id")) == ("PENDING", None)
    assert shop.counted.count("Alarm") == 1
    assert shop.stripe.sent("confirm") == []
    shop.stripe.engine.behavior.takes_cards = True
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_1")


def test_without_its_row_an_order_leads_to_the_same_generation(shop: Shop) -> None:
    """The stored failures lead each worker to the same PaymentIntent."""
    shop.io.faults["stripe_create"] = STORED_FAILURE
    shop.deliver()
    shop.io.faults["stripe_create"] = STORED_FAILURE  # Of the next key: the first one is replayed.
    assert [shop.deliver(), shop.deliver()] == [BackOff(), Done()]
    assert shop.row()["generation"] == 2
    shop.lose_row()
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_0")
    assert shop.stripe.charged == ["pi_0"]


def test_no_generation_is_skipped(shop: Shop) -> None:
    """A restored row leads to the same keys, also after a canceled PaymentIntent and a stored failure."""
    shop.stripe.next("confirm", NO_ANSWER)
    shop.deliver()
    shop.stripe.show("pi_0", "canceled", cancellation_reason="automatic")
    shop.io.faults["stripe_create"] = STORED_FAILURE
    assert [shop.deliver(), shop.deliver()] == [BackOff(), Done()]
    assert shop.stripe.sent("create") == [CREATE_0, CREATE_1, CREATE_1, CREATE_2]


def test_a_key_used_with_other_parameters_is_looked_up(shop: Shop) -> None:
    """The PaymentIntent found is canceled, the next generation follows, and an alarm is raised."""
    other = shop.made_before(key=CREATE_0)
    assert shop.deliver() == Done()
    assert shop.stripe.operations == ["create", "create", *lookup_of(2), "cancel", "confirm"]
    assert shop.stripe.sent("create") == [CREATE_0, CREATE_1]
    assert shop.stripe.intent(other).cancellation_reason == "abandoned"
    assert "Alarm" in shop.counted


def test_a_key_used_with_other_parameters_is_not_forgotten(shop: Shop) -> None:
    """Only a lookup finds what an earlier release has charged, and a stored failure in between does not skip it."""
    other = shop.made_before("succeeded", key=CREATE_0)
    shop.stripe.next("create", as_usual, answer(500, replay=True))
    for _ in range(3):
        shop.deliver()
    assert shop.outcome == ("SUCCEEDED", other)
    assert shop.stripe.charged == [other]


def test_a_misused_key_is_looked_up_also_if_the_next_one_replays_what_is_canceled(shop: Shop) -> None:
    """The first lookup was inconclusive, and what was created is canceled: what was charged is still found."""
    charged = shop.made_before("succeeded", key=CREATE_0)
    shop.stripe.next("search", NO_ANSWER)
    assert shop.deliver() == BackOff()
    shop.stripe.show("pi_1", "canceled", cancellation_reason="abandoned")
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", charged)
    assert shop.stripe.charged == [charged]


def test_what_was_charged_is_found_without_search(shop: Shop) -> None:
    """At any age, by the order's group: the row is lost, its keys are forgotten, and search shows nothing."""
    shop.use_terms(GROUPED_TERMS)
    shop.stripe.engine.behavior.search_lag_seconds = 100 * DAY
    assert shop.deliver() == Done()
    shop.lose_row()
    shop.passes(3 * DAY)
    assert shop.deliver() == Done()
    assert (shop.outcome, shop.stripe.charged) == (("SUCCEEDED", "pi_0"), ["pi_0"])


@pytest.mark.parametrize(("card", "status"), [("pm_card_visa", "succeeded"), (NO_FUNDS, "requires_payment_method")])
def test_another_programs_charge_in_the_same_group_is_not_the_orders(shop: Shop, card: str, status: str) -> None:
    """It shares the account, and groups a surcharge by our order's id: it pays no order, and is not canceled."""
    shop.use_terms(GROUPED_TERMS)
    theirs = client_of(shop.stripe).v1.payment_intents
    money = {"amount": REQUEST.amount_minor, "currency": "eur", "allowed_payment_method_types": ["card"]}
    made = theirs.create(money | {"transfer_group": ORDER_ID}, {"idempotency_key": "theirs"})
    with suppress(stripe.CardError):
        theirs.confirm(made.id, {"payment_method": card}, {"idempotency_key": "theirs, too"})
    shop.now = OLD
    assert shop.deliver() == Done()
    assert (shop.outcome, shop.stripe.intent(made.id).status) == (("SUCCEEDED", "pi_1"), status)


def test_a_decline_is_found_without_search(shop: Shop) -> None:
    """Its PaymentIntent is still open, and a page that is open could pay it: it is canceled."""
    shop.use_terms(GROUPED_TERMS)
    shop.stripe.engine.behavior.search_lag_seconds = 100 * DAY
    assert shop.deliver(payment_method="pm_card_visa_chargeDeclined") == Done()
    shop.lose_row()
    shop.passes(3 * DAY)
    assert shop.deliver() == Done()
    assert shop.stripe.intent("pi_0").status == "canceled"
    assert shop.stripe.charged == ["pi_1"]


def test_a_deployment_changes_no_parameters_under_a_key(shop: Shop) -> None:
    """The row keeps the terms of its first claim: a create that is sent again is a replay, and no misused key."""
    shop.stripe.next("create", LOST)
    assert shop.deliver() == BackOff()
    shop.use_terms(GROUPED_TERMS)
    assert shop.deliver() == Done()
    assert (shop.row()["terms_version"], len(shop.stripe.intents)) == (1, 1)
    assert "Alarm" not in shop.counted
    shop.deliver("b")
    assert (shop.row("b")["terms_version"], shop.stripe.intents[1].transfer_group) == (2, shop.order("b").order_id)
    assert shop.stripe.intents[1].statement_descriptor_suffix == "ORD AAAAAA"


def test_without_search_a_misused_key_is_left_to_a_person(shop: Shop) -> None:
    """Whoever used it may have done so before the order's time, so a list from there on proves nothing: an alarm."""
    shop.stripe.engine.behavior.has_search = False
    charged = shop.made_before("succeeded", key=CREATE_0)
    assert [shop.deliver(), shop.deliver()] == [BackOff()] * 2
    assert shop.counted.count("Alarm") >= 2
    assert (shop.row()["state"], shop.stripe.charged) == ("PENDING", [charged])


def test_a_delivery_that_stripe_keeps_canceling_ends(shop: Shop) -> None:
    """An alarm is raised, and the next delivery tries again."""

    def canceled(execute: Execute) -> Any:
        made = execute()
        shop.stripe.show(made.id, "canceled", cancellation_reason="automatic")
        return client_of(shop.stripe).v1.payment_intents.retrieve(made.id)

    shop.stripe.next("create", *[canceled] * STEPS_MAX)
    assert shop.deliver() == BackOff()
    assert "Alarm" in shop.counted
    assert shop.deliver() == Done()
    assert len(shop.stripe.sent("create")) == STEPS_MAX + 1


# ---------------------------------------------------------------- 22 hours old: look up before the id is stored


def test_an_old_order_is_looked_up_before_its_id_is_stored(shop: Shop) -> None:
    """Its row may have been lost, so the row proves nothing. Nothing else is found, so it is confirmed."""
    shop.now = OLD
    stored: list[bool] = []
    shop.stripe.next("list", afterwards(lambda: stored.append("payment_intent_id" in shop.row())))
    assert shop.deliver() == Done()
    assert shop.stripe.operations == ["create", *lookup_of(1), "confirm"]
    assert stored == [False]


def test_an_order_that_becomes_old_during_the_create_is_looked_up(shop: Shop) -> None:
    """The clock counts when the answer has arrived: the key may be forgotten, and another worker's charge is found."""
    shop.now = OLD - 1
    shop.deliver()
    shop.lose_row()

    def eleven_seconds_pass() -> None:
        shop.stripe.forget_keys()
        shop.passes(11)

    shop.stripe.next("create", meanwhile(eleven_seconds_pass))
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_0")
    assert shop.stripe.charged == ["pi_0"]


def test_a_redrive_after_13_days_finds_the_charge(shop: Shop) -> None:
    """The row is lost and every key forgotten. The PaymentIntent created beside the charge is never confirmed."""
    shop.deliver()
    shop.lose_row()
    shop.stripe.forget_keys()
    shop.passes(13 * 24 * 3600)
    assert shop.deliver() == Done()
    assert shop.stripe.operations[2:] == ["create", *lookup_of(2), "refunds", "disputes", "warnings"]
    assert shop.outcome == ("SUCCEEDED", "pi_0")
    assert shop.stripe.charged == ["pi_0"]


@pytest.mark.parametrize("status", ["requires_payment_method", "requires_confirmation", "requires_action"])
def test_an_open_payment_intent_that_is_found_is_canceled(shop: Shop, status: str) -> None:
    """It is never confirmed: another worker's confirm of it may be on its way. Our own one is confirmed."""
    found = shop.made_before(status)
    shop.now = OLD
    assert shop.deliver() == Done()
    assert shop.stripe.operations == ["create", *lookup_of(2), "cancel", "confirm"]
    assert shop.stripe.charged == ["pi_1"]
    assert shop.stripe.intent(found).cancellation_reason == "abandoned"


def test_a_payment_intent_that_succeeds_while_it_is_canceled_is_the_charge(shop: Shop) -> None:
    """Stripe decides the race."""
    found = shop.made_before()
    shop.stripe.next("cancel", meanwhile(lambda: shop.stripe.show(found, "succeeded")))
    shop.now = OLD
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", found)
    assert shop.stripe.sent("confirm") == []


def test_a_processing_payment_intent_that_is_found_is_waited_for(shop: Shop) -> None:
    """Nothing is confirmed beside it, however often the message is delivered."""
    found = shop.made_before("processing")
    shop.now = OLD
    assert [shop.deliver(), shop.deliver()] == [BackOff()] * 2
    assert shop.stripe.operations == ["create", *lookup_of(2), "create", "retrieve", *lookup_of(2)]
    shop.stripe.show(found, "succeeded")
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", found)


@pytest.mark.parametrize(
    ("raised", "is_alarm"),
    [(sdk_error(None), False), (sdk_error(500), False), (sdk_error(401), True), (LookupInconclusive(), True)],
)
def test_a_failed_lookup_proves_nothing(shop: Shop, raised: Exception, is_alarm: bool) -> None:
    """Nothing is stored or confirmed. A failure that does not pass by itself raises an alarm."""

    def fails(_: Execute) -> Any:
        raise raised

    shop.now = OLD
    shop.stripe.next("search", fails)
    assert shop.deliver() == BackOff()
    assert shop.stripe.operations == ["create", "search"]
    assert "payment_intent_id" not in shop.row()
    assert ("Alarm" in shop.counted) is is_alarm


def test_each_generation_of_an_old_order_is_looked_up(shop: Shop) -> None:
    """Stripe has canceled the PaymentIntent that the row names. Keys may be forgotten, so another lookup follows."""
    shop.stripe.next("confirm", NO_ANSWER)
    shop.deliver()
    shop.stripe.show("pi_0", "canceled", cancellation_reason="automatic")
    shop.now = OLD
    assert shop.deliver() == Done()
    assert shop.stripe.operations[2:] == ["retrieve", "create", *lookup_of(2), "confirm"]


def test_an_old_order_with_a_usable_payment_intent_is_not_looked_up(shop: Shop) -> None:
    """The row names it, and it can succeed once, whether or not its keys are remembered."""
    shop.stripe.next("confirm", NO_ANSWER)
    shop.deliver()
    shop.now = OLD + 10**6
    shop.stripe.forget_keys()
    assert shop.deliver() == Done()
    assert shop.stripe.operations[2:] == ["retrieve", "confirm"]


def test_two_workers_with_a_payment_intent_each_make_one_charge(shop: Shop) -> None:
    """The order is old. A's row is lost while A creates, B charges, and the row is restored with A's lease.

    A's lookup follows its create, so it sees what B did.
    """
    shop.now = OLD

    def b_charges() -> None:
        item = shop.row()
        shop.lose_row()
        shop.io.faults["stripe_confirm"] = "processing"
        shop.deliver()
        shop.stripe.forget_keys()
        shop.restore(item)

    shop.stripe.next("create", meanwhile(b_charges))
    assert shop.deliver() == BackOff()
    shop.stripe.show("pi_0", "succeeded")
    shop.passes()
    assert shop.deliver() == Done()
    assert shop.stripe.charged == ["pi_0"]
    assert shop.outcome == ("SUCCEEDED", "pi_0")


# ---------------------------------------------------------------- confirm


@pytest.mark.parametrize(
    ("card", "state", "code"),
    [
        (VISA, "SUCCEEDED", None),
        (NO_FUNDS, "DECLINED", "insufficient_funds"),
        (ASKS_FOR_ACTION, "REQUIRES_ACTION", None),
    ],
)
def test_the_banks_answer_ends_the_attempt(shop: Shop, card: str, state: str, code: str | None) -> None:
    """A later delivery sends nothing to Stripe."""
    assert [shop.deliver(payment_method=card), shop.deliver(payment_method=card)] == [Done(), Done()]
    assert (shop.row()["state"], shop.row().get("decline_code")) == (state, code)
    assert shop.stripe.operations == ["create", "confirm"]


def test_a_processing_confirm_is_waited_for(shop: Shop) -> None:
    """Later deliveries retrieve, and confirm nothing."""
    shop.io.faults["stripe_confirm"] = "processing"
    assert [shop.deliver(), shop.deliver()] == [BackOff(), BackOff()]
    shop.stripe.show("pi_0", "succeeded")
    assert shop.deliver() == Done()
    assert shop.stripe.operations == ["create", "confirm", "retrieve", "retrieve", "refunds", "disputes", "warnings"]


@pytest.mark.parametrize("status", [None, 503, 401])
def test_an_unanswered_confirm_is_retrieved_first(shop: Shop, status: int | None) -> None:
    """If it has not taken effect, it is sent again under the same key."""
    shop.stripe.next("confirm", answer(status), answer_after(status))
    assert [shop.deliver(), shop.deliver(), shop.deliver()] == [BackOff(), BackOff(), Done()]
    assert shop.stripe.sent("confirm") == [CONFIRM_0] * 2
    assert shop.stripe.operations[-4:] == ["retrieve", "refunds", "disputes", "warnings"]
    assert shop.stripe.charged == ["pi_0"]


@pytest.mark.parametrize(("status", "charged"), [("succeeded", "pi_0"), ("canceled", "pi_1")])
def test_an_unexpected_state_decides(shop: Shop, status: str, charged: str) -> None:
    """It is paid; or Stripe has canceled it, and the next generation follows."""
    reason = {"cancellation_reason": "automatic"} if status == "canceled" else {}
    shop.stripe.next("confirm", meanwhile(lambda: shop.stripe.show("pi_0", status, **reason)))
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", charged)
    assert shop.stripe.charged == [charged]


@pytest.mark.parametrize("replay", [False, True])
def test_an_unexpected_state_of_an_open_payment_intent_abandons_it(shop: Shop, replay: bool) -> None:
    """The key has had its answer, and would replay it forever."""
    shop.stripe.next("confirm", answer(400, replay=replay, **UNEXPECTED_STATE))
    assert shop.deliver() == Done()
    assert shop.stripe.intent("pi_0").cancellation_reason == "abandoned"
    assert shop.stripe.charged == ["pi_1"]


def test_an_unexpected_state_does_not_take_over_another_attempts_action(shop: Shop) -> None:
    """The PaymentIntent waits for the previous attempt's card: this attempt takes the next generation."""
    shop.deliver(payment_method=LOST_CARD)

    def the_first_card_waits(_: Execute) -> Any:
        shop.stripe.show("pi_0", "requires_action", payment_method=LOST_CARD, last_payment_error=None)
        raise sdk_error(400, **UNEXPECTED_STATE)

    shop.stripe.next("confirm", the_first_card_waits)
    assert shop.deliver(attempt=2, payment_method=MASTERCARD) == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_1")


def test_a_stored_failure_of_a_confirm_abandons_the_payment_intent(shop: Shop) -> None:
    """Its key would replay the failure forever. The next generation has a key of its own."""
    shop.io.faults["stripe_confirm"] = STORED_FAILURE
    assert [shop.deliver(), shop.deliver()] == [BackOff(), Done()]
    assert shop.stripe.operations == [
        *("create", "confirm"),
        *("retrieve", "confirm", "retrieve", "cancel", "create", "confirm"),
    ]
    assert shop.stripe.sent("confirm") == [CONFIRM_0, CONFIRM_0, CONFIRM_1]
    assert shop.stripe.charged == ["pi_1"]


@pytest.mark.parametrize("stored", [answer(503, replay=True), answer(400, replay=True, code="amount_too_large")])
def test_what_a_key_stores_does_not_take_over_another_attempts_decline(shop: Shop, stored: Step) -> None:
    """The PaymentIntent still shows the first card's decline. The second was never tried, and is tried now."""
    shop.deliver(payment_method=LOST_CARD)
    shop.stripe.next("confirm", stored)
    assert shop.deliver(attempt=2, payment_method=MASTERCARD) == Done()
    assert shop.stripe.sent("confirm")[-2:] == [f"order:{ORDER_ID}:2:pi_0", f"order:{ORDER_ID}:2:pi_1"]
    assert shop.outcome == ("SUCCEEDED", "pi_1")


@pytest.mark.parametrize("before", ["retrieve", "cancel"])
def test_a_stored_failure_that_takes_effect_late_is_the_charge(shop: Shop, before: str) -> None:
    """Stripe rolls it forward before it is retrieved, or canceled: nothing else is created."""
    shop.io.faults["stripe_confirm"] = STORED_FAILURE
    shop.deliver()
    shop.stripe.next("retrieve", as_usual)
    shop.stripe.next(before, meanwhile(lambda: shop.stripe.show("pi_0", "succeeded")))
    assert shop.deliver() == Done()
    assert shop.stripe.charged == ["pi_0"]
    assert shop.stripe.sent("create") == [CREATE_0]


@pytest.mark.parametrize(
    ("status", "state"),
    [("succeeded", "SUCCEEDED"), ("processing", "PENDING"), ("requires_action", "REQUIRES_ACTION")],
)
def test_a_402_is_a_decline_only_if_the_payment_intent_shows_one(shop: Shop, status: str, state: str) -> None:
    """The PaymentIntent decides, not the response."""

    def declined_by_word_only(execute: Execute) -> Any:
        shop.stripe.show("pi_0", status)
        return answer(402, code="card_declined")(execute)

    shop.stripe.next("confirm", declined_by_word_only)
    shop.deliver()
    assert shop.row()["state"] == state


def declined(shop: Shop, card: str) -> Step:
    """The confirm is declined, and the response leaves the PaymentIntent out.

    If the card asks for authentication, there is no charge: nobody is there, and the bank is not asked.
    """

    def step(execute: Execute) -> Any:
        parameters = {"payment_method": card, "off_session": True}
        with pytest.raises(stripe.CardError):
            client_of(shop.stripe).v1.payment_intents.confirm(shop.stripe.intents[-1].id, parameters)
        return answer(402, code="card_declined")(execute)

    return step


BY_THE_BANK = (LOST_CARD, "lost_card")
WITHOUT_CHARGE = (ASKS_FOR_ACTION, "authentication_required")


@pytest.mark.parametrize(("card", "code"), [BY_THE_BANK, WITHOUT_CHARGE])
def test_a_402_without_its_payment_intent_is_retrieved(shop: Shop, card: str, code: str) -> None:
    """The PaymentIntent shows the decline; also one without a charge, of which the bank was not asked."""
    shop.stripe.next("confirm", declined(shop, card))
    assert shop.deliver(payment_method=card) == Done()
    assert (shop.outcome, shop.row()["decline_code"]) == (("DECLINED", "pi_0"), code)
    assert shop.stripe.operations == ["create", "confirm", "retrieve"]


def test_a_decline_that_asks_for_authentication_can_be_paid_again(shop: Shop) -> None:
    """The PaymentIntent requires a payment method, which no page can authenticate: the next attempt confirms it."""
    shop.stripe.next("confirm", declined(shop, ASKS_FOR_ACTION))
    assert shop.deliver(payment_method=ASKS_FOR_ACTION) == Done()
    assert (shop.row()["state"], shop.row()["decline_code"]) == ("DECLINED", "authentication_required")
    assert shop.deliver(attempt=2) == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_0")


def test_a_card_that_must_not_be_tried_again_is_known_by_another_name(shop: Shop) -> None:
    """Each form makes a new PaymentMethod of the same card. No attempt confirms it, until another card pays."""
    shop.deliver(payment_method=LOST_CARD)
    for attempt in (2, 3):
        assert shop.deliver(attempt=attempt, payment_method=shop.stripe.new_form(LOST_CARD)) == Done()
        row = shop.row()
        assert (row["state"], row["decline_code"], row["advice_code"]) == ("DECLINED", "refused_card", DO_NOT_TRY_AGAIN)
    assert shop.stripe.sent("confirm") == [CONFIRM_0]
    assert shop.deliver(attempt=4, payment_method=MASTERCARD) == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_0")


def test_stripes_limit_on_attempts_holds_though_an_update_hides_the_decline(shop: Shop) -> None:
    """Stripe cancels the PaymentIntent at the next confirm. Only its latest charge still says that it was declined."""
    shop.deliver(payment_method=NO_FUNDS)
    shop.stripe.update_by_hand(shop.stripe.intents[0])
    shop.io.faults["stripe_confirm"] = "canceled by Stripe"
    assert shop.deliver(attempt=2) == Done()
    assert (shop.row()["state"], shop.row()["decline_code"]) == ("DECLINED", "no_attempt_left")


def test_a_card_that_is_refused_after_3_d_secure_is_known_as_well(shop: Shop) -> None:
    """The reconciler finalizes that decline."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    card = shop.stripe.ours.all(PaymentMethod)[ASKS_FOR_ACTION].as_json()
    error = {"code": "card_declined", "advice_code": DO_NOT_TRY_AGAIN, "payment_method": card}
    shop.stripe.show("pi_0", "requires_payment_method", last_payment_error=error)
    shop.run(after_seconds=3600)
    shop.deliver(attempt=2, payment_method=shop.stripe.new_form(ASKS_FOR_ACTION))
    assert (shop.row()["decline_code"], shop.stripe.sent("confirm")) == ("refused_card", [CONFIRM_0])


def test_an_update_does_not_hide_which_card_was_refused(shop: Shop) -> None:
    """A worker has died after the confirm, and metadata added by hand clears the error: the replay still says it."""
    shop.crash_after("confirm", payment_method=LOST_CARD)
    shop.stripe.update_by_hand(shop.stripe.intents[0])
    shop.passes()
    shop.deliver(payment_method=LOST_CARD)
    assert shop.row()["advice_code"] == DO_NOT_TRY_AGAIN
    shop.deliver(attempt=2, payment_method=shop.stripe.new_form(LOST_CARD))
    assert shop.row()["decline_code"] == "refused_card"


def test_the_renewed_card_is_another_one(shop: Shop) -> None:
    """An expired card has the number of the card that replaces it."""
    shop.deliver(payment_method="pm_card_chargeDeclinedExpiredCard")
    shop.deliver(attempt=2, payment_method=shop.stripe.new_form("pm_card_chargeDeclinedExpiredCard"))
    assert (shop.row()["decline_code"], len(shop.stripe.sent("confirm"))) == ("expired_card", 2)


def test_no_later_attempt_takes_a_decline_that_a_refused_card_has_seen(shop: Shop) -> None:
    """The page tries another card meanwhile. The next worker dies before its confirm: the order is still charged."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    [intent] = shop.stripe.intents
    shop.stripe.bank_decides(intent, pays=False)
    shop.run(after_seconds=3600)
    shop.deliver(attempt=2, payment_method=LOST_CARD)
    shop.stripe.customer_confirms(intent.client_secret, NO_FUNDS)
    shop.deliver(attempt=3, payment_method=shop.stripe.new_form(LOST_CARD))
    shop.crash_before("confirm", attempt=4, payment_method=MASTERCARD)
    shop.run(after_seconds=3600)
    assert shop.deliver(attempt=4, payment_method=MASTERCARD) == Done()
    assert shop.row()["state"] == "SUCCEEDED"


def test_the_share_of_declines_is_measured(shop: Shop) -> None:
    """One sample a payment: 1 if it is declined, 0 if it succeeds."""
    shop.deliver(payment_method=NO_FUNDS)
    shop.deliver("b")
    shop.deliver("c", payment_method=ASKS_FOR_ACTION)
    samples: list[Any] = [each for each in shop.counted if each == "DeclinedShare"]
    assert [(each.value, each.dimensions) for each in samples] == [(value, ({"of": "payments"},)) for value in (1, 0)]


def test_no_charge_waits_for_the_right_to_read_warnings(shop: Shop) -> None:
    """The API key may not ask Radar. The charge whose worker died is finalized all the same."""
    shop.crash_after("confirm")
    shop.stripe.failing["warnings"] = answer(403)
    shop.passes()
    assert shop.deliver() == Done()
    assert (shop.outcome, "warnings" in shop.stripe.operations) == (("SUCCEEDED", "pi_0"), True)


def test_a_card_that_may_be_tried_again_is(shop: Shop) -> None:
    """Without the advice nothing is stored, and no request asks which card it is."""
    shop.deliver(payment_method=NO_FUNDS)
    shop.deliver(attempt=2, payment_method=shop.stripe.new_form(NO_FUNDS))
    assert ("payment method" in shop.stripe.operations, len(shop.stripe.sent("confirm"))) == (False, 2)


@pytest.mark.parametrize(
    ("step", "first", "confirms"), [(NO_ANSWER, BackOff(), 1), (WRONG_KEY, BackOff(), 1), (answer(404), Done(), 2)]
)
def test_a_card_that_stripe_does_not_name_waits(shop: Shop, step: Step, first: BackOff | Done, confirms: int) -> None:
    """Else one worker would confirm, and the next one refuse, whose decline a later attempt might take for its own.

    A card that does not exist is confirmed, since the customer has to be told.
    """
    shop.deliver(payment_method=LOST_CARD)
    shop.stripe.next("payment method", step)
    assert shop.deliver(attempt=2, payment_method=shop.stripe.new_form(LOST_CARD)) == first
    assert len(shop.stripe.sent("confirm")) == confirms


def test_what_has_paid_meanwhile_is_paid_though_its_card_is_refused(shop: Shop) -> None:
    """The customer's open page has paid with another card."""
    shop.deliver(payment_method=LOST_CARD)
    shop.stripe.next("payment method", meanwhile(lambda: shop.stripe.show("pi_0", "succeeded")))
    assert shop.deliver(attempt=2, payment_method=shop.stripe.new_form(LOST_CARD)) == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_0")


@pytest.mark.parametrize(
    ("card", "code", "failure"),
    [
        (*BY_THE_BANK, sdk_error(402, code="card_declined", decline_code="lost_card")),
        (*WITHOUT_CHARGE, sdk_error(402, code="authentication_required")),
        (*BY_THE_BANK, sdk_error(500, replay=True)),
    ],
)
def test_a_decline_whose_error_was_cleared_is_not_tried_again(
    shop: Shop, card: str, code: str, failure: Exception
) -> None:
    """A person has added metadata in the Dashboard. The response, or else the latest charge, still says it."""

    def cleared(execute: Execute) -> Any:
        with suppress(stripe.CardError):
            declined(shop, card)(execute)
        assert shop.stripe.update_by_hand(shop.stripe.intent("pi_0"))
        raise failure

    shop.stripe.next("confirm", cleared)
    assert shop.deliver(payment_method=card) == Done()
    assert (shop.outcome, shop.row()["decline_code"]) == (("DECLINED", "pi_0"), code)
    assert shop.stripe.sent("create") == [CREATE_0]


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
def test_a_refused_card_or_amount_is_a_decline(shop: Shop, details: dict[str, Any], code: str) -> None:
    """It has Stripe's message and request id. Another card is another attempt, on the same PaymentIntent."""
    shop.stripe.next("confirm", answer(400, **details))
    assert shop.deliver() == Done()
    row = shop.row()
    assert (row["state"], row["decline_code"], row["stripe_request_id"]) == ("DECLINED", code, "req_1")
    assert row["stripe_message"] == details.get("message", "message")
    assert shop.deliver(attempt=2, payment_method=MASTERCARD) == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_0")


def test_a_card_used_up_by_this_payment_intent_has_paid(shop: Shop) -> None:
    """With the key forgotten, Stripe answers with that refusal alone: the PaymentIntent is retrieved."""
    shop.stripe.next("confirm", answer_after(400, message=USED_UP))
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_0")


def test_an_amount_that_stripe_does_not_take_is_declined_at_the_create(shop: Shop) -> None:
    """There is no PaymentIntent, and nothing to review."""
    shop.stripe.next("create", answer(400, code="amount_too_small"))
    assert shop.deliver() == Done()
    assert (shop.outcome, shop.row()["decline_code"]) == (("DECLINED", None), "amount_too_small")


@pytest.mark.parametrize("operation", ["create", "confirm"])
def test_a_refused_request_waits_an_hour_then_for_a_person(shop: Shop, operation: str) -> None:
    """Each delivery raises an alarm."""
    shop.stripe.next(operation, *[answer(400, code="parameter_unknown")] * 3)
    assert shop.deliver() == BackOff()
    shop.passes(REFUSED_SECONDS - 1)
    assert shop.deliver() == BackOff()
    assert shop.row()["stripe_request_id"] == "req_1"
    shop.passes(1)
    assert shop.deliver() == Done()
    assert (shop.row()["state"], shop.row()["decline_code"]) == ("NEEDS_REVIEW", "parameter_unknown")
    assert shop.counted.count("Alarm") == 3


@pytest.mark.parametrize("fault", ["answer lost", SENT_AGAIN])
def test_the_alarm_of_a_review_is_raised_before_the_row_says_so(shop: Shop, fault: str) -> None:
    """The write's answer is lost, or botocore's second request is refused: the next delivery is a duplicate, which
    raises none."""
    shop.made_before("succeeded")
    shop.made_before("succeeded")
    shop.now = OLD
    shop.stripe.next("search", meanwhile(lambda: shop.io.faults.update(dynamodb_UpdateItem=fault)))
    with suppress(ClientError, ReadTimeoutError):
        shop.deliver()
    assert "Alarm" in shop.counted
    shop.passes()
    shop.deliver()
    assert shop.row()["state"] == "NEEDS_REVIEW"


def test_a_claim_that_botocore_sends_again_is_this_workers(shop: Shop) -> None:
    """The first request's answer was lost. The second is refused by the lease that the first took."""
    shop.io.faults.update(dynamodb_UpdateItem=SENT_AGAIN)
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_0")


def test_a_worker_that_dies_after_it_stored_the_id_loses_no_refund(shop: Shop) -> None:
    """The row was lost; the next delivery finds the charge by the id, and cannot know that."""
    shop.deliver()
    shop.stripe.refund_by_hand("pi_0", 1099)
    shop.lose_row()
    shop.stripe.next("disputes", afterwards(lambda: shop.io.faults.update(dynamodb_UpdateItem="answer lost")))
    with pytest.raises(ReadTimeoutError):
        shop.deliver()
    assert shop.outcome == ("PENDING", "pi_0")
    shop.passes()
    assert shop.deliver() == Done()
    assert (shop.row()["state"], shop.row()["amount_refunded_minor"]) == ("SUCCEEDED", 1099)


@pytest.mark.parametrize("keys", ["remembered", "forgotten"])
def test_an_order_placed_again_knows_its_refunds_and_disputes(shop: Shop, keys: str) -> None:
    """Both services lost it, and its client retries: found under its key or by a lookup, it is PAID as it was."""
    shop.deliver()
    shop.stripe.refund_by_hand("pi_0", 1099)
    shop.stripe.disputed("pi_0", "needs_response")
    shop.stripe.warned("pi_0")
    shop.lose_row()
    if keys == "forgotten":
        shop.stripe.forget_keys()
        shop.now = OLD
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_0")
    assert (shop.row()["amount_refunded_minor"], shop.row()["dispute_status"]) == (1099, "needs_response")
    assert shop.row()["fraud_suspicion"] == "early_fraud_warning"
    assert "Alarm" in shop.counted


def test_an_order_under_review_is_published_as_such_at_once(shop: Shop) -> None:
    """Stripe opens the review with the charge, and the response names it: an alarm, and no further request."""
    assert shop.deliver(payment_method="pm_card_riskLevelElevated") == Done()
    assert (shop.outcome, shop.row()["fraud_suspicion"]) == (("SUCCEEDED", "pi_0"), "review")
    assert shop.stripe.operations == ["create", "confirm"]
    assert shop.counted.count("Alarm") == 1


def test_a_request_that_we_mend_within_the_hour_is_charged(shop: Shop) -> None:
    """A refusal of a later attempt has an hour of its own."""
    shop.stripe.next("confirm", answer(400))
    assert [shop.deliver(payment_method=LOST_CARD) for _ in range(2)] == [BackOff(), Done()]
    shop.passes(REFUSED_SECONDS)
    shop.stripe.next("confirm", answer(400))
    assert shop.deliver(attempt=2) == BackOff()
    assert shop.row()["state"] == "PENDING"


def test_a_replayed_confirm_is_retrieved(shop: Shop) -> None:
    """The replay still asks for action; since then the customer's bank has refused to authenticate."""
    code = "payment_intent_authentication_failure"
    shop.stripe.next("confirm", killed_after)
    with pytest.raises(KeyboardInterrupt):
        shop.deliver(payment_method=ASKS_FOR_ACTION)
    shop.stripe.bank_decides(shop.stripe.intent("pi_0"), pays=False)
    shop.passes()
    assert shop.deliver() == Done()
    assert (shop.row()["state"], shop.row()["decline_code"]) == ("DECLINED", code)
    assert shop.stripe.operations[2:] == ["retrieve", "confirm", "retrieve"]


def test_a_decline_under_a_key_of_another_card_is_not_the_attempts(shop: Shop) -> None:
    """A restored row counts its attempts again: its own card is tried with the next PaymentIntent, with an alarm."""
    key = {"idempotency_key": CONFIRM_0}

    def confirmed_with_another_card() -> None:
        with suppress(stripe.CardError):
            client_of(shop.stripe).v1.payment_intents.confirm("pi_0", {"payment_method": LOST_CARD}, key)

    shop.stripe.next("confirm", meanwhile(confirmed_with_another_card))
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_1")
    assert shop.stripe.intent("pi_0").cancellation_reason == "abandoned"
    assert shop.stripe.charged == ["pi_1"]
    assert "Alarm" in shop.counted


# ---------------------------------------------------------------- attempts


def test_attempt_2_with_a_decline_whose_answer_is_lost(shop: Shop) -> None:
    """The new charge is its own: it is declined, with its own code."""
    shop.deliver(payment_method=NO_FUNDS)
    shop.stripe.next("confirm", LOST)
    dispositions = [shop.deliver(attempt=2, payment_method=LOST_CARD) for _ in range(2)]
    assert dispositions == [BackOff(), Done()]
    assert (shop.row()["state"], shop.row()["decline_code"], shop.row()["attempt"]) == ("DECLINED", "lost_card", 2)


def test_a_decline_without_a_charge_is_not_the_next_attempts(shop: Shop) -> None:
    """Nobody authenticated, so the bank was not asked. The third card is tried all the same."""
    shop.deliver(payment_method=NO_FUNDS)
    shop.stripe.show("pi_0", "canceled", cancellation_reason="abandoned")
    shop.stripe.next("confirm", declined(shop, ASKS_FOR_ACTION))
    shop.deliver(attempt=2, payment_method=ASKS_FOR_ACTION)
    assert shop.row()["state"] == "DECLINED"
    assert shop.deliver(attempt=3) == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_1")


def test_an_action_that_nobody_takes_makes_way_for_another_card(shop: Shop) -> None:
    """The waiting PaymentIntent is abandoned before the next generation is confirmed."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    assert shop.deliver(attempt=2) == Done()
    assert shop.stripe.intent("pi_0").cancellation_reason == "abandoned"
    assert shop.outcome == ("SUCCEEDED", "pi_1")


def test_a_customer_who_authenticates_while_another_card_is_tried_pays_once(shop: Shop) -> None:
    """Stripe decides the race."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    shop.stripe.next("cancel", meanwhile(lambda: shop.stripe.show("pi_0", "succeeded")))
    assert shop.deliver(attempt=2) == Done()
    assert shop.stripe.charged == ["pi_0"]
    assert shop.outcome == ("SUCCEEDED", "pi_0")


# ---------------------------------------------------------------- leases, crashes, lost rows, clocks


def another_finishes(shop: Shop) -> None:
    """The lease has expired; another delivery claims the row, and finishes it."""
    shop.passes()
    assert shop.deliver() == Done()


@pytest.mark.parametrize("operation", ["create", "confirm"])
@pytest.mark.parametrize("when", [meanwhile, afterwards])
def test_a_worker_that_lost_its_lease_writes_nothing(shop: Shop, operation: str, when: Any) -> None:
    """The row is the other's, and its charge is the only one."""
    shop.stripe.next(operation, when(lambda: another_finishes(shop)))
    assert shop.deliver() == BackOff()
    assert "WriteRefused" in shop.counted
    assert shop.outcome == ("SUCCEEDED", "pi_0")
    assert shop.stripe.charged == ["pi_0"]


def test_a_worker_that_lost_its_lease_cannot_release_it(shop: Shop) -> None:
    """The other worker's lease stays."""

    def another_claims(execute: Execute) -> Any:
        shop.passes()
        shop.stripe.next("retrieve", killed)
        with pytest.raises(KeyboardInterrupt):
            shop.deliver()
        return NO_ANSWER(execute)

    shop.stripe.next("confirm", another_claims)
    assert shop.deliver() == BackOff()
    assert shop.row()["lease_expires_at"] > shop.now


@pytest.mark.parametrize("killed_at", ["create", "confirm"])
@pytest.mark.parametrize("how", [killed, killed_after])
def test_a_crashed_worker_is_followed_by_the_next_delivery(shop: Shop, killed_at: str, how: Any) -> None:
    """It begins once the lease has expired, and there is one charge."""
    shop.stripe.next(killed_at, how)
    with pytest.raises(KeyboardInterrupt):
        shop.deliver()
    another_finishes(shop)
    assert shop.stripe.charged == ["pi_0"]


@pytest.mark.parametrize("operation", ["create", "confirm"])
@pytest.mark.parametrize("when", [meanwhile, afterwards])
@pytest.mark.parametrize("begins_at", [T0 + 1, OLD - 200])
def test_a_worker_whose_clock_is_299_seconds_ahead_charges_nothing_twice(
    shop: Shop, operation: str, when: Any, begins_at: int
) -> None:
    """It takes every lease for expired, and works beside the first one."""
    shop.now = begins_at

    def the_second() -> None:
        shop.ahead = 299
        assert shop.deliver() == Done()

    shop.stripe.next(operation, when(the_second))
    shop.deliver()
    shop.ahead = 0
    assert shop.deliver() == Done()
    assert len(shop.stripe.charged) == 1
    assert shop.outcome == ("SUCCEEDED", shop.stripe.charged[0])


def test_a_worker_of_a_lost_row_does_not_own_the_next_one(shop: Shop) -> None:
    """Lease owners are random, so the row that is claimed again has a different one."""

    def lost_and_claimed_again() -> None:
        shop.lose_row()
        shop.stripe.next("create", killed)
        with pytest.raises(KeyboardInterrupt):
            shop.deliver()

    shop.stripe.next("create", afterwards(lost_and_claimed_again))
    assert shop.deliver() == BackOff()
    assert "payment_intent_id" not in shop.row()
    assert shop.stripe.operations == ["create", "create"]


def test_a_row_lost_before_the_confirm_leads_to_the_same_payment_intent(shop: Shop) -> None:
    """The next claim finds it by its key, and confirms it under the same key."""

    def lost_and_charged() -> None:
        shop.lose_row()
        assert shop.deliver() == Done()

    shop.stripe.next("confirm", meanwhile(lost_and_charged))
    assert shop.deliver() == BackOff()
    assert shop.stripe.charged == ["pi_0"]
    assert shop.stripe.sent("confirm") == [CONFIRM_0] * 2


def test_an_older_row_leads_to_the_charge(shop: Shop) -> None:
    """The restored row names a PaymentIntent that was abandoned since."""
    shop.io.faults["stripe_confirm"] = STORED_FAILURE
    shop.deliver()
    older = shop.row()
    shop.deliver()
    shop.restore(older)
    assert shop.deliver() == Done()
    assert shop.outcome == ("SUCCEEDED", "pi_1")
    assert shop.stripe.charged == ["pi_1"]


# ---------------------------------------------------------------- time, and the log


@pytest.mark.parametrize(
    ("has_intent", "late_after", "sent"),
    [(False, None, []), (False, "create", ["create"]), (True, None, []), (True, "retrieve", ["retrieve"])],
)
def test_no_request_begins_after_the_deadline(
    shop: Shop, has_intent: bool, late_after: str | None, sent: list[str]
) -> None:
    """The row is released for the next delivery."""
    if has_intent:
        shop.stripe.next("confirm", NO_ANSWER)
        shop.deliver()
        shop.stripe.requests.clear()
    if late_after:
        shop.stripe.next(late_after, afterwards(lambda: shop.passes(100)))
    deadline = shop.now + (50 if late_after else 0)
    assert worked(shop, deadline=deadline) == Unfinished("too little time left")
    assert shop.stripe.operations == sent
    assert shop.row()["lease_expires_at"] == 0
    assert shop.deliver() == Done()


@pytest.mark.parametrize(
    ("late_after", "sent"),
    [("create", []), ("search", ["search", "list"]), ("list", ["search", "list"])],
)
def test_a_lookup_without_enough_time_proves_nothing(shop: Shop, late_after: str, sent: list[str]) -> None:
    """The id is not stored, and the next delivery looks up again."""
    shop.now = OLD
    shop.stripe.next(late_after, afterwards(lambda: shop.passes(100)))
    assert isinstance(worked(shop, deadline=shop.now + 50), Unfinished)
    assert shop.stripe.operations == ["create", *sent]
    assert "payment_intent_id" not in shop.row()
    assert shop.deliver() == Done()
    assert shop.stripe.operations[-5:] == ["retrieve", *lookup_of(1), "confirm"]


@pytest.mark.parametrize(("late_after", "sent"), [("retrieve", []), ("refunds", ["refunds"])])
def test_refunds_and_disputes_are_not_read_after_the_deadline(shop: Shop, late_after: str, sent: list[str]) -> None:
    """Each of the two requests may take as long as Stripe's timeout allows."""
    shop.stripe.next("confirm", LOST)
    assert shop.deliver() == BackOff()
    shop.passes()
    shop.stripe.next(late_after, afterwards(lambda: shop.passes(100)))
    assert shop.deliver() == BackOff()
    assert shop.stripe.operations == ["create", "confirm", "retrieve", *sent]
    assert shop.deliver() == Done()


@pytest.mark.parametrize("status", ["succeeded", "requires_payment_method"])
def test_what_a_lookup_finds_at_the_deadline_is_left_to_the_next_delivery(shop: Shop, status: str) -> None:
    """Refunds and disputes are not read, and nothing is canceled: the timeout would kill the whole batch."""
    shop.now = OLD
    shop.made_before(status)
    shop.stripe.next("retrieve", as_usual, afterwards(lambda: shop.passes(100)))
    assert worked(shop, deadline=shop.now + 50) == Unfinished("too little time left")
    assert shop.stripe.operations == ["create", *lookup_of(2)]


def worked(shop: Shop, *, deadline: float) -> Payment | Unfinished:
    """Claim the first attempt, and work on it until the deadline."""
    tools = replace(shop.tools(), deadline=deadline)
    claim = tools.payments.claim(
        REQUEST,
        attempt=1,
        payment_method=VISA,
        correlation_id="c",
        owner="owner",
        now=shop.now,
        lease_seconds=35,
    )
    assert isinstance(claim, Claimed)
    return finalize_claimed(lambda row: charge(row, tools), claim.row, tools.payments, tools.instruments)
