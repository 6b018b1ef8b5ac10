"""What to do about an order and its refunds: each status and state, and each way in which it may be broken."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Any

import pytest
import stripe

from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.payments.disputes import Dispute
from onecharge.payments.payments_table import Payment
from onecharge.payments.refund_rules import Sent
from onecharge.payments.stripe_responses import Failure, ResponseKind
from ops.explain import events
from ops.facts import Facts, IntentFacts
from ops.findings import BROKEN, FINE, WAITS, find
from tests.shop import builders
from tests.shop.builders import DAY, HOUR, ORDER_ID, T0

NOW = T0
REFUND_ID, OTHER_ID = "rfd_" + "b" * 32, "rfd_" + "c" * 32
S, Status = PaymentState, OrderStatus
FREE = {"lease_owner": None, "lease_expires_at": 0}


def iso(age: int) -> str:
    return datetime.fromtimestamp(NOW - age, UTC).isoformat()


def order(status: OrderStatus, age: int, **changes: Any) -> StoredOrder:
    times = {"placed_at": iso(age), "waiting_since": iso(age)}
    details = {**times, "correlation_id": "c", "fingerprint": "f", "status": status}
    return StoredOrder.model_validate({**builders.order().model_dump(), **details, **changes})


def row(state: PaymentState, age: int, **changes: Any) -> Payment:
    """A row that was claimed so long ago, and finalized unless it is PENDING; its lease is free."""
    at = NOW - age
    times = {"claimed_at": at, "finalized_at": None if state is S.PENDING else at}
    frozen = {"request": replace(builders.REQUEST, placed_at=at)}
    return builders.payment(**{**times, **frozen, **FREE, "state": state, "revision": 3, **changes})


def intent(status: str, id_: str = "pi_1", *, refunds: Sequence[Any] = (), **changes: Any) -> IntentFacts:
    total = sum(each.amount for each in refunds if each.status not in ("failed", "canceled"))
    about = {"payment_intent_id": id_, "created": NOW - HOUR, "amount_refunded_minor": total}
    return IntentFacts(intent=builders.intent(status, **{**about, **changes}), refunds=refunds)


def case(
    status: OrderStatus | None,
    state: PaymentState | None,
    *intents: IntentFacts,
    age: int = HOUR,
    of_order: dict[str, Any] | None = None,
    of_row: dict[str, Any] | None = None,
    **changes: Any,
) -> Facts:
    given: dict[str, Any] = {
        "now": NOW,
        "order_id": ORDER_ID,
        "order": order(status, age, **(of_order or {})) if status else None,
        "payment": row(state, age, **(of_row or {})) if state else None,
        "intents": intents,
        "shop": builders.SHOP,
    }
    return Facts(**(given | changes))


BESIDE = intent("canceled", cancellation_reason="duplicate")
LEASED = {"lease_owner": "w", "lease_expires_at": NOW + 20}
OPEN, DONE, AUTHENTICATES = intent("requires_payment_method"), intent("succeeded"), intent("requires_action")
LOST = {"dispute_id": "dp_1", "dispute_status": "lost"}
RETURNED_500: dict[str, Any] = {"amount_refunded_minor": 500}
ALL: dict[str, Any] = {"amount_refunded_minor": 1099}
NO_ID = {"payment_intent_id": None}
REPRICED = {"amount_minor": 9}

pending, paid = partial(case, Status.PENDING, S.PENDING), partial(case, Status.PAID, S.SUCCEEDED)
authenticating = partial(case, Status.REQUIRES_ACTION, S.REQUIRES_ACTION)
canceled = partial(case, Status.CANCELED, S.SUCCEEDED)
UNASKED: dict[str, Any] = {"has_answered": False}


def refund(status: str, age: int = 60, **changes: Any) -> StoredRefund:
    names = {"order_id": ORDER_ID, "refund_id": REFUND_ID, "attempt": 1, "correlation_id": "c", "status": status}
    money = {"amount_minor": 500, "currency": "EUR", "fingerprint": "f", "requested_at": iso(age)}
    return StoredRefund.model_validate({**names, **money, **changes})


def made(status: str, amount: int = 500, refund_id: str = REFUND_ID, **changes: Any) -> Any:
    given = {"id": "re_1", "object": "refund", "amount": amount, "currency": "eur", "created": NOW - 1}
    given |= {"status": status, **changes, "metadata": {"refund_id": refund_id}}
    return stripe.Refund.construct_from(given, None)


BY_HAND = made("succeeded", refund_id="", id="re_9")


def disputed(status: str, id_: str = "pi_1", **changes: Any) -> IntentFacts:
    """It has to be answered an hour after T0."""
    dispute = {"id": "dp_1", "status": status, "evidence_details": {"due_by": T0 + HOUR}}
    shown = intent("succeeded", id_, dispute=Dispute("dp_1", status), **changes)
    return replace(shown, disputes=[stripe.Dispute.construct_from(dispute, None)])


def refunded(asked: StoredRefund, *refunds: Any, **of_intent: Any) -> Facts:
    shown = intent("succeeded", refunds=refunds, **of_intent)
    known = {"amount_refunded_minor": shown.intent.amount_refunded_minor}
    return paid(shown, of_row=known, refunds=[asked])


def waiting(*whys: str) -> Facts:
    """A refund that no delivery has finished yet; the log says why."""
    lines = [(NOW - 9 + at, {"refund_id": REFUND_ID, "why": why}) for at, why in enumerate(whys)]
    return paid(DONE, refunds=[refund("PENDING")], lines=[*lines, (NOW, {"refund_id": OTHER_ID, "why": "other"})])


REFUSED: dict[str, Any] = {"refunds_sent": {REFUND_ID: Sent(NOW, ("a",), "charge_disputed")}}
RETURNED = refund("FAILED", stripe_refund_id="re_1", failure_code="expired_or_canceled_card")

CASES: list[tuple[Facts, str, str, str]] = [
    # The facts: severity, a part of the sentence, a part of what follows.
    (paid(DONE), FINE, "PAID: nothing is left", ""),
    (case(Status.CANCELED, S.CANCELED, intent("canceled")), FINE, "CANCELED: nothing is left", ""),
    (case(Status.PAYMENT_DECLINED, S.DECLINED, OPEN), FINE, "another card", ""),
    (case(Status.PENDING, None, age=5), WAITS, "no worker has taken attempt 1", "republish"),
    (case(Status.PENDING, S.DECLINED, OPEN, of_order={"attempt": 2}), WAITS, "has taken attempt 2", "republish"),
    (pending(OPEN, of_row=LEASED), WAITS, "a worker has the row", "it finishes"),
    (pending(OPEN, of_row=LEASED | {"lease_expires_at": NOW}), WAITS, "continues", "again"),
    (pending(of_row=NO_ID), WAITS, "creates its PaymentIntent", "again"),
    (pending(**UNASKED), WAITS, "delivery continues", "again"),
    (pending(OPEN, stripe_message="429"), WAITS, "continues (Stripe said: 429)", "delivered again"),
    (case(Status.CANCELING, S.PENDING, OPEN, of_row={"cancel_requested_at": NOW}), WAITS, "continues", "again"),
    (pending(OPEN, age=DAY + 1), BROKEN, "more than a day", "look for errors"),
    (case(Status.PAYMENT_DECLINED, S.PENDING, OPEN), BROKEN, "continues", f"publish {ORDER_ID} --yes"),
    (pending(age=23 * HOUR, of_row=NO_ID), BROKEN, "held: ", f"-m ops release {ORDER_ID} --yes"),
    (pending(age=50 * HOUR, of_row=NO_ID | {"released_at": NOW - 23 * HOUR}), BROKEN, "held: ", "release"),
    (authenticating(AUTHENTICATES), WAITS, "the customer has to authenticate", "reconcile cancels it"),
    (authenticating(AUTHENTICATES, age=13 * HOUR), WAITS, "not finished in time", "reconcile"),
    (authenticating(DONE), WAITS, "the row becomes SUCCEEDED", "the webhook writes it"),
    (case(Status.PAYMENT_DECLINED, S.DECLINED, DONE), WAITS, "becomes SUCCEEDED", "the webhook"),
    (case(Status.PAID, None, DONE), BROKEN, "it is written again", "reconcile writes it within 40 minutes"),
    (case(Status.PAID, S.PENDING, age=23 * HOUR, of_row=NO_ID), BROKEN, "held: ", f"release {ORDER_ID} --yes"),
    (case(Status.PAID, None), BROKEN, "the order is PAID, and its payment is lost", "restore-a-table"),
    (case(Status.PAID, S.PENDING, OPEN), BROKEN, "the order is PAID, and its payment is PENDING", "restore-a-table"),
    (pending(intent("succeeded", amount_minor=9)), BROKEN, "another amount", "#moneydiffers"),
    (pending(intent("requires_action", amount_minor=9)), BROKEN, "not the order's", "decide"),
    (paid(OPEN), BROKEN, "its PaymentIntent does not", "before you refund anything"),
    (paid(DONE, intent("succeeded", "pi_2")), BROKEN, "pi_2 is succeeded", "#moneydiffers"),
    (pending(BESIDE, intent("succeeded", "pi_2")), BROKEN, "pi_2 is succeeded", "#restore-a-table"),
    (paid(intent("succeeded", amount_minor=9)), BROKEN, "are not the row's", "#moneydiffers"),
    (paid(intent("succeeded", currency="USD")), BROKEN, "are not the row's", "#moneydiffers"),
    (paid(intent("succeeded", order_id=None)), BROKEN, "are not the row's", "#moneydiffers"),
    (pending(DONE, of_row=NO_ID), BROKEN, "names no PaymentIntent", f"release {ORDER_ID}"),
    (pending(of_row={"payment_intent_id": "pi_9"}), BROKEN, "pi_9", "release"),
    (paid(of_row={"payment_intent_id": "pi_9"}), BROKEN, "does not have the row's pi_9", "--forget"),
    (case(Status.PENDING, S.SUCCEEDED, DONE), WAITS, "does not have it", "republish"),
    (case(Status.PAYMENT_DECLINED, S.SUCCEEDED, DONE), BROKEN, "does not have it", "publish"),
    (pending(OPEN, of_order=REPRICED), BROKEN, "priced again", "#moneydiffers"),
    (paid(DONE, of_order={"currency": "USD"}), BROKEN, "priced again", "#moneydiffers"),
    (case(Status.CANCELING, S.CANCELED, intent("canceled"), of_order=REPRICED), WAITS, "is CANCELED", "republish"),
    (case(Status.CANCELED, S.CANCELED, DONE), BROKEN, "although the order is CANCELED", "#moneydiffers"),
    (canceled(DONE), BROKEN, "was charged", "#moneydiffers"),
    (canceled(intent("succeeded", refunds=[made("pending", 1099, "")]), of_row=ALL), FINE, "CANCELED", ""),
    (canceled(intent("succeeded", refunds=[made("failed", 1099)], **ALL), of_row=ALL), BROKEN, "was charged", ""),
    (canceled(intent("succeeded", dispute=Dispute("dp_1", "lost")), of_row=LOST), FINE, "CANCELED", ""),
    # Disputes.
    (paid(disputed("needs_response")), BROKEN, "dp_1 is needs_response", "by 2027-01-15 09:00:00Z"),
    (paid(disputed("warning_needs_response")), BROKEN, "dp_1 is warning_needs_response", "by 2027-01-15 09:00:00Z"),
    (paid(disputed("needs_response", refunds=[BY_HAND])), BROKEN, "dp_1 is needs_response", "any refund as evidence"),
    (paid(DONE, disputed("needs_response", "pi_2")), BROKEN, "dp_1 is needs_response", "pay nothing back"),
    (paid(disputed("lost"), of_row=LOST), FINE, "dp_1 is lost", ""),
    (paid(disputed("lost"), of_row=LOST), FINE, "decided there: pay nothing", ""),
    (paid(disputed("lost", refunds=[BY_HAND]), of_row=LOST | RETURNED_500), FINE, "decided there: pay nothing", ""),
    (paid(disputed("won"), of_row=LOST | {"dispute_status": "won"}), FINE, "nothing is left to do", ""),
    (canceled(disputed("under_review")), BROKEN, "was charged", "#moneydiffers"),
    (canceled(disputed("won")), BROKEN, "was charged", "#moneydiffers"),
    (case(None, None, order_error="amount: missing"), BROKEN, "amount: missing", "correct the item"),
    (case(None, S.SUCCEEDED, DONE), BROKEN, "a payment, and no order", "#restore-a-table"),
    (case(None, None), BROKEN, "neither", "check the id, --stack"),
    (pending(**UNASKED, failure=Failure(ResponseKind.NO_ANSWER)), WAITS, "Stripe does not show it", "tried again"),
    (pending(**UNASKED, failure=Failure(ResponseKind.ACCOUNT)), BROKEN, "does not show it", "the right key"),
    # Refunds.
    (refunded(refund("SUCCEEDED"), made("succeeded")), FINE, "the order is PAID", ""),
    (refunded(refund("PENDING")), WAITS, "it waits for the payment service", "never pay it in another way"),
    (refunded(refund("PENDING"), made("succeeded")), WAITS, "as succeeded", "by itself"),
    (refunded(refund("PENDING", DAY + 1)), BROKEN, "more than a day", "never pay it in another way"),
    (paid(**UNASKED, refunds=[refund("PENDING")]), WAITS, "waits", ""),
    (waiting("a list that lags"), WAITS, "the payment service (a list that lags)", "never pay it in another way"),
    (waiting("x", ResponseKind.BALANCE_TOO_LOW), BROKEN, "for now: our balance is too low", "top it up"),
    (waiting(ResponseKind.BALANCE_TOO_LOW, "x"), WAITS, "the payment service (x)", "never pay it in another way"),
    (
        refunded(refund("SUCCEEDED"), made("pending", pending_reason="insufficient_funds")),
        *(BROKEN, "our balance is too low", "never pay it in another way"),
    ),
    (refunded(refund("PENDING"), made("succeeded", 400)), BROKEN, "and Stripe has re_1 of 4.00 EUR", "pay nothing"),
    (
        refunded(refund("SUCCEEDED"), made("succeeded", currency="usd")),
        BROKEN,
        "and Stripe has re_1 of 5.00 USD",
        "pay nothing",
    ),
    (
        refunded(refund("SUCCEEDED"), made("succeeded"), made("pending")),
        BROKEN,
        "re_1 of 5.00 EUR, re_1 of 5.00 EUR",
        "pay nothing",
    ),
    (refunded(refund("SUCCEEDED")), BROKEN, "is SUCCEEDED, and Stripe has no such refund", "restore-a-table"),
    (refunded(RETURNED), BROKEN, "is FAILED, and Stripe has no such refund", "restore-a-table"),
    (
        refunded(refund("FAILED", failure_code="x"), made("succeeded")),
        BROKEN,
        "is FAILED, and Stripe has re_1",
        "restore",
    ),
    (paid(intent("succeeded", refunds=[made("succeeded")])), BROKEN, "OrderRefunds has not", "restore"),
    (paid(intent("succeeded", refunds=[BY_HAND]), of_row=RETURNED_500), FINE, "the order is PAID", ""),
    (refunded(RETURNED, made("failed"), **ALL), BROKEN, "failed at Stripe: ", "runbook.md#refundfailed"),
    (refunded(refund("SUCCEEDED"), made("failed", failure_reason="x")), BROKEN, "failed at Stripe: x", "#refundfailed"),
    (refunded(refund("FAILED", failure_code="x")), BROKEN, "refused by Stripe: x", "#refundfailed"),
    (
        paid(intent("succeeded", refunds=[made("failed", refund_id="")])),
        BROKEN,
        "re_1 of 5.00 EUR failed",
        "#refundfailed",
    ),
    (paid(DONE, of_row=REFUSED, refunds=[refund("PENDING")]), WAITS, "has refused rfd_", "three days later"),
    (paid(**UNASKED, refunds=[RETURNED]), WAITS, "failed at Stripe: ", "pay nothing before Stripe shows"),
]


@pytest.mark.parametrize(("facts", "severity", "says", "then"), CASES, ids=[f"{each[2]}, {each[3]}" for each in CASES])
def test_what_is_found_first(facts: Facts, severity: str, says: str, then: str) -> None:
    """The sentence of the product's rule, whether a person has to act, and what happens or is typed next."""
    found = find(facts)
    first = next((each for each in found if says in each.says), None)
    assert first is not None, found
    assert (first.severity, found[0].severity) == (severity, severity), found
    assert then in first.then


