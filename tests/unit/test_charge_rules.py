"""The decisions about charges, one by one: pure functions of a row and of what Stripe shows."""

from dataclasses import replace
from typing import Any

import pytest

from onecharge.contract.events import OrderPlaced
from onecharge.contract.states import PaymentState
from onecharge.payments.answers import ANSWERS, Action
from onecharge.payments.charge_rules import (
    Cancel,
    CancelFound,
    CancelReason,
    Confirm,
    ConfirmResult,
    Create,
    Finalize,
    FrozenRequest,
    Payment,
    StripeIntent,
    Wait,
    decide,
    decide_after_lookup,
    is_decline_of,
    review_of_stopped,
)
from onecharge.payments.stripe_responses import ResponseKind
from onecharge.payments.sync_rules import Discrepancy, find_discrepancy
from onecharge.payments.time_bounds import LOOKUP_AGE_SECONDS
from onecharge.runtime.alarms import Cause
from tests.shop.builders import ORDER_ID, REQUEST, T0, intent, order, payment
from tests.support.harness import PROJECT

OPEN = ("requires_payment_method", "requires_confirmation", "requires_action")


def decided_state(decision: object) -> PaymentState:
    assert isinstance(decision, Finalize)
    return decision.state


# ---------------------------------------------------------------- what is frozen, and the keys


def test_equal_orders_freeze_equal_requests() -> None:
    """Stripe compares the parameters sent under one key: attempt and payment method are not among them."""
    again = OrderPlaced.model_validate_json(order().model_dump_json())
    assert FrozenRequest.of(again) == REQUEST
    assert FrozenRequest.of(order(attempt=2, payment_method="pm_other")) == REQUEST
    assert FrozenRequest.of(order(amount_minor=1)) != REQUEST


def test_keys_derive_from_frozen_values_only() -> None:
    """Each generation has one create key, each attempt and PaymentIntent one confirm key, with no personal data."""
    assert REQUEST.create_key(2) == f"order:{ORDER_ID}:2"
    assert payment(attempt=3).confirm_key == f"order:{ORDER_ID}:3:pi_1"
    one_attempt = {payment(payment_method=method, generation=g).confirm_key for method in "ab" for g in (0, 1)}
    assert len(one_attempt) == 1


@pytest.mark.parametrize(
    ("age", "is_old"), [(0, False), (LOOKUP_AGE_SECONDS - 1, False), (LOOKUP_AGE_SECONDS, True), (10**8, True)]
)
def test_an_order_is_old_at_22_hours(age: int, is_old: bool) -> None:
    """They count from when it was placed, for every attempt."""
    assert REQUEST.is_old(T0 + age) is is_old


# ---------------------------------------------------------------- decide


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        (intent("succeeded"), PaymentState.SUCCEEDED),
        (intent("canceled", cancellation_reason="requested_by_customer"), PaymentState.CANCELED),
        (intent("requires_action"), PaymentState.REQUIRES_ACTION),
        (intent("requires_action", payment_method="pm_card_visa"), PaymentState.REQUIRES_ACTION),
        (
            intent("requires_payment_method", error_code="lost_card", latest_charge="ch_1"),
            PaymentState.DECLINED,
        ),
        (
            intent("requires_payment_method", error_code="authentication_required", latest_charge="ch_1"),
            PaymentState.DECLINED,
        ),
        (intent("requires_capture"), PaymentState.NEEDS_REVIEW),
        (intent("succeeded", amount_minor=1098), PaymentState.NEEDS_REVIEW),
        (intent("succeeded", currency="USD"), PaymentState.NEEDS_REVIEW),
        (intent("requires_payment_method", amount_minor=1), PaymentState.NEEDS_REVIEW),
    ],
)
def test_the_payment_intents_status_ends_the_attempt(shown: StripeIntent, state: PaymentState) -> None:
    """Other money than was frozen needs a person, and is never confirmed."""
    decision = decide(payment(), shown, confirm_result=ConfirmResult.OF_ANOTHER_WORKER)
    assert decided_state(decision) is state
    assert isinstance(decision, Finalize)
    assert decision.payment_intent_id == "pi_1"


