"""What is found about an order and its refunds: each status and state, and each way in which it may be broken."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Any

import stripe

from onecharge.contract.refunds import RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.republication import RepublishCheckpoint
from onecharge.orders.schema import StoredOrder
from onecharge.orders.transitions import WAITING
from onecharge.payments.refund_rules import FrozenRefund, Refund, StripeRefund
from onecharge.payments.rows import Payment
from onecharge.payments.stripe_events import ReconcileCheckpoint
from onecharge.payments.stripe_responses import Failure, ResponseKind
from ops.diagnosis import diagnose
from ops.dlq_letters import DeadLetter
from ops.facts import Facts, IntentFacts, RefundFacts, StripeFacts, Unread
from ops.findings import Diagnosis, Finding, Severity
from ops.story import story
from tests.shop import builders
from tests.shop.builders import ORDER_ID, T0

NOW = T0
REFUND_ID = "rfd_" + "b" * 32
MINUTE, HOUR, DAY = 60, 3600, 86_400
S, Status = PaymentState, OrderStatus
FREE = {"lease_owner": None, "lease_expires_at": 0}
FINE, WAITS, BROKEN = Severity.FINE, Severity.WAITS, Severity.BROKEN


def iso(age: int) -> str:
    return datetime.fromtimestamp(NOW - age, UTC).isoformat()


def order(status: OrderStatus, age: int, **changes: Any) -> StoredOrder:
    details = {
        "placed_at": iso(age),
        "waiting_since": iso(age),
        "correlation_id": "c",
        "fingerprint": "f",
        "status": status,
    }
    return StoredOrder.model_validate({**builders.order().model_dump(), **details, **changes})


def row(state: PaymentState, age: int, **changes: Any) -> Payment:
    """A row that was claimed so long ago, and finalized unless it is PENDING; its lease is free."""
    at = NOW - age
    times = {"claimed_at": at, "finalized_at": None if state is S.PENDING else at}
    frozen = {"request": replace(builders.REQUEST, placed_at=at)}
    return builders.payment(**{**times, **frozen, **FREE, "state": state, "revision": 3, **changes})


def intent(status: str, id_: str = "pi_1", *, disputes: Iterable[Any] = (), **changes: Any) -> IntentFacts:
    found = builders.intent(status, **{"payment_intent_id": id_, "created": NOW - HOUR, **changes})
    return IntentFacts(intent=found, disputes=tuple(disputes))


def case(
    status: OrderStatus | None,
    state: PaymentState | None,
    *intents: IntentFacts,
    age: int = HOUR,
    of_order: dict[str, Any] | None = None,
    of_row: dict[str, Any] | None = None,
    **changes: Any,
) -> Facts:
    """Facts of an order of a stack whose jobs run."""
    given: dict[str, Any] = {
        "now": NOW,
        "order_id": ORDER_ID,
        "order": order(status, age, **(of_order or {})) if status else None,
        "payment": row(state, age, **(of_row or {})) if state else None,
        "stripe": StripeFacts(intents=intents),
        "republish": RepublishCheckpoint(round_at=NOW - MINUTE, part=99),
        "reconcile": ReconcileCheckpoint(since=NOW - MINUTE),
        "shop": builders.SHOP,
    }
    return Facts(**(given | changes))


def letter(dlq: str, **attributes: str) -> list[DeadLetter]:
    body = f'{{"subject": "{ORDER_ID}", "type": "t", "data": {{"refund_id": "{REFUND_ID}"}}}}'
    return [DeadLetter(dlq, "m", "r", body, datetime.fromtimestamp(NOW - MINUTE, UTC), attributes)]


def unknown(kind: ResponseKind) -> StripeFacts:
    return StripeFacts(failure=Failure(kind))


LEASED = {"lease_owner": "w", "lease_expires_at": NOW + 20}
DEAD = {"lease_owner": "w", "lease_expires_at": NOW - 20, "claimed_at": NOW - 55}
OPEN, DONE = intent("requires_payment_method"), intent("succeeded")
DECLINED = intent("requires_payment_method", error_code="card_declined")
AUTHENTICATES = intent("requires_action")
SECOND = {"attempt": 2, "waiting_since": iso(5)}
REFUNDED: Any = stripe.Refund.construct_from({"id": "re_1", "amount": 2500, "status": "succeeded"}, None)
DISPUTE: Any = stripe.Dispute.construct_from(
    {"id": "dp_1", "status": "needs_response", "reason": "fraudulent", "amount": 2500, "created": NOW}, None
)
CHARGED: Any = stripe.Charge.construct_from({"id": "ch_1", "created": NOW - 5}, None)
CHARGED_LONG_AGO: Any = stripe.Charge.construct_from({"id": "ch_1", "created": NOW - HOUR}, None)
LATE = ReconcileCheckpoint(since=NOW - 2 * HOUR)
SPENT = {"payment_intent_id": None}

stored = partial(case, Status.PENDING, None)
pending = partial(case, Status.PENDING, S.PENDING)
outcome = partial(case, Status.PENDING, S.SUCCEEDED, DONE)
paid = partial(case, Status.PAID, S.SUCCEEDED)
authenticating = partial(case, Status.REQUIRES_ACTION, S.REQUIRES_ACTION)

HEALTHY: dict[str, tuple[Facts, Diagnosis, Severity]] = {
    "paid": (paid(DONE), Diagnosis.ENDED, FINE),
    "canceled": (
        case(Status.CANCELED, S.CANCELED, intent("canceled", cancellation_reason="requested_by_customer")),
        Diagnosis.ENDED,
        FINE,
    ),
    "canceled, charged, and refunded": (
        case(
            *(Status.CANCELED, S.SUCCEEDED, intent("succeeded", amount_refunded_minor=1099)),
            of_row={"amount_refunded_minor": 1099},
        ),
        *(Diagnosis.ENDED, FINE),
    ),
    "declined": (case(Status.PAYMENT_DECLINED, S.DECLINED, DECLINED), Diagnosis.DECLINED, FINE),
    "just stored": (stored(age=5), Diagnosis.NOT_CLAIMED_YET, WAITS),
    "a worker has it": (pending(OPEN, age=5, of_row=LEASED), Diagnosis.IN_PROGRESS, WAITS),
    "it backs off": (pending(OPEN, age=MINUTE, of_row=FREE), Diagnosis.BACKING_OFF, WAITS),
    "a second attempt is on its way": (
        case(Status.PENDING, S.DECLINED, DECLINED, of_order=SECOND),
        Diagnosis.NOT_CLAIMED_YET,
        WAITS,
    ),
    "Stripe is processing": (pending(intent("processing"), age=MINUTE, of_row=FREE), Diagnosis.BACKING_OFF, WAITS),
    "a worker died with the lease": (pending(OPEN, age=2 * MINUTE, of_row=DEAD), Diagnosis.BACKING_OFF, WAITS),
    "a worker died after the charge": (pending(DONE, age=2 * MINUTE, of_row=DEAD), Diagnosis.BACKING_OFF, WAITS),
    "it succeeded after 3-D Secure, and its event is on its way": (
        authenticating(replace(DONE, charges=(CHARGED,))),
        *(Diagnosis.STRIPE_DIFFERS, WAITS),
    ),
    "it succeeded after 3-D Secure, and reconcile has never run": (
        authenticating(replace(DONE, charges=(CHARGED,)), reconcile=None),
        *(Diagnosis.STRIPE_DIFFERS, WAITS),
    ),
    "the customer did not authenticate in time, and reconcile has yet to visit the row": (
        authenticating(AUTHENTICATES, age=12 * HOUR + MINUTE),
        *(Diagnosis.STRIPE_DIFFERS, WAITS),
    ),
    "Stripe's other PaymentIntents were not all read, and the row has its own": (
        paid(stripe=StripeFacts(intents=(DONE,), is_complete=False)),
        *(Diagnosis.ENDED, FINE),
    ),
    "the customer authenticates": (authenticating(AUTHENTICATES), Diagnosis.AUTHENTICATION_AWAITED, WAITS),
    "the outcome is on its way": (outcome(of_row={"finalized_at": NOW - 5}), Diagnosis.OUTCOME_ON_ITS_WAY, WAITS),
    "it is being canceled": (
        case(
            *(Status.CANCELING, S.PENDING, OPEN),
            of_order={"cancel_requested_at": iso(MINUTE)},
            of_row={"cancel_requested_at": NOW - MINUTE, "claimed_at": NOW - MINUTE},
        ),
        *(Diagnosis.CANCELING, WAITS),
    ),
}

SICK: dict[str, tuple[Facts, Diagnosis]] = {
    "no such order": (case(None, None), Diagnosis.NO_SUCH_ORDER),
    "the order was lost": (case(None, S.SUCCEEDED, DONE), Diagnosis.ORDER_LOST),
    "its item breaks the schema": (case(None, None, order_error="amount_minor: missing"), Diagnosis.ORDER_UNREADABLE),
    "its message is poison": (
        stored(dead_letters=letter("PaymentsDlq", reason="data.currency: unknown")),
        Diagnosis.DEAD_LETTER,
    ),
    "its message was received too often": (pending(OPEN, dead_letters=letter("PaymentsDlq")), Diagnosis.DEAD_LETTER),
    "its row was lost": (stored(OPEN), Diagnosis.ROW_LOST),
    "its row was lost after it was paid": (case(Status.PAID, None, DONE), Diagnosis.ROW_LOST),
    "a stream or a queue is not read": (stored(unread=[Unread("OrdersTable", "uuid-1")]), Diagnosis.NOT_READ),
    "no worker has claimed it": (stored(), Diagnosis.NOT_CLAIMED),
    "a worker died long ago": (pending(OPEN, of_row={**DEAD, "claimed_at": NOW - HOUR}), Diagnosis.ABANDONED),
    "no message claims it": (pending(OPEN, of_row=FREE), Diagnosis.ABANDONED),
    "it is unfinished for a day": (pending(OPEN, age=DAY + 1, of_row=FREE), Diagnosis.OVERDUE),
    "Stripe refuses the key": (
        pending(of_row=FREE, stripe=unknown(ResponseKind.ACCOUNT)),
        Diagnosis.STRIPE_KEY_REFUSED,
    ),
    "Stripe does not know what a wrong key made": (
        pending(of_row={**FREE, "payment_intent_id": "pi_elsewhere"}),
        Diagnosis.PAYMENT_INTENT_UNKNOWN,
    ),
    "Stripe does not answer": (
        pending(of_row=FREE, stripe=unknown(ResponseKind.NO_ANSWER)),
        Diagnosis.STRIPE_UNAVAILABLE,
    ),
    "Stripe has more than was read": (stored(stripe=StripeFacts(is_complete=False)), Diagnosis.LOOKUP_INCOMPLETE),
    "its PaymentIntent may not be created any more": (pending(age=23 * HOUR, of_row=SPENT), Diagnosis.HELD),
    "it was released, and waited for another day": (
        pending(age=50 * HOUR, of_row={**SPENT, "released_at": NOW - 23 * HOUR}),
        Diagnosis.HELD,
    ),
    "its cancellation is held": (
        case(Status.CANCELING, S.PENDING, age=23 * HOUR, of_row={**SPENT, "cancel_requested_at": NOW - 22 * HOUR}),
        Diagnosis.HELD,
    ),
    "it succeeded, and the row is unfinished": (pending(DONE, of_row=FREE), Diagnosis.STRIPE_DIFFERS),
    "it succeeded after 3-D Secure": (authenticating(DONE), Diagnosis.STRIPE_DIFFERS),
    "it succeeded after it was declined": (case(Status.PAYMENT_DECLINED, S.DECLINED, DONE), Diagnosis.STRIPE_DIFFERS),
    "the outcome is in the DLQ": (outcome(dead_letters=letter("OrderUpdatesDlq")), Diagnosis.DEAD_LETTER),
    "the outcome is nowhere": (outcome(), Diagnosis.OUTCOME_NOT_APPLIED),
    "the order was restored, and its payment is at a later attempt": (
        case(Status.PAYMENT_DECLINED, S.DECLINED, DECLINED, of_row={"attempt": 2}),
        Diagnosis.OUTCOME_NOT_APPLIED,
    ),
    "the row was restored": (paid(DONE, of_order={"payment_revision": 9}), Diagnosis.ROW_OLDER),
    "the payment is of a lost order": (
        case(Status.PENDING, S.SUCCEEDED, DONE, of_order={"amount_minor": 9}),
        Diagnosis.OTHER_ORDER,
    ),
    "two PaymentIntents succeeded": (paid(DONE, intent("succeeded", "pi_2")), Diagnosis.PAID_TWICE),
    "a canceled order was charged": (case(Status.CANCELED, S.CANCELED, DONE), Diagnosis.MONEY_DIFFERS),
    "a canceled order was charged by its row": (case(Status.CANCELED, S.SUCCEEDED, DONE), Diagnosis.MONEY_DIFFERS),
    "a PaymentIntent that the row does not name succeeded": (
        case(Status.CANCELED, S.CANCELED, intent("succeeded", "pi_2")),
        Diagnosis.MONEY_DIFFERS,
    ),
    "the amount differs": (pending(intent("succeeded", amount_minor=9)), Diagnosis.MONEY_DIFFERS),
    "the amount of what is open differs": (pending(intent("requires_action", amount_minor=9)), Diagnosis.MONEY_DIFFERS),
    "the row says more than Stripe": (paid(OPEN), Diagnosis.MONEY_DIFFERS),
    "it was canceled by hand during 3-D Secure": (
        authenticating(intent("canceled", cancellation_reason="duplicate")),
        Diagnosis.STRIPE_DIFFERS,
    ),
    "reconcile has not read the event of its charge for an hour": (
        authenticating(replace(DONE, charges=(CHARGED_LONG_AGO,)), reconcile=None),
        Diagnosis.STRIPE_DIFFERS,
    ),
    "the bank declined after 3-D Secure": (authenticating(DECLINED), Diagnosis.STRIPE_DIFFERS),
    "a cancellation that no worker has written": (pending(intent("canceled"), of_row=FREE), Diagnosis.ABANDONED),
    "the customer did not authenticate in time": (
        authenticating(AUTHENTICATES, age=13 * HOUR),
        Diagnosis.STRIPE_DIFFERS,
    ),
    "no worker has taken its cancellation, and the customer may authenticate": (
        case(Status.CANCELING, S.REQUIRES_ACTION, AUTHENTICATES),
        Diagnosis.NOT_CLAIMED,
    ),
    "the charge is disputed": (paid(intent("succeeded", disputes=[DISPUTE])), Diagnosis.DISPUTED),
    "the row knows of a dispute": (
        paid(of_row={"dispute_id": "dp_1", "dispute_status": "needs_response"}, stripe=StripeFacts(was_asked=False)),
        Diagnosis.DISPUTED,
    ),
    "republish does not run": (
        stored(republish=RepublishCheckpoint(round_at=NOW - 2 * HOUR, part=99)),
        Diagnosis.JOB_STOPPED,
    ),
    "reconcile does not run": (authenticating(AUTHENTICATES, reconcile=LATE), Diagnosis.JOB_STOPPED),
}


def is_complete(finding: Finding) -> bool:
    """Whether it says what to do, or what moves it next."""
    match finding.severity:
        case Severity.BROKEN:
            return bool(finding.fix) and "{" not in str(finding.fix)
        case Severity.WAITS:
            return finding.next is not None and bool(finding.next.mover)
        case _:
            return finding.next is None


def test_what_is_not_broken_says_what_it_waits_for() -> None:
    """One finding: it is over, or what moves it next and when at the latest."""
    wrong = {}
    for name, (facts, cause, severity) in HEALTHY.items():
        [finding] = found = diagnose(facts)
        is_later = finding.next is None or (finding.next.until or 0) > NOW
        if (finding.cause, finding.severity) != (cause, severity) or not is_later or not is_complete(finding):
            wrong[name] = found
    assert wrong == {}


def test_what_is_broken_names_the_cause_and_what_fixes_it() -> None:
    """The first finding says so, or one beside it that is broken, too."""
    wrong = {}
    for name, (facts, cause) in SICK.items():
        found = diagnose(facts)
        named = [each for each in found if each.cause is cause and each.severity is BROKEN]
        if len(named) != 1 or found[0].severity is not BROKEN or not all(map(is_complete, found)):
            wrong[name] = found
    assert wrong == {}


def test_every_cause_status_and_state_is_tried() -> None:
    """None is only a word; the causes of refunds are in REFUNDS."""
    tried = [each[0] for each in HEALTHY.values()] + [each[0] for each in SICK.values()]
    assert {facts.order.status for facts in tried if facts.order} == set(OrderStatus)
    assert {facts.payment.state for facts in tried if facts.payment} == set(PaymentState)
    causes = {each[1] for each in (*HEALTHY.values(), *SICK.values(), *REFUNDS.values())}
    assert set(Diagnosis) - causes == set()


def test_any_combination_is_explained() -> None:
    """However rows, orders and Stripe differ: what is found says what to do, and an order that waits has not ended."""
    intents = ["requires_payment_method", "requires_action", "processing", "succeeded", "canceled", "requires_capture"]
    wrong = []
    for status, state, at_stripe in product(OrderStatus, [None, *PaymentState], [None, *intents]):
        found = diagnose(case(status, state, *([intent(at_stripe)] if at_stripe else [])))
        is_ended = Diagnosis.ENDED in [each.cause for each in found]
        is_waiting = status in WAITING
        if not found or not all(map(is_complete, found)) or (is_waiting and is_ended):
            wrong.append((status, state, at_stripe, found))
    assert wrong == []


# ---------------------------------------------------------------- refunds


def requested(status: str, age: int = HOUR) -> StoredRefund:
    names = {"order_id": ORDER_ID, "refund_id": REFUND_ID, "attempt": 1, "correlation_id": "c"}
    money = {"amount_minor": 1000, "currency": "EUR", "fingerprint": "f"}
    return StoredRefund.model_validate({**names, **money, "requested_at": iso(age), "status": RefundState(status)})


def refund(state: str, **changes: Any) -> Refund:
    request = FrozenRefund(ORDER_ID, REFUND_ID, 1, 1000, "EUR", "pi_1", NOW - HOUR)
    finalized_at = None if state == "PENDING" else NOW - HOUR
    return replace(Refund(request=request, state=RefundState(state), finalized_at=finalized_at), **changes)


def found(status: str, id_: str = "re_1") -> StripeRefund:
    return StripeRefund(id_, status, 1000, "EUR", failure_reason="expired_card" if status == "failed" else None)


def of_refund(*facts: Any, **changes: Any) -> Facts:
    """The request, the row, and Stripe's refunds."""
    asked, made, *at_stripe = facts
    given = RefundFacts(refund_id=REFUND_ID, requested=asked, row=made, found=at_stripe)
    return case(Status.PAID, S.SUCCEEDED, DONE, refunds=[given], **changes)


