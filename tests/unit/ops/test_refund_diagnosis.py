"""What is found about an order's refunds."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from onecharge.contract.refunds import RefundState, RefundStatus
from onecharge.orders.refunds import StoredRefund
from onecharge.payments.refunds.protocol import FoundRefund, FrozenRefund, Refund
from ops.facts import DeadLetter, Facts
from ops.findings import Cause, Severity
from ops.refund_diagnosis import refund_findings
from ops.refund_facts import RefundFacts
from ops.timeline import timeline

NOW = 1_800_000_000
ORDER_ID, REFUND_ID = "ord_" + "a" * 32, "rfd_" + "b" * 32
HOUR, DAY = 3600, 86_400


def requested(status: RefundStatus, *, age: int = HOUR) -> StoredRefund:
    return StoredRefund(
        order_id=ORDER_ID,
        refund_id=REFUND_ID,
        attempt=1,
        amount_minor=1000,
        currency="EUR",
        asked_for="1000",
        requested_at=datetime.fromtimestamp(NOW - age, UTC).isoformat(),
        correlation_id="c",
        status=status,
    )


def row(state: RefundState, *, code: str | None = None) -> Refund:
    request = FrozenRefund(ORDER_ID, REFUND_ID, 1, 1000, "EUR", "pi_1", NOW - HOUR)
    finalized_at = None if state is RefundState.PENDING else NOW - HOUR
    return Refund(request=request, state=state, finalized_at=finalized_at, failure_code=code)


def found(status: str, id_: str = "re_1") -> FoundRefund:
    return FoundRefund(id_, status, 1000, "EUR", failure_reason="expired_card" if status == "failed" else None)


PENDING, SUCCEEDED, FAILED, REVIEW = (RefundStatus(each) for each in ("PENDING", "SUCCEEDED", "FAILED", "NEEDS_REVIEW"))


@pytest.mark.parametrize(
    ("refund", "cause", "severity"),
    [
        (RefundFacts(refund_id=REFUND_ID, requested=requested(PENDING)), Cause.REFUND_WAITS, Severity.WAITS),
        (
            RefundFacts(refund_id=REFUND_ID, requested=requested(PENDING, age=2 * DAY)),
            Cause.REFUND_WAITS,
            Severity.BROKEN,
        ),
        (
            RefundFacts(
                refund_id=REFUND_ID,
                requested=requested(PENDING, age=2 * DAY),
                row=replace(row(RefundState.PENDING), key_spent_at=NOW - DAY),
            ),
            Cause.REFUND_WAITS,
            Severity.BROKEN,
        ),
        (
            RefundFacts(
                refund_id=REFUND_ID,
                requested=requested(SUCCEEDED),
                row=row(RefundState.SUCCEEDED),
                found=[found("failed")],
            ),
            Cause.REFUND_RETURNED,
            Severity.BROKEN,
        ),
        (
            RefundFacts(refund_id=REFUND_ID, requested=requested(SUCCEEDED), row=None, found=[found("failed")]),
            Cause.REFUND_RETURNED,
            Severity.BROKEN,
        ),
        (
            RefundFacts(
                refund_id=REFUND_ID,
                requested=requested(SUCCEEDED),
                row=row(RefundState.SUCCEEDED),
                found=[found("succeeded"), found("succeeded", "re_2")],
            ),
            Cause.REFUND_DIFFERS,
            Severity.BROKEN,
        ),
        (
            RefundFacts(refund_id=REFUND_ID, requested=requested(FAILED), row=row(RefundState.FAILED, code="expired")),
            Cause.REFUND_FAILED,
            Severity.BROKEN,
        ),
        (
            RefundFacts(
                refund_id=REFUND_ID, requested=requested(REVIEW), row=row(RefundState.NEEDS_REVIEW, code="several")
            ),
            Cause.REFUND_NEEDS_REVIEW,
            Severity.BROKEN,
        ),
        (
            RefundFacts(refund_id=REFUND_ID, requested=requested(PENDING), row=row(RefundState.SUCCEEDED)),
            Cause.REFUND_OUTCOME_NOT_APPLIED,
            Severity.BROKEN,
        ),
        (
            RefundFacts(
                refund_id=REFUND_ID,
                requested=requested(PENDING),
                row=replace(row(RefundState.SUCCEEDED), finalized_at=NOW - 1),
            ),
            Cause.REFUND_OUTCOME_NOT_APPLIED,
            Severity.WAITS,
        ),
    ],
)
def test_the_cause_is_named(refund: RefundFacts, cause: Cause, severity: Severity) -> None:
    """One finding, with what mends it if somebody has to act."""
    [finding] = refund_findings(Facts(now=NOW, order_id=ORDER_ID, refunds=(refund,)))
    assert (finding.cause, finding.severity) == (cause, severity)
    assert finding.mend if severity is Severity.BROKEN else finding.next
    assert REFUND_ID in finding.detail


def test_a_refund_that_is_made_is_no_finding() -> None:
    """The row, the request and Stripe agree; the timeline has both times."""
    made = RefundFacts(
        refund_id=REFUND_ID, requested=requested(SUCCEEDED), row=row(RefundState.SUCCEEDED), found=[found("succeeded")]
    )
    facts = Facts(now=NOW, order_id=ORDER_ID, refunds=(made,))
    assert list(refund_findings(facts)) == []
    assert [moment.where for moment in timeline(facts)] == ["orders", "refunds"]


def test_a_message_in_the_dlq_is_what_it_waits_for() -> None:
    """A young refund, too, is broken then."""
    facts = Facts(
        now=NOW,
        order_id=ORDER_ID,
        refunds=(RefundFacts(refund_id=REFUND_ID, requested=requested(PENDING)),),
        dead_letters=(DeadLetter(queue="RefundsDlq", sent_at=NOW),),
    )
    [finding] = refund_findings(facts)
    assert finding.severity is Severity.BROKEN
    assert "RefundsDlq" in str(finding.mend)