@pytest.mark.parametrize(
    ("reason", "row", "follows"),
    [
        ("abandoned", {}, Create(1)),
        ("fraudulent", {}, review_of_stopped(intent("canceled", cancellation_reason="fraudulent"))),
        ("fraudulent", {"accepted_cancellations": ("pi_1",)}, Create(1)),
        ("fraudulent", {"cancel_requested_at": 5}, Create(1)),
    ],
)
def test_what_is_canceled_takes_no_money_whatever_its_amount(reason: str, row: dict[str, Any], follows: object) -> None:
    """Somebody had changed it: once it is canceled, `retry` and `cancel` go on as after any other."""
    shown = intent("canceled", cancellation_reason=reason, amount_minor=1)
    assert decide(payment(**row), shown) == follows


def test_a_decline_carries_what_a_shop_can_show() -> None:
    """Its code, the advice, and the charge that distinguishes the next attempt's decline from this one."""
    shown = intent(
        "requires_payment_method", error_code="lost_card", advice_code="do_not_try_again", latest_charge="ch_1"
    )
    decision = decide(payment(generation=2), replace(shown, generation=2), confirm_result=ConfirmResult.KNOWN)
    assert decision == Finalize(
        PaymentState.DECLINED,
        payment_intent_id="pi_1",
        generation=2,
        code="lost_card",
        advice_code="do_not_try_again",
        declined_charge_id="ch_1",
    )


def test_what_waits_names_the_charge_that_failed_before() -> None:
    """A later attempt takes the row over, and must not take that charge for its own decline."""
    decision = decide(payment(), intent("requires_action", latest_charge="ch_1"), ConfirmResult.KNOWN)
    assert decision == Finalize(PaymentState.REQUIRES_ACTION, "pi_1", 0, declined_charge_id="ch_1")


@pytest.mark.parametrize("status", ["requires_payment_method", "requires_confirmation"])
def test_an_untried_open_one_is_confirmed(status: str) -> None:
    """It is the row's own PaymentIntent."""
    assert decide(payment(), intent(status)) == Confirm()


@pytest.mark.parametrize("status", ["requires_payment_method", "requires_confirmation"])
@pytest.mark.parametrize("confirm_result", [ConfirmResult.KNOWN, ConfirmResult.KEY_SPENT])
def test_one_that_is_undecided_after_the_answer_is_abandoned(status: str, confirm_result: ConfirmResult) -> None:
    """No attempt has a second confirm key for the same PaymentIntent."""
    assert decide(payment(), intent(status), confirm_result=confirm_result) == Cancel(CancelReason.ABANDONED, "pi_1")


BY_STRIPE = ["automatic", "expired", "failed_invoice", "void_invoice"]


@pytest.mark.parametrize("reason", ["abandoned", *BY_STRIPE])
@pytest.mark.parametrize(("of_row", "of_intent"), [(0, 0), (2, 0), (0, 2)])
def test_a_canceled_one_is_followed_by_the_next_generation(reason: str | None, of_row: int, of_intent: int) -> None:
    """If we canceled it, or Stripe by itself. The next generation comes after all that were tried."""
    shown = intent("canceled", cancellation_reason=reason, generation=of_intent)
    assert decide(payment(generation=of_row), shown) == Create(max(of_row, of_intent + 1))