SUCCEEDED = refund("SUCCEEDED")
REFUNDS: dict[str, tuple[Facts, Diagnosis, Severity]] = {
    "young": (of_refund(requested("PENDING"), None), Diagnosis.REFUND_WAITS, WAITS),
    "old": (of_refund(requested("PENDING", 2 * DAY), None), Diagnosis.REFUND_WAITS, BROKEN),
    "its key is spent": (
        of_refund(requested("PENDING", 2 * DAY), refund("PENDING", sending_stopped_at=NOW - DAY)),
        *(Diagnosis.REFUND_WAITS, BROKEN),
    ),
    "returned": (of_refund(requested("SUCCEEDED"), SUCCEEDED, found("failed")), Diagnosis.REFUND_RETURNED, BROKEN),
    "returned, its row lost": (
        of_refund(requested("SUCCEEDED"), None, found("failed")),
        Diagnosis.REFUND_RETURNED,
        BROKEN,
    ),
    "several": (
        of_refund(requested("SUCCEEDED"), SUCCEEDED, found("succeeded"), found("succeeded", "re_2")),
        *(Diagnosis.REFUND_DIFFERS, BROKEN),
    ),
    "failed": (of_refund(requested("FAILED"), refund("FAILED", failure_code="x")), Diagnosis.REFUND_FAILED, BROKEN),
    "held": (
        of_refund(requested("SUCCEEDED"), refund("SUCCEEDED", pending_reason="insufficient_funds")),
        *(Diagnosis.REFUND_HELD, BROKEN),
    ),
    "in review": (of_refund(requested("NEEDS_REVIEW"), refund("NEEDS_REVIEW")), Diagnosis.REFUND_NEEDS_REVIEW, BROKEN),
    "its outcome is lost": (of_refund(requested("PENDING"), SUCCEEDED), Diagnosis.REFUND_OUTCOME_NOT_APPLIED, BROKEN),
    "resolved, and its outcome is lost": (
        of_refund(requested("NEEDS_REVIEW"), SUCCEEDED),
        *(Diagnosis.REFUND_OUTCOME_NOT_APPLIED, BROKEN),
    ),
    "its outcome is on its way": (
        of_refund(requested("PENDING"), refund("SUCCEEDED", finalized_at=NOW - 1)),
        *(Diagnosis.REFUND_OUTCOME_NOT_APPLIED, WAITS),
    ),
}