def test_every_status_and_state_has_something_to_say() -> None:
    """Whatever Stripe shows: no facts raise; it is said what a person does, or what moves it by itself."""
    for status, state, at_stripe, age in product(
        (None, *Status), (None, *S), (None, "succeeded", "requires_action", "canceled", "processing"), (5, 2 * DAY)
    ):
        facts = case(status, state, *([intent(at_stripe)] if at_stripe else []), age=age)
        for each in find(facts):
            assert (each.severity != FINE) == bool(each.then), (status, state, at_stripe, each)


TOOK_NOTHING = "won warning_needs_response warning_under_review warning_closed".split()
TAKES = "lost prevented needs_response under_review appeal_needs_response appeal_under_review".split()


@pytest.mark.parametrize("status", [*TOOK_NOTHING, *TAKES])
def test_a_dispute_that_is_over_and_left_the_money_with_us_is_not_told(status: str) -> None:
    """The others are: somebody has to respond, or nothing may be paid."""
    told = [each for each in find(paid(disputed(status))) if "the charge is disputed" in each.says]
    assert bool(told) == (status in TAKES or status.endswith("needs_response"))


BY_DISPUTE = ("charge_disputed", "refund_disputed_payment", "charge_for_pending_refund_disputed")
FOLLOWED: dict[str, tuple[StoredRefund | None, Any]] = {
    "nothing": (None, None),
    "ours, made": (refund("SUCCEEDED", 1, refund_id=OTHER_ID), made("succeeded", refund_id=OTHER_ID)),
    "ours, waiting": (refund("PENDING", 1, refund_id=OTHER_ID), None),
    "ours, failed": (refund("FAILED", 1, refund_id=OTHER_ID, failure_code="x"), None),
    "ours, requested before": (refund("SUCCEEDED", HOUR, refund_id=OTHER_ID), made("succeeded", refund_id=OTHER_ID)),
    "by hand": (None, made("pending", refund_id="", id="re_9")),
    "by hand, half of it": (None, made("succeeded", 300, refund_id="", id="re_9")),
    "by hand, before": (None, made("succeeded", refund_id="", created=NOW - HOUR)),
}


