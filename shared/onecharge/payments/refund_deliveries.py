"""One delivery of a refund's message, from its claim to what happens to the message.

claim ─┬─► Claimed         refund, then finalize            ─► Done; BackOff if it has to be delivered again
       ├─► HeldByAnother   wait until the lease has expired ─► RetryAfter
       └─► AlreadyEnded    a duplicate: a late message has the outcome emitted again ─► Done
"""

from datetime import datetime
from typing import Any, assert_never

from onecharge.contract.refunds import RefundRequestedEvent, RefundState
from onecharge.payments.instruments import Instruments
from onecharge.payments.refund import refund
from onecharge.payments.refund_changes import AlreadyEnded, Claim, Claimed, HeldByAnother
from onecharge.payments.refund_rules import FinalizeRefund, Refund
from onecharge.payments.refund_tools import RefundTools
from onecharge.payments.rows import ReleaseLease, WriteRefused
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage, RetryAfter
from onecharge.runtime.metrics import Metric

REEMIT_AFTER_SECONDS = 15 * 60
"""Nearly all duplicates come sooner, and cost only the refused claim. One that comes this late may be the order
service asking again, for a refund that still waits: the outcome's own stream record may be lost."""


def after_claim(event: RefundRequestedEvent, claim: Claim, tools: RefundTools) -> Disposition:
    """Finalize the row that was claimed, or ignore the duplicate."""
    instruments = tools.instruments
    if isinstance(claim, Claimed | AlreadyEnded) and _differs(event, claim.row):
        message = "message differs from the frozen request: its data is ignored"
        log_delivery(instruments, event, message, alarm=Cause.MESSAGE_DIFFERS)
    match claim:
        case Claimed(row):
            return _finalize(row, tools)
        case HeldByAnother(lease_expires_at, row):
            # If the owner's clock is ahead, wait at most one lease.
            wait_seconds = min(max(1, lease_expires_at - instruments.now() + 1), tools.lease_seconds)
            instruments.count("DuplicateWaiting")
            row_shown = _shown(row) if row else None
            log_delivery(instruments, event, "duplicate waits for the lease", wait_seconds=wait_seconds, row=row_shown)
            return RetryAfter(wait_seconds)
        case AlreadyEnded(row):
            _reemit_if_late(row, tools)
            instruments.count("DuplicateIgnored")
            log_delivery(instruments, event, "duplicate ignored: the refund has ended", row=_shown(row))
            return Done()
        case _:
            assert_never(claim)


def _finalize(row: Refund, tools: RefundTools) -> Disposition:
    """Store what `refund` decides about a claimed row; on ReleaseLease, give up the lease."""
    instruments = tools.instruments
    # A worker that is killed writes no other line: this one says until when the row waits for it.
    _log(row, "refund claimed", instruments, row=_shown(row))
    try:
        final = refund(row, tools)
        if final.alarm:
            # Before the write: once the row says so, duplicates raise no alarm.
            _log(row, "refund: a person has to see it", instruments, alarm=final.alarm, **_log_fields_of(final))
        row = tools.refunds.finalize(row, final, now=instruments.now())
    except ReleaseLease as release:
        _release(row, release, tools)
        return BackOff()
    except WriteRefused:
        # Another owner sends the same requests under the same keys, and finalizes the answers.
        instruments.count("WriteRefused")
        _log(row, "write refused: lease lost", instruments)
        return BackOff()
    instruments.count(f"Refund.{final.state}")
    if final.state is RefundState.SUCCEEDED:
        # An indication for the dashboard, never the books.
        instruments.count(Metric("MoneyRefunded", {"currency": row.currency}, value=row.amount_minor))
    _log(row, "refund finalized", instruments, row=_shown(row), **_log_fields_of(final))
    return Done()


def _release(row: Refund, release: ReleaseLease, tools: RefundTools) -> None:
    instruments = tools.instruments
    overdue = Cause.OVERDUE if row.is_overdue(instruments.now()) else None
    if overdue:
        instruments.count("RefundOverdue")
    instruments.count("Refund.UNKNOWN")
    try:
        row = tools.refunds.release_lease(row, **release.kept)
    except WriteRefused:
        instruments.count("WriteRefused")
    finally:  # The alarm is raised even if DynamoDB does not answer.
        _log(row, "refund not finished", instruments, alarm=release.alarm or overdue, why=release.why)


def _reemit_if_late(row: Refund, tools: RefundTools) -> None:
    """Emit the outcome again through the table's stream, unless it was emitted a short time ago."""
    now, emitted_at = tools.instruments.now(), max(row.finalized_at or 0, row.last_emitted_at or 0)
    if now - emitted_at >= REEMIT_AFTER_SECONDS and tools.refunds.reemit_outcome(row, now=now):
        tools.instruments.count("OutcomeReemitted")


def require_past(name: str, at: datetime, instruments: Instruments) -> None:
    """Raises PoisonMessage if the message's time is further in the future than clocks may differ."""
    if int(at.timestamp()) > instruments.now() + FUTURE_MAX_SECONDS:
        raise PoisonMessage(f"{name}: in the future")


def log_delivery(
    instruments: Instruments, event: RefundRequestedEvent, message: str, *, alarm: Cause | None = None, **details: Any
) -> None:
    """Write a log line about a delivery."""
    about = {"order_id": event.data.order_id, "refund_id": event.data.refund_id, "attempt": event.data.attempt}
    instruments.log(message, alarm=alarm, **about, correlation_id=event.correlationid, **details)


def _differs(event: RefundRequestedEvent, row: Refund) -> bool:
    """Whether the message has other data than the row has frozen."""
    return (event.data.amount_minor, event.data.currency) != (row.amount_minor, row.currency)


def _shown(row: Refund) -> dict[str, object]:
    """The row in a log line: what decides about claims and writes."""
    names = ("state", "attempt", "revision", "lease_owner", "lease_expires_at", "finalized_at")
    fields = {**{name: getattr(row, name) for name in names}, "payment_intent_id": row.request.payment_intent_id}
    return {name: value for name, value in fields.items() if value is not None}


def _log_fields_of(final: FinalizeRefund) -> dict[str, Any]:
    return {"state": final.state, "code": final.code, "stripe_request_id": final.stripe_request_id}


def _log(row: Refund, message: str, instruments: Instruments, /, *, alarm: Cause | None = None, **details: Any) -> None:
    instruments.log(message, alarm=alarm, **{**row.log_fields, **details})
