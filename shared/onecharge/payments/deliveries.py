"""One delivery of an order's message: claim, charge, finalize; or ignore the duplicate.

OrderPlaced ─► claim ─┬─► Claimed       ─► charge ─► finalize ─► Done; BackOff if it has to be delivered again
CancelRequested ──────┤                    held: Done, an operator releases it
 (stored first)       ├─► HeldByAnother ─► wait until the lease has expired ─► RetryAfter
                      └─► AlreadyEnded, Superseded: a duplicate ─► Done; a late one has the outcome emitted again
"""

from dataclasses import replace

from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.charge import charge
from onecharge.payments.charge_rows import (
    FINAL,
    AlreadyEnded,
    Claim,
    Claimed,
    FrozenRequest,
    HeldByAnother,
    Payment,
    Superseded,
    WriteRefused,
    new_lease_owner,
)
from onecharge.payments.charge_rules import Held, final_changes
from onecharge.payments.stripe_responses import Deferred
from onecharge.payments.sync import count_end, report_dispute
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage, RetryAfter

REEMIT_AFTER_SECONDS = 15 * 60
"""Nearly all duplicates come sooner, and cost only the refused claim. One that comes this late may be the order
service asking again, for an order that still waits: the outcome's own stream record may be lost."""

type OrderEvent = OrderPlacedEvent | CancelRequestedEvent


def handle(event: OrderEvent, tools: Tools) -> Disposition:
    """Handle one delivery: however many an order has, together they charge it once. Raises PoisonMessage."""
    if int(event.data.placed_at.timestamp()) > tools.now() + FUTURE_MAX_SECONDS:
        # Its age decides whether a PaymentIntent may be created: a time in the future would keep the window open.
        raise PoisonMessage("data.placed_at: in the future")
    if isinstance(event, CancelRequestedEvent):
        claim = _claim_to_cancel(event, tools)
    else:
        claim = _claim(event, tools, event.data.attempt, event.data.payment_method)
        if isinstance(claim, Superseded) and claim.row.state is PaymentState.PENDING:
            # The order was restored to an earlier attempt. No other message asks for the later one.
            claim = _claim(event, tools, claim.row.attempt, claim.row.payment_method)
    about = event.log_fields
    if isinstance(claim, Claimed | AlreadyEnded) and _differs(event, claim.row):
        message = "message differs from the frozen request: its data is ignored"
        tools.log(message, alarm=Cause.UNEXPECTED_ERROR, **about)
    match claim:
        case Claimed(row):
            return charge_and_finalize(row, tools)
        case HeldByAnother(lease_expires_at, holder):
            # If the owner's clock is ahead, wait at most one lease.
            wait_seconds = min(max(1, lease_expires_at - tools.now() + 1), tools.lease_seconds)
            shown = holder.shown if holder else None
            tools.log("duplicate waits for the lease", **about, wait_seconds=wait_seconds, row=shown)
            # 0: no worker has the row. The customer may still finish 3-D Secure for an earlier attempt.
            return RetryAfter(wait_seconds) if lease_expires_at else BackOff()
        case AlreadyEnded(row) | Superseded(row):
            tools.log("duplicate ignored: the attempt has ended", **about, row=row.shown)
            reemit_if_late(row, tools)
            return Done()


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


def _claim_to_cancel(event: CancelRequestedEvent, tools: Tools) -> Claim:
    """Store the request whoever has the lease; then claim the row, to cancel at Stripe."""
    now = tools.now()
    row = tools.payments.request_cancel(
        FrozenRequest.of(event.data),
        attempt=event.data.attempt,
        payment_method=event.data.payment_method,
        correlation_id=event.correlationid,
        now=now,
    )
    if row is not None and row.state in FINAL:
        return AlreadyEnded(row)
    lease = {"now": now, "lease_seconds": tools.lease_seconds}
    return tools.payments.claim_to_cancel(event.data.order_id, owner=new_lease_owner(), **lease)


def charge_and_finalize(row: Payment, tools: Tools) -> Disposition:
    """Charge a claimed row, and store the outcome; if nothing can be done now, give up the lease."""
    # A worker that is killed writes no other line: this one says until when the row waits for it.
    tools.log("payment claimed", **row.log_fields, row=row.shown)
    try:
        final = charge(row, tools)
        if final.intent:
            # Before the write: once the row shows the dispute, no duplicate raises its alarm.
            report_dispute(row.request.order_id, row, final.intent, tools)
        row = tools.payments.finalize(row, final_changes(final, tools.now()), now=tools.now())
    except Held as held:
        _give_back(row, held, "payment held: an operator releases it", tools)
        return Done()
    except Deferred as deferred:
        _give_back(row, deferred, "payment not finished", tools)
        return BackOff()
    except WriteRefused:
        # Another owner sends the same requests under the same keys, and finalizes the answers. If a cancellation was
        # requested, our lease stays until it expires, and the next claim cancels.
        tools.log("write refused: lease lost, or cancellation requested", **row.log_fields)
        return BackOff()
    tools.count(f"Payment.{final.state}")
    count_end(row, final.state, tools)
    tools.log("payment finalized", **row.log_fields, row=row.shown, state=final.state, reason=final.reason)
    return Done()


def _give_back(row: Payment, deferred: Deferred, message: str, tools: Tools) -> None:
    tools.count("Payment.UNKNOWN")
    try:
        row = tools.payments.release(row, **deferred.kept)
    except WriteRefused:
        message += "; another worker has the row"
    finally:  # The alarm is raised even if DynamoDB does not answer.
        tools.log(message, alarm=deferred.alarm, **row.log_fields, why=deferred.why)


def reemit_if_late(row: Payment, tools: Tools) -> None:
    """Emit the outcome again through the table's stream, unless there is none, or it was emitted a short time ago."""
    now, emitted_at = tools.now(), max(row.finalized_at or 0, row.last_emitted_at or 0)
    if row.state is not PaymentState.PENDING and now - emitted_at >= REEMIT_AFTER_SECONDS:
        tools.payments.write_if_unchanged(row, {"last_emitted_at": now}, now=now)


def _differs(event: OrderEvent, row: Payment) -> bool:
    """Whether the message has other data than the row has frozen."""
    # "": a recovered row has no payment method.
    is_same_attempt = row.attempt == event.data.attempt
    other_method = is_same_attempt and row.payment_method not in ("", event.data.payment_method)
    # An order that was lost has another time when it is placed again, or when its row is written again.
    asked = replace(FrozenRequest.of(event.data), placed_at=row.request.placed_at)
    return asked != row.request or other_method