@pytest.mark.parametrize("reason", BY_STRIPE)
def test_one_that_stripe_canceled_after_a_decline_leaves_no_attempt(reason: str) -> None:
    """The next generation would evade Stripe's limit. A cancellation is finished all the same, by the next one."""
    shown = intent("canceled", cancellation_reason=reason, error_code="generic_decline", latest_charge="ch_1")
    given_up = Finalize(PaymentState.DECLINED, "pi_1", 0, code="no_attempt_left", declined_charge_id="ch_1")
    assert decide(payment(), shown) == decide(payment(), shown, ConfirmResult.KNOWN) == given_up
    assert decide(payment(cancel_requested_at=T0), shown) == Create(1)
    assert decide(payment(), replace(shown, cancellation_reason="abandoned")) == Create(1)


BY_HAND = ["fraudulent", "duplicate", "a reason of next year", None]


@pytest.mark.parametrize("reason", BY_HAND)
def test_one_that_a_person_canceled_is_followed_by_none(reason: str | None) -> None:
    """A person decides: the next generation would charge what was canceled as fraudulent. So does a found one."""
    shown = intent("canceled", cancellation_reason=reason)
    review = Finalize(PaymentState.NEEDS_REVIEW, "pi_1", 0, code=f"canceled at Stripe: {reason or 'no reason'}")
    assert decide(payment(), shown) == review
    assert decide_after_lookup(WITHOUT, OWN, [shown, ABANDONED]) == review
    assert review.alarm is Cause.NEEDS_REVIEW


@pytest.mark.parametrize("changes", [{"accepted_cancellations": ("pi_1",)}, {"cancel_requested_at": T0}])
def test_a_person_can_decide_what_follows(changes: dict[str, Any]) -> None:
    """A retry accepts the PaymentIntents that it has seen canceled, no others. A cancellation needs its own trace."""
    shown = intent("canceled", cancellation_reason="fraudulent")
    assert decide(payment(**changes), shown) == Create(1)
    assert decide_after_lookup(payment(payment_intent_id=None, **changes), OWN, [shown]) is None
    another = replace(shown, payment_intent_id="pi_9")
    if "accepted_cancellations" in changes:
        assert decided_state(decide(payment(**changes), another)) is PaymentState.NEEDS_REVIEW


@pytest.mark.parametrize("confirm_result", ConfirmResult)
@pytest.mark.parametrize("cancel_requested_at", [None, T0])
def test_a_processing_one_is_waited_for(confirm_result: ConfirmResult, cancel_requested_at: int | None) -> None:
    """No next generation is created beside it, even to cancel."""
    row = payment(cancel_requested_at=cancel_requested_at)
    assert decide(row, intent("processing"), confirm_result=confirm_result) == Wait()


@pytest.mark.parametrize("confirm_result", ConfirmResult)
@pytest.mark.parametrize("status", OPEN)
def test_an_open_one_is_canceled_on_request(status: str, confirm_result: ConfirmResult) -> None:
    """It is never confirmed, whatever was declined earlier."""
    shown = intent(status, error_code="lost_card", latest_charge="ch_1")
    decision = decide(payment(cancel_requested_at=T0), shown, confirm_result=confirm_result)
    assert decision == Cancel(CancelReason.BY_CUSTOMER, "pi_1")


def test_a_success_stays_a_success_after_a_cancellation_request() -> None:
    """Stripe has decided the race. An abandoned PaymentIntent does not mean a canceled order."""
    row = payment(cancel_requested_at=T0)
    assert decided_state(decide(row, intent("succeeded"))) is PaymentState.SUCCEEDED
    assert decide(row, intent("canceled", cancellation_reason="abandoned")) == Create(1)


def test_an_action_of_another_payment_method_is_abandoned() -> None:
    """It waits for another attempt's card, and this attempt takes the next generation."""
    shown = intent("requires_action", payment_method="pm_of_attempt_1")
    row = payment(attempt=2, payment_method="pm_of_attempt_2")
    assert decide(row, shown) == Cancel(CancelReason.ABANDONED, "pi_1")
    assert decided_state(decide(row, shown, confirm_result=ConfirmResult.KNOWN)) is PaymentState.REQUIRES_ACTION


