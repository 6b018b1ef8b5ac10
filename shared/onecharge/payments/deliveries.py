"""One delivery of an order's message: claim, charge, finalize; or ignore the duplicate.

OrderPlaced ─► claim ─┬─► Claimed       ─► charge ─► finalize ─► Done; BackOff if it has to be delivered again
CancelRequested ──────┤                    held: Done, an operator releases it
 (stored first)       ├─► HeldByAnother ─► wait until the lease has expired ─► RetryAfter
                      └─► AlreadyEnded, Superseded: a duplicate ─► Done; a late one has the outcome emitted again
"""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.charge import charge
from onecharge.payments.charge_rows import new_lease_owner
from onecharge.payments.charge_rules import Finalize
from onecharge.payments.rows import (
    FINAL,
    AlreadyEnded,
    Claim,
    Claimed,
    FrozenRequest,
    Held,
    HeldByAnother,
    Payment,
    ReleaseLease,
    Superseded,
    WriteRefused,
)
from onecharge.payments.sync import count_end, report_dispute
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage, RetryAfter

REEMIT_AFTER_SECONDS = 15 * 60
"""Nearly all duplicates come sooner, and cost only the refused claim. One that comes this late may be the order
service asking again, for an order that still waits: the outcome's own stream record may be lost."""

type OrderEvent = OrderPlacedEvent | CancelRequestedEvent


def charge_order(event: OrderPlacedEvent, tools: Tools) -> Disposition:
    """Handle one delivery: however many an order has, together they charge it once. Raises PoisonMessage."""
    require_past(event.data.placed_at, tools)
    claim = _claim(event, tools, event.data.attempt, event.data.payment_method)
    if isinstance(claim, Superseded) and claim.row.state is PaymentState.PENDING:
        # The order was put back to an earlier attempt, and nobody else asks for the later one.
        claim = _claim(event, tools, claim.row.attempt, claim.row.payment_method)
    return after_claim(event, claim, tools)


def cancel_order(event: CancelRequestedEvent, tools: Tools) -> Disposition:
    """Handle one delivery: store the request whoever has the lease, then cancel at Stripe. Raises PoisonMessage."""
    require_past(event.data.placed_at, tools)
    request, now = FrozenRequest.of(event.data), tools.now()
    row = tools.payments.request_cancel(
        request,
        attempt=event.data.attempt,
        payment_method=event.data.payment_method,
        correlation_id=event.correlationid,
        now=now,
    )
    if row is not None and row.state in FINAL:
        return after_claim(event, AlreadyEnded(row), tools)
    claim = tools.payments.claim_to_cancel(
        request.order_id, owner=new_lease_owner(), now=now, lease_seconds=tools.lease_seconds
    )
    return after_claim(event, claim, tools)


def _claim(event: OrderPlacedEvent, tools: Tools, attempt: int, payment_method: str) -> Claim:
    return tools.payments.claim(
        FrozenRequest.of(event.data),
        attempt=attempt,
        payment_method=payment_method,
        correlation_id=event.correlationid,
        owner=new_lease_owner(),
        now=tools.now(),
        lease_seconds=tools.lease_seconds,
    )


def after_claim(event: OrderEvent, claim: Claim, tools: Tools) -> Disposition:
    """Charge the row that was claimed, or ignore the duplicate."""
    if isinstance(claim, Claimed | AlreadyEnded) and _differs(event, claim.row):
        message = "message differs from the frozen request: its data is ignored"
        _log(event, message, tools, alarm=Cause.UNEXPECTED_ERROR)
    match claim:
        case Claimed(row):
            return finalize(row, tools)
        case HeldByAnother(lease_expires_at):
            # If the owner's clock is ahead, wait at most one lease.
            wait_seconds = min(max(1, lease_expires_at - tools.now() + 1), tools.lease_seconds)
            tools.count("DuplicateWaiting")
            row_shown = claim.row.shown if claim.row else None
            _log(event, "duplicate waits for the lease", tools, wait_seconds=wait_seconds, row=row_shown)
            # 0: nobody has it, but the customer may still finish an earlier attempt's 3-D Secure.
            return RetryAfter(wait_seconds) if lease_expires_at else BackOff()
        case AlreadyEnded(row) | Superseded(row):
            tools.count("DuplicateIgnored")
            _log(event, "duplicate ignored: the attempt has ended", tools, row=row.shown)
            reemit_if_late(row, tools)
            return Done()
        case _:
            assert_never(claim)


