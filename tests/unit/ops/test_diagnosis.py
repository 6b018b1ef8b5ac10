"""What is found about an order: each status and state, and each way in which it may be broken."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charges.protocol import FoundIntent, FrozenRequest, Payment
from onecharge.payments.stripe_responses import Failure, ResponseKind
from ops.diagnosis import diagnose, is_broken
from ops.facts import DeadLetter, Dispute, Facts, FailedRecord, IntentFacts, Source, StripeFacts, UnprocessedEvent
from ops.findings import Cause, Severity
from reconcile.checkpoint import ReconcileCheckpoint
from republish.republish import RepublishCheckpoint

NOW = 1_800_000_000
ORDER_ID = "ord_" + "a" * 32
MINUTE, HOUR, DAY = 60, 3600, 86_400
S, Status = PaymentState, OrderStatus


def order(status: OrderStatus, *, age: int = HOUR, **changes: Any) -> StoredOrder:
    placed_at = datetime.fromtimestamp(NOW - age, UTC).isoformat()
    given = {
        "order_id": ORDER_ID,
        "customer_id": "cus_1",
        "amount_minor": 2500,
        "currency": "EUR",
        "fingerprint": "f",
        "placed_at": placed_at,
        "correlation_id": "c",
        "attempt": 1,
        "payment_method": "pm_card_visa",
        "status": status,
    }
    return StoredOrder.model_validate(given | changes)


def row(state: PaymentState, *, age: int = HOUR, **changes: Any) -> Payment:
    """A row that was claimed so long ago, and finalized unless it is PENDING; its lease is free."""
    made = Payment(
        request=FrozenRequest(ORDER_ID, 2500, "EUR", "cus_1", NOW - age),
        attempt=1,
        payment_method="pm_card_visa",
        state=state,
        payment_intent_id="pi_1",
        revision=3,
        claimed_at=NOW - age,
        attempt_claimed_at=NOW - age,
        finalized_at=None if state is S.PENDING else NOW - age,
        correlation_id="c",
    )
    return replace(made, **changes)


def intent(status: str, id_: str = "pi_1", *, facts: dict[str, Any] | None = None, **changes: Any) -> IntentFacts:
    found = FoundIntent(id_, status, 2500, "EUR", placed_at=NOW - HOUR, customer_id="cus_1")
    return IntentFacts(intent=replace(found, **changes), created=NOW - HOUR, **(facts or {}))


def case(
    status: OrderStatus | None,
    state: PaymentState | None,
    *intents: IntentFacts,
    age: int = HOUR,
    order_changes: dict[str, Any] | None = None,
    row_changes: dict[str, Any] | None = None,
    **changes: Any,
) -> Facts:
    """Facts of an order of a stack whose jobs run."""
    given: dict[str, Any] = {
        "now": NOW,
        "order_id": ORDER_ID,
        "order": order(status, age=age, **(order_changes or {})) if status else None,
        "payment": row(state, age=age, **(row_changes or {})) if state else None,
        "stripe": StripeFacts(intents=intents),
        "republish": RepublishCheckpoint(round_at=NOW - MINUTE, part=99),
        "reconcile": ReconcileCheckpoint(since=NOW, until=NOW, round_started_at=NOW, round_completed_at=NOW),
    }
    return Facts(**(given | changes))


def source(logical_id: str, **changes: Any) -> Source:
    return Source(source=logical_id, function="F", uuid="uuid-1", **changes)


FREE = {"lease_owner": None, "lease_expires_at": 0}
LEASED = {"lease_owner": "w", "lease_expires_at": NOW + 20}
DEAD = {"lease_owner": "w", "lease_expires_at": NOW - 20, "claimed_at": NOW - 55}
OPEN = intent("requires_payment_method")

HEALTHY: dict[str, tuple[Facts, Cause, Severity]] = {
    "paid": (case(Status.PAID, S.SUCCEEDED, intent("succeeded")), Cause.ENDED, Severity.FINE),
    "canceled": (
        case(Status.CANCELED, S.CANCELED, intent("canceled", cancellation_reason="requested_by_customer")),
        Cause.ENDED,
        Severity.FINE,
    ),
    "declined": (
        case(Status.PAYMENT_DECLINED, S.DECLINED, intent("requires_payment_method", error_code="card_declined")),
        Cause.DECLINED,
        Severity.FINE,
    ),
    "just stored": (case(Status.PENDING, None, age=5), Cause.NOT_CLAIMED_YET, Severity.WAITS),
    "a worker has it": (
        case(Status.PENDING, S.PENDING, OPEN, age=5, row_changes=LEASED),
        Cause.IN_PROGRESS,
        Severity.WAITS,
    ),
    "it backs off": (
        case(Status.PENDING, S.PENDING, OPEN, age=MINUTE, row_changes=FREE),
        Cause.BACKING_OFF,
        Severity.WAITS,
    ),
    "a second attempt is on its way": (
        case(
            Status.PENDING,
            S.DECLINED,
            intent("requires_payment_method", error_code="card_declined"),
            order_changes={
                "attempt": 2,
                "attempt_placed_at": datetime.fromtimestamp(NOW - 5, UTC).isoformat(),
            },
        ),
        Cause.NOT_CLAIMED_YET,
        Severity.WAITS,
    ),
    "Stripe is processing": (
        case(Status.PENDING, S.PENDING, intent("processing"), age=MINUTE, row_changes=FREE),
        Cause.STRIPE_PROCESSING,
        Severity.WAITS,
    ),
    "the customer authenticates": (
        case(Status.REQUIRES_ACTION, S.REQUIRES_ACTION, intent("requires_action")),
        Cause.AUTHENTICATION_AWAITED,
        Severity.WAITS,
    ),
    "the outcome is on its way": (
        case(Status.PENDING, S.SUCCEEDED, intent("succeeded"), row_changes={"finalized_at": NOW - 5}),
        Cause.OUTCOME_ON_ITS_WAY,
        Severity.WAITS,
    ),
    "a person has it canceled": (
        case(Status.NEEDS_REVIEW, S.PENDING, OPEN, row_changes={"cancel_requested_at": NOW - MINUTE}),
        Cause.CANCELING,
        Severity.WAITS,
    ),
    "it is being canceled": (
        case(
            Status.CANCELING,
            S.PENDING,
            OPEN,
            order_changes={"cancel_requested_at": datetime.fromtimestamp(NOW - MINUTE, UTC).isoformat()},
            row_changes={"cancel_requested_at": NOW - MINUTE},
        ),
        Cause.CANCELING,
        Severity.WAITS,
    ),
}

BROKEN: dict[str, tuple[Facts, Cause]] = {
    "no such order": (case(None, None), Cause.NO_SUCH_ORDER),
    "the order was lost": (case(None, S.SUCCEEDED, intent("succeeded")), Cause.ORDER_LOST),
    "its item breaks the schema": (case(None, None, order_error="amount_minor: missing"), Cause.ORDER_UNREADABLE),
    "its message is poison": (
        case(
            Status.PENDING,
            None,
            dead_letters=(DeadLetter(queue="PaymentsDlq", sent_at=NOW - MINUTE, reason="data.currency: unknown"),),
        ),
        Cause.POISON,
    ),
    "its record could not be published": (
        case(
            Status.PENDING,
            None,
            failed_records=(FailedRecord(key="k", table="OrdersTable", since="2026-11-21", reason="ValidationError"),),
        ),
        Cause.UNPUBLISHABLE,
    ),
    "its message was received too often": (
        case(
            Status.PENDING,
            S.PENDING,
            OPEN,
            dead_letters=(DeadLetter(queue="PaymentsDlq", sent_at=NOW - MINUTE, event_type="onecharge.order.placed"),),
        ),
        Cause.UNDELIVERED,
    ),
    "its row was lost": (case(Status.PENDING, None, intent("requires_payment_method")), Cause.ROW_LOST),
    "its row was lost after it was paid": (case(Status.PAID, None, intent("succeeded")), Cause.ROW_LOST),
    "it was never published": (
        case(Status.PENDING, None, sources=(source("OrdersTable", is_enabled=False),)),
        Cause.NEVER_PUBLISHED,
    ),
    "it was published, and the queue is not read": (
        case(Status.PENDING, None, sources=(source("OrdersTable"), source("PaymentsQueue", is_enabled=False))),
        Cause.QUEUE_NOT_READ,
    ),
    "nobody has claimed it": (case(Status.PENDING, None), Cause.NOT_CLAIMED),
    "a worker died with the lease": (
        case(Status.PENDING, S.PENDING, OPEN, age=2 * MINUTE, row_changes=DEAD),
        Cause.LEASE_OF_DEAD_WORKER,
    ),
    "a worker died long ago": (
        case(Status.PENDING, S.PENDING, OPEN, row_changes={**DEAD, "claimed_at": NOW - HOUR}),
        Cause.LEASE_OF_DEAD_WORKER,
    ),
    "no message claims it": (case(Status.PENDING, S.PENDING, OPEN, row_changes=FREE), Cause.ABANDONED),
    "it is unfinished for a day": (case(Status.PENDING, S.PENDING, OPEN, age=DAY + 1, row_changes=FREE), Cause.OVERDUE),
    "Stripe refuses the request": (
        case(Status.PENDING, S.PENDING, OPEN, age=MINUTE, row_changes={"refused_at": NOW - MINUTE}),
        Cause.REQUEST_REFUSED,
    ),
    "Stripe refuses the key": (
        case(Status.PENDING, S.PENDING, row_changes=FREE, stripe=StripeFacts(failure=Failure(ResponseKind.ACCOUNT))),
        Cause.STRIPE_KEY_REFUSED,
    ),
    "Stripe does not answer": (
        case(Status.PENDING, S.PENDING, row_changes=FREE, stripe=StripeFacts(failure=Failure(ResponseKind.NO_ANSWER))),
        Cause.STRIPE_UNAVAILABLE,
    ),
    "Stripe has more than was read": (
        case(Status.PAID, S.SUCCEEDED, stripe=StripeFacts(intents=(intent("succeeded"),), is_complete=False)),
        Cause.LOOKUP_INCOMPLETE,
    ),
    "it succeeded, and the row is unfinished": (
        case(Status.PENDING, S.PENDING, intent("succeeded"), row_changes=FREE),
        Cause.PAID_AT_STRIPE,
    ),
    "it succeeded after 3-D Secure": (
        case(Status.REQUIRES_ACTION, S.REQUIRES_ACTION, intent("succeeded")),
        Cause.PAID_AT_STRIPE,
    ),
    "it succeeded after it was declined": (
        case(Status.PAYMENT_DECLINED, S.DECLINED, intent("succeeded")),
        Cause.PAID_LATE,
    ),
    "the outcome is in the DLQ": (
        case(
            Status.PENDING,
            S.SUCCEEDED,
            intent("succeeded"),
            dead_letters=(DeadLetter(queue="OrderUpdatesDlq", sent_at=NOW, event_type="onecharge.payment.succeeded"),),
        ),
        Cause.OUTCOME_NOT_APPLIED,
    ),
    "the outcome is nowhere": (case(Status.PENDING, S.SUCCEEDED, intent("succeeded")), Cause.OUTCOME_NOT_APPLIED),
    "the outcome was never published": (
        case(Status.PENDING, S.SUCCEEDED, intent("succeeded"), sources=(source("PaymentsTable", is_enabled=False),)),
        Cause.OUTCOME_NOT_PUBLISHED,
    ),
    "the outcome is not read": (
        case(
            Status.PENDING, S.SUCCEEDED, intent("succeeded"), sources=(source("OrderUpdatesQueue", is_enabled=False),)
        ),
        Cause.OUTCOME_NOT_READ,
    ),
    "two PaymentIntents succeeded": (
        case(Status.PAID, S.SUCCEEDED, intent("succeeded"), intent("succeeded", "pi_2")),
        Cause.PAID_TWICE,
    ),
    "a canceled order was charged": (
        case(Status.CANCELED, S.CANCELED, intent("succeeded", "pi_2")),
        Cause.PAID_AFTER_CANCEL,
    ),
    "the amount differs": (
        case(
            Status.NEEDS_REVIEW,
            S.NEEDS_REVIEW,
            intent("succeeded", amount_minor=9),
            row={"decline_code": "other money"},
        ),
        Cause.OTHER_MONEY,
    ),
    "the row says more than Stripe": (
        case(Status.PAID, S.SUCCEEDED, intent("requires_payment_method")),
        Cause.REVERSED,
    ),
    "it was canceled at Stripe by hand": (
        case(Status.PENDING, S.PENDING, intent("canceled", cancellation_reason="fraudulent"), row_changes=FREE),
        Cause.CANCELED_AT_STRIPE,
    ),
    "it was canceled by hand during 3-D Secure": (
        case(Status.REQUIRES_ACTION, S.REQUIRES_ACTION, intent("canceled", cancellation_reason="duplicate")),
        Cause.CANCELED_AT_STRIPE,
    ),
    "the bank declined after 3-D Secure": (
        case(Status.REQUIRES_ACTION, S.REQUIRES_ACTION, intent("requires_payment_method", error_code="card_declined")),
        Cause.DECIDED_AT_STRIPE,
    ),
    "it was declined, and nobody wrote it": (
        case(
            Status.PENDING,
            S.PENDING,
            intent("requires_payment_method", error_code="card_declined", latest_charge="ch_1"),
            row_changes=FREE,
        ),
        Cause.DECIDED_AT_STRIPE,
    ),
    "the customer did not authenticate in time": (
        case(Status.REQUIRES_ACTION, S.REQUIRES_ACTION, intent("requires_action"), age=13 * HOUR),
        Cause.AUTHENTICATION_OVERDUE,
    ),
    "a person has to decide": (
        case(Status.NEEDS_REVIEW, S.NEEDS_REVIEW, OPEN, row={"decline_code": "unexpected status requires_capture"}),
        Cause.NEEDS_REVIEW,
    ),
    "the charge is disputed": (
        case(
            Status.PAID,
            S.SUCCEEDED,
            intent(
                "succeeded",
                facts={
                    "disputes": (
                        Dispute(
                            dispute_id="dp_1",
                            status="needs_response",
                            reason="fraudulent",
                            amount_minor=2500,
                            created=NOW - HOUR,
                            respond_by=NOW + DAY,
                        ),
                    )
                },
            ),
        ),
        Cause.DISPUTED,
    ),
    "republish does not run": (
        case(Status.PENDING, None, republish=RepublishCheckpoint(round_at=NOW - 2 * HOUR, part=99)),
        Cause.JOB_STOPPED,
    ),
    "reconcile does not run": (
        case(
            Status.REQUIRES_ACTION,
            S.REQUIRES_ACTION,
            intent("requires_action"),
            reconcile=ReconcileCheckpoint(
                since=NOW, until=NOW, round_started_at=NOW - DAY, round_completed_at=NOW - 2 * HOUR
            ),
        ),
        Cause.JOB_STOPPED,
    ),
    "the webhook's events never arrived": (
        case(
            Status.PAID,
            S.SUCCEEDED,
            intent("succeeded"),
            unprocessed_events=(
                UnprocessedEvent(event_id="evt_1", type="payment_intent.succeeded", created=NOW - HOUR),
            ),
        ),
        Cause.EVENTS_NOT_ARRIVED,
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_not_broken_says_what_it_waits_for(name: str) -> None:
    """One finding: it is over, or who moves it next and when at the latest."""
    facts, cause, severity = HEALTHY[name]
    [finding] = diagnose(facts)
    assert (finding.cause, finding.severity) == (cause, severity)
    assert (finding.next is not None) == (severity is Severity.WAITS)
    if finding.next is not None:
        assert finding.next.mover
        assert finding.next.until is not None
        assert finding.next.until > NOW
    assert not is_broken([finding])


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_names_the_cause_and_what_mends_it(name: str) -> None:
    """The first finding says so, or one beside it that is broken, too."""
    facts, cause = BROKEN[name]
    found = diagnose(facts)
    [finding] = [each for each in found if each.cause is cause]
    assert finding.severity is Severity.BROKEN
    assert finding.mend
    assert is_broken(found)
    assert found[0].severity is Severity.BROKEN


def test_every_cause_is_found_in_some_case() -> None:
    """So none is only a word; those of refunds have tests of their own."""
    tried = {case[1] for case in (*HEALTHY.values(), *BROKEN.values())}
    assert [cause for cause in Cause if cause not in tried and not cause.name.startswith("REFUND")] == []


def test_every_status_and_state_is_tried() -> None:
    """Every status of an order, every state of a payment."""
    tried = [each[0] for each in HEALTHY.values()] + [each[0] for each in BROKEN.values()]
    assert {facts.order.status for facts in tried if facts.order} == set(OrderStatus)
    assert {facts.payment.state for facts in tried if facts.payment} == set(PaymentState)


@pytest.mark.parametrize("status", OrderStatus)
@pytest.mark.parametrize("state", [None, *PaymentState])
@pytest.mark.parametrize(
    "at_stripe",
    [None, "requires_payment_method", "requires_action", "processing", "succeeded", "canceled", "requires_capture"],
)
def test_any_combination_is_explained(status: OrderStatus, state: PaymentState | None, at_stripe: str | None) -> None:
    """However rows, orders and Stripe differ: something is found, and what is broken says what to do."""
    facts = case(status, state, *([intent(at_stripe)] if at_stripe else []))
    found = diagnose(facts)
    assert found
    assert all(each.mend for each in found if each.severity is Severity.BROKEN)
    assert all(each.next for each in found if each.severity is Severity.WAITS)


@pytest.mark.parametrize("status", [Status.PENDING, Status.REQUIRES_ACTION])
@pytest.mark.parametrize("state", [None, *PaymentState])
def test_an_order_that_waits_is_never_called_ended(status: OrderStatus, state: PaymentState | None) -> None:
    """An order in a waiting status waits for somebody, whom a finding names."""
    assert Cause.ENDED not in [each.cause for each in diagnose(case(status, state, OPEN))]