@pytest.mark.parametrize(
    ("known", "latest", "confirm_result", "is_own"),
    [
        # It may be another attempt's, after an open page or a lost row: the attempt's one key answers that.
        (None, "ch_1", ConfirmResult.UNKNOWN, False),
        ("ch_1", "ch_2", ConfirmResult.UNKNOWN, False),
        ("ch_1", "ch_1", ConfirmResult.UNKNOWN, False),
        (None, None, ConfirmResult.UNKNOWN, False),
        # A row that was lost, or is older, does not know what earlier attempts charged: no card is declined untried.
        (None, "ch_1", ConfirmResult.OF_ANOTHER_WORKER, False),
        (None, "ch_1", ConfirmResult.KEY_SPENT, False),
        ("ch_1", "ch_2", ConfirmResult.OF_ANOTHER_WORKER, True),
        ("ch_1", "ch_1", ConfirmResult.OF_ANOTHER_WORKER, False),
        ("ch_1", "ch_1", ConfirmResult.KNOWN, True),
        (None, None, ConfirmResult.KNOWN, True),
        # A stored failure proves nothing: the decline may be the previous attempt's.
        ("ch_1", "ch_1", ConfirmResult.KEY_SPENT, False),
        ("ch_1", "ch_2", ConfirmResult.KEY_SPENT, True),
        # The key belongs to another confirm, with another card.
        ("ch_1", "ch_2", ConfirmResult.KEY_MISUSED, False),
    ],
)
def test_whose_decline_it_is(
    known: str | None, latest: str | None, confirm_result: ConfirmResult, is_own: bool
) -> None:
    """It is this attempt's if its confirm was answered; the charge decides only where the confirm cannot be sent."""
    shown = intent("requires_payment_method", error_code="lost_card", latest_charge=latest)
    row = payment(attempt=2, declined_charge_id=known)
    assert is_decline_of(row, shown, confirm_result) is is_own
    decision = decide(row, shown, confirm_result=confirm_result)
    if is_own:
        assert decided_state(decision) is PaymentState.DECLINED
    else:
        assert decision == (
            Confirm() if confirm_result is ConfirmResult.UNKNOWN else Cancel(CancelReason.ABANDONED, "pi_1")
        )


# ---------------------------------------------------------------- after a lookup

ABANDONED = intent("canceled", cancellation_reason="abandoned")
CANCELED = intent("canceled", cancellation_reason="requested_by_customer", payment_intent_id="pi_c")
SUCCEEDED = intent("succeeded", payment_intent_id="pi_s")
PROCESSING = intent("processing", payment_intent_id="pi_p")
WITHOUT = payment(payment_intent_id=None)
OWN = intent("requires_payment_method", payment_intent_id="pi_own")


def test_our_own_is_stored_if_no_other_is_open() -> None:
    """An abandoned one can never charge, whether we or Stripe canceled it."""
    assert decide_after_lookup(WITHOUT, OWN, []) is None
    assert decide_after_lookup(WITHOUT, OWN, [ABANDONED, replace(ABANDONED, cancellation_reason="automatic")]) is None


@pytest.mark.parametrize("status", OPEN)
def test_a_found_one_is_never_confirmed(status: str) -> None:
    """Every other open one is canceled first, even beside a canceled order's."""
    found = [intent(status), intent(status, payment_intent_id="pi_2"), ABANDONED, CANCELED]
    assert decide_after_lookup(WITHOUT, OWN, found) == CancelFound(("pi_1", "pi_2"))


@pytest.mark.parametrize("others", [[], [ABANDONED], [CANCELED], [PROCESSING], [intent("requires_action")]])
def test_one_that_succeeded_is_the_payment(others: list[StripeIntent]) -> None:
    """Other PaymentIntents do not matter then."""
    decision = decide_after_lookup(WITHOUT, OWN, [*others, SUCCEEDED])
    assert isinstance(decision, Finalize)
    assert (decision.state, decision.payment_intent_id) == (PaymentState.SUCCEEDED, "pi_s")