def test_the_cause_of_each_refund_is_named() -> None:
    """One finding, with the refund's id, and what fixes it if a person has to act."""
    wrong = {}
    for name, (facts, cause, severity) in REFUNDS.items():
        [finding] = diagnose(facts)
        is_named = REFUND_ID in finding.detail
        if (finding.cause, finding.severity) != (cause, severity) or not is_named or not is_complete(finding):
            wrong[name] = finding
    assert wrong == {}


def times(facts: Facts, now: int) -> dict[Diagnosis, int]:
    """Until when each finding says that it waits, for somebody who asks at this time."""
    found = diagnose(replace(facts, now=now))
    return {each.cause: each.next.until for each in found if each.next and each.next.until}


def test_a_time_does_not_move_with_the_question() -> None:
    """Somebody who asks again is told the same "by" for the same cause: it follows from rows and checkpoints."""
    moved = []
    tried = {name: each[0] for cases in (HEALTHY, SICK, REFUNDS) for name, each in cases.items()}
    for name, facts in tried.items():
        first = times(facts, NOW)
        again = [times(facts, NOW + seconds) for seconds in (7, 1000)]
        moved += [
            (name, cause) for then in again for cause in first.keys() & then.keys() if first[cause] != then[cause]
        ]
    assert moved == []