def finalize(row: Payment, tools: Tools) -> Disposition:
    """Charge a claimed row, and store the outcome; if nothing can be done now, give up the lease."""
    # A worker that is killed writes no other line: this one says until when the row waits for it.
    tools.log("payment claimed", alarm=None, **row.log_fields, row=row.shown)
    try:
        final = charge(row, tools)
        if final.intent:
            # Before the write: once the row shows the dispute, no duplicate raises its alarm.
            report_dispute(row.request.order_id, row, final.intent, tools)
        row = tools.payments.finalize(row, final, now=tools.now())
    except Held as held:
        _release(row, held, "payment held: an operator releases it", tools)
        return Done()
    except ReleaseLease as release:
        _release(row, release, "payment not finished", tools)
        return BackOff()
    except WriteRefused:
        # Another owner sends the same requests under the same keys, and finalizes the answers. If a cancellation was
        # requested, our lease stays until it expires, and the next claim cancels.
        tools.count("WriteRefused")
        tools.log("write refused: lease lost, or cancellation requested", alarm=None, **row.log_fields)
        return BackOff()
    _report(row, final, tools)
    return Done()


def _report(row: Payment, final: Finalize, tools: Tools) -> None:
    tools.count(f"Payment.{final.state}")
    count_end(row, final.state, tools)
    tools.log("payment finalized", alarm=None, **row.log_fields, row=row.shown, state=final.state, reason=final.reason)


def _release(row: Payment, release: ReleaseLease, message: str, tools: Tools) -> None:
    tools.count("Payment.UNKNOWN")
    try:
        row = tools.payments.release(row, **release.kept)
    except WriteRefused:
        tools.count("WriteRefused")
    finally:  # The alarm is raised even if DynamoDB does not answer.
        tools.log(message, alarm=release.alarm, **row.log_fields, why=release.why)


def reemit_if_late(row: Payment, tools: Tools) -> None:
    """Emit the outcome again through the table's stream, unless there is none, or it was emitted a short time ago."""
    now, emitted_at = tools.now(), max(row.finalized_at or 0, row.last_emitted_at or 0)
    if row.state is PaymentState.PENDING or now - emitted_at < REEMIT_AFTER_SECONDS:
        return
    if tools.payments.write_if_unchanged(row, {"last_emitted_at": now}, now=now):
        tools.count("OutcomeReemitted")


def require_past(at: datetime, tools: Tools) -> None:
    """Raises PoisonMessage if the order was placed further in the future than clocks may differ.

    Its age decides whether a PaymentIntent may be created: a time in the future would keep the window open.
    """
    if int(at.timestamp()) > tools.now() + FUTURE_MAX_SECONDS:
        raise PoisonMessage("data.placed_at: in the future")


def _differs(event: OrderEvent, row: Payment) -> bool:
    """Whether the message has other data than the row has frozen."""
    # "": a recovered row has no payment method.
    is_same_attempt = row.attempt == event.data.attempt
    other_method = is_same_attempt and row.payment_method not in ("", event.data.payment_method)
    # An order that was lost has another time when it is placed again, or when its row is written again.
    asked = replace(FrozenRequest.of(event.data), placed_at=row.request.placed_at)
    return asked != row.request or other_method


def _log(event: OrderEvent, message: str, tools: Tools, *, alarm: Cause | None = None, **details: object) -> None:
    about = {"order_id": event.data.order_id, "attempt": event.data.attempt, "correlation_id": event.correlationid}
    tools.log(message, alarm=alarm, **about, **details)