@pytest.mark.parametrize(
    "found",
    [
        [SUCCEEDED, intent("succeeded")],
        [replace(SUCCEEDED, amount_minor=1)],
        [replace(SUCCEEDED, currency="USD")],
        [intent("requires_capture"), CANCELED],
    ],
)
def test_an_impossible_find_needs_a_person(found: list[StripeIntent]) -> None:
    """Two have succeeded, the money differs, or the status is unexpected."""
    assert decided_state(decide_after_lookup(WITHOUT, OWN, found)) is PaymentState.NEEDS_REVIEW


def test_our_own_counts_among_those_that_succeeded() -> None:
    """Another worker may have confirmed it."""
    own = replace(OWN, status="succeeded")
    assert decided_state(decide_after_lookup(WITHOUT, own, [])) is PaymentState.SUCCEEDED
    assert decided_state(decide_after_lookup(WITHOUT, own, [SUCCEEDED])) is PaymentState.NEEDS_REVIEW


@pytest.mark.parametrize("others", [[], [CANCELED], [ABANDONED], [intent("requires_payment_method")]])
def test_one_that_is_processing_is_waited_for(others: list[StripeIntent]) -> None:
    """It may yet succeed, so nothing is confirmed beside it, and the order is not CANCELED."""
    assert decide_after_lookup(WITHOUT, OWN, [*others, PROCESSING]) == Wait()


def test_the_trace_of_a_cancellation_outlives_the_row() -> None:
    """An abandoned PaymentIntent alone does not cancel the order."""
    assert decided_state(decide_after_lookup(WITHOUT, OWN, [ABANDONED, CANCELED])) is PaymentState.CANCELED


# ---------------------------------------------------------------- the table of responses


def test_every_kind_of_response_has_an_answer() -> None:
    """No response falls through, and no action is there for nothing."""
    assert ANSWERS.keys() == set(ResponseKind)
    assert {action for each in ANSWERS.values() for action in (each.charge, each.refund)} == set(Action)


def test_the_documented_table_of_responses_is_the_codes() -> None:
    """docs/protocol.md says of each response what the code does."""

    def cell(action: Action, alarm: object) -> str:
        return f"{action.name}, alarm" if alarm else action.name

    text = (PROJECT / "docs/protocol.md").read_text()
    section = text.split("## Responses that are not what was asked for")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")][2:]
    documented = [[column.strip() for column in line.strip("|").split("|")] for line in table]
    assert documented == [
        [kind.value, cell(each.charge, each.charge_alarm), cell(each.refund, each.refund_alarm)]
        for kind, each in ANSWERS.items()
    ]


# ---------------------------------------------------------------- webhook and reconciler

HOUR = 3600
DECLINE = intent("requires_payment_method", error_code="lost_card")
ASKS_AGAIN = intent("requires_payment_method", error_code="authentication_required")
"""A page cannot finish it: `handleNextAction` takes nothing but requires_action."""


def row(state: PaymentState, **changes: Any) -> Payment:
    return payment(state=state, finalized_at=T0, lease_expires_at=0, lease_owner=None, **changes)


HELD = payment()
FREE = payment(lease_expires_at=T0)
OTHER = intent("succeeded", payment_intent_id="pi_2")
MONEY_DIFFERS = intent("succeeded", amount_minor=1)