@pytest.mark.parametrize("is_made", [True, False], ids=["failed", "refused"])
def test_nobody_is_told_to_pay_a_second_time(is_made: bool) -> None:
    """A refund that failed is paid again, unless a dispute decides, all is refunded, or another refund followed it."""
    asked = refund("FAILED", stripe_refund_id="re_1" if is_made else None)
    wrong = []
    for code, status, total, name in product(
        ("lost_or_stolen_card", *BY_DISPUTE), (None, *TOOK_NOTHING, *TAKES), (500, 1099), FOLLOWED
    ):
        other, made_since = FOLLOWED[name]
        listed = [*[made("failed", failure_reason=code)] * is_made, *filter(None, [made_since])]
        listed += [made("succeeded", total, "", id="re_8", created=NOW - HOUR)] * (total == 1099)
        dispute = Dispute("dp_1", status) if status else None
        shown = intent("succeeded", refunds=listed, amount_refunded_minor=total, dispute=dispute)
        known: dict[str, Any] = {"amount_refunded_minor": total}
        known |= {"dispute_id": "dp_1", "dispute_status": status} if status else {}
        refunds = [asked.model_copy(update={"failure_code": code}), *filter(None, [other])]
        [about] = [each for each in find(paid(shown, of_row=known, refunds=refunds)) if each.says.startswith(REFUND_ID)]
        is_followed = name in ("ours, made", "ours, waiting", "ours, failed", "by hand")
        decides = status in TAKES or code == BY_DISPUTE[2] or (status is None and code in BY_DISPUTE)
        expected = (FINE, False) if decides or total == 1099 or is_followed else (BROKEN, True)
        if (about.severity, bool(about.then)) != expected or (expected[0] == FINE) != ("pay nothing" in about.says):
            wrong.append((code, status, total, name, about))
    assert wrong == []


def test_what_happens_within_a_second_is_told_in_the_order_of_its_causes() -> None:
    """Stripe's times are whole seconds: a charge comes after the claim, and before the response to its confirm."""
    charge: Any = stripe.Charge.construct_from(
        {"id": "ch_1", "object": "charge", "amount": 2500, "status": "succeeded", "created": NOW}, None
    )
    shown = replace(intent("succeeded", created=NOW, refunds=[made("succeeded", created=NOW)]), charges=[charge])
    create, confirm = "POST /v1/payment_intents", "POST /v1/payment_intents/{id}/confirm"
    said = ({"message": "payment claimed"}, {"endpoint": create}, {"endpoint": confirm})
    # An emulator has one time for all lines of an invocation.
    lines = [(NOW + 1.9, {"message": "payment finalized"}), *((NOW + 0.1, each) for each in said)]
    told = events(paid(shown, of_row={"released_at": NOW}, lines=lines))
    expected = ("re_1", "operator released", "claimed", "created", create, "CHARGED", confirm, "finalized")
    assert [(event.what, word) for event, word in zip(told, expected, strict=True) if word not in event.what] == []