def test_a_refund_that_is_made_is_not_a_finding() -> None:
    """The row, the request and Stripe agree; the timeline has both times."""
    facts = of_refund(requested("SUCCEEDED"), SUCCEEDED, found("succeeded"))
    assert [each.cause for each in diagnose(facts)] == [Diagnosis.ENDED]
    moments = [event.where for event in story(facts).events if REFUND_ID in event.what]
    assert moments == ["orders", "refunds"]


def test_what_happens_within_a_second_is_told_in_the_order_of_its_causes() -> None:
    """Stripe's times and the rows' are whole seconds: a charge is before what was stored of it, and a refund after its
    request."""
    metadata = {"metadata": {"refund_id": REFUND_ID}}
    charge: Any = stripe.Charge.construct_from(
        {"id": "ch_1", "amount": 2500, "status": "succeeded", "created": NOW}, None
    )
    made: Any = stripe.Refund.construct_from({**REFUNDED.to_dict(), "created": NOW, **metadata}, None)
    own = replace(intent("succeeded", created=NOW), charges=[charge], refunds=[made])
    asked = requested("SUCCEEDED").model_copy(update={"requested_at": iso(0)})
    one = RefundFacts(refund_id=REFUND_ID, requested=asked, row=replace(SUCCEEDED, finalized_at=NOW))
    told = story(paid(own, age=0, refunds=[one]))
    expected = (
        *("placed", "was claimed", "was created", "CHARGED", "attempt 1 became SUCCEEDED"),
        *("was requested", "re_1", f"{REFUND_ID} of"),
    )
    wrong = [(event.what, word) for event, word in zip(told.events, expected, strict=True) if word not in event.what]
    assert wrong == []