CASES: list[tuple[str, Payment | None, StripeIntent, Discrepancy]] = [
    ("no row, a charge", None, intent(), Discrepancy.LOST_ROW),
    ("no row, no charge", None, DECLINE, Discrepancy.NONE),
    ("held, its charge", HELD, intent(), Discrepancy.NONE),
    ("held, another's charge", HELD, OTHER, Discrepancy.PAID),
    ("abandoned by its worker, its charge", FREE, intent(), Discrepancy.PAID),
    ("abandoned by its worker, declined", FREE, DECLINE, Discrepancy.NONE),
    ("paid, its charge", row(PaymentState.SUCCEEDED), intent(), Discrepancy.NONE),
    ("paid, another charge", row(PaymentState.SUCCEEDED), OTHER, Discrepancy.PAID_TWICE),
    ("paid, its charge is none", row(PaymentState.SUCCEEDED), DECLINE, Discrepancy.REVERSED),
    (
        *("paid, another that is canceled", row(PaymentState.SUCCEEDED)),
        *(intent("canceled", payment_intent_id="pi_2"), Discrepancy.NONE),
    ),
    ("canceled, a charge", row(PaymentState.CANCELED), intent(), Discrepancy.PAID_AFTER_CANCEL),
    ("canceled, a charge of other money", row(PaymentState.CANCELED), MONEY_DIFFERS, Discrepancy.PAID_AFTER_CANCEL),
    ("canceled, canceled", row(PaymentState.CANCELED), CANCELED, Discrepancy.NONE),
    ("declined, charged later", row(PaymentState.DECLINED), intent(), Discrepancy.PAID_LATE),
    ("declined, declined", row(PaymentState.DECLINED), DECLINE, Discrepancy.NONE),
    ("declined, other money", row(PaymentState.DECLINED), MONEY_DIFFERS, Discrepancy.MONEY_DIFFERS),
    ("in review, its charge", row(PaymentState.NEEDS_REVIEW), intent(), Discrepancy.PAID),
    ("in review, other money", row(PaymentState.NEEDS_REVIEW), MONEY_DIFFERS, Discrepancy.NONE),
    ("waiting, its charge", row(PaymentState.REQUIRES_ACTION), intent(), Discrepancy.PAID),
    ("waiting, waits", row(PaymentState.REQUIRES_ACTION), intent("requires_action"), Discrepancy.NONE),
    ("waiting, asks again", row(PaymentState.REQUIRES_ACTION), ASKS_AGAIN, Discrepancy.DECLINED),
    ("waiting, the bank declined", row(PaymentState.REQUIRES_ACTION), DECLINE, Discrepancy.DECLINED),
    (
        *("waiting, canceled by hand", row(PaymentState.REQUIRES_ACTION)),
        *(replace(ABANDONED, cancellation_reason="fraudulent"), Discrepancy.STOPPED),
    ),
    ("waiting, abandoned", row(PaymentState.REQUIRES_ACTION), ABANDONED, Discrepancy.DECLINED),
    (
        *("waiting, canceled for the customer", row(PaymentState.REQUIRES_ACTION)),
        *(replace(CANCELED, payment_intent_id="pi_1"), Discrepancy.CANCELED),
    ),
    ("waiting, processing", row(PaymentState.REQUIRES_ACTION), intent("processing"), Discrepancy.NONE),
    (
        *("waiting, another is declined", row(PaymentState.REQUIRES_ACTION)),
        *(replace(DECLINE, payment_intent_id="pi_2"), Discrepancy.NONE),
    ),
]


@pytest.mark.parametrize(("of", "shown", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_row_is_compared_with_stripe(of: Payment | None, shown: StripeIntent, expected: Discrepancy) -> None:
    """A success wins over everything but another success. Nothing else changes a row, unless it waits."""
    assert find_discrepancy(of, shown, now=T0 + 1, requires_action_seconds=HOUR) is expected


def test_an_action_expires() -> None:
    """Its time counts from when the row began to wait."""
    waits, shown = row(PaymentState.REQUIRES_ACTION), intent("requires_action")

    def after(seconds: int) -> Discrepancy:
        return find_discrepancy(waits, shown, now=T0 + seconds, requires_action_seconds=HOUR)

    assert (after(HOUR - 1), after(HOUR)) == (Discrepancy.NONE, Discrepancy.EXPIRED)
