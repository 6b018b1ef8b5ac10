"""One delivery of an order's message: claim, charge, finalize; or ignore the duplicate.

OrderPlaced ─► claim ─┬─► charge ─► finalize ─► Done; BackOff if it has to be delivered again
CancelRequested ──────┤             held: Done, an operator releases it
                      ├─► refused by a lease ─► RetryAfter, once it has expired
                      └─► refused, as the attempt has ended: a duplicate ─► Done; a late one emits the outcome again
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.charge import charge
from onecharge.payments.charge_rules import Held, final_changes
from onecharge.payments.payments_table import TERMINAL, FrozenRequest, Payment, WriteRefused
from onecharge.payments.stripe_responses import Deferred
from onecharge.payments.sync import report_dispute
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage, RetryAfter

type OrderEvent = OrderPlacedEvent | CancelRequestedEvent


def handle(event: OrderEvent, tools: Tools) -> Disposition:
    """Handle one delivery; no matter how many deliveries an order has, it is charged once. Raises PoisonMessage."""
    if int(event.data.placed_at.timestamp()) > tools.now() + FUTURE_MAX_SECONDS:
        # Its age decides whether a PaymentIntent may be created: a time in the future would keep the window open.
        raise PoisonMessage("data.placed_at: in the future")
    try:
        row = _claim(event, tools)
    except WriteRefused as refused:
        return _refused(event, refused.row, tools)
    _report_difference(event, row, tools)
    return charge_and_finalize(row, tools)


def _claim(event: OrderEvent, tools: Tools) -> Payment:
    """Claim the row for the event's attempt, or for its cancellation. Raises WriteRefused."""
    claim = partial(
        tools.payments.claim, correlation_id=event.correlationid, now=tools.now(), lease_seconds=tools.lease_seconds
    )
    try:
        return claim(event.data, to_cancel=isinstance(event, CancelRequestedEvent))
    except WriteRefused as refused:
        return _claim_otherwise(refused, event, claim, tools)


def charge_and_finalize(row: Payment, tools: Tools) -> Disposition:
    """Charge a claimed row, and store the outcome; if nothing can be done now, give up the lease."""
    # A killed worker may log nothing else: this line shows when its lease expires.
    tools.log("payment claimed", **row.log_fields, lease_expires_at=row.lease_expires_at)
    try:
        outcome = charge(row, tools)
        if outcome.intent:
            # Before the write: once the row shows the dispute, no duplicate raises its alarm.
            report_dispute(row.request.order_id, row, outcome.intent, tools)
        row = tools.payments.finalize(row, final_changes(outcome, tools.now()), now=tools.now())
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
    tools.count(f"Payment.{outcome.state}")
    tools.log("payment finalized", **row.log_fields, state=outcome.state, reason=outcome.reason)
    return Done()


# ---------------------------------------------------------------- refused, unfinished, or a duplicate


def _claim_otherwise(refused: WriteRefused, event: OrderEvent, claim: Callable[..., Payment], tools: Tools) -> Payment:
    """Claim another attempt of a row that refused the claim; store the request to cancel it. Raises WriteRefused."""
    order, row = event.data, refused.row
    if isinstance(event, CancelRequestedEvent):
        try:
            tools.payments.request_cancel(order.order_id, now=tools.now())
        except WriteRefused as changed:
            if changed.row and changed.row.state in (PaymentState.DECLINED, PaymentState.REQUIRES_ACTION):
                # The worker has finished meanwhile: no lease is left to wait for, and the customer could still pay.
                return claim(order, to_cancel=True)
        raise refused
    if row is None or row.state is not PaymentState.PENDING or row.attempt <= order.attempt:
        raise refused
    # The order was restored to an earlier attempt. No other message asks for the later one.
    return claim(order.model_copy(update={"attempt": row.attempt, "payment_method": row.payment_method}))


def _report_difference(event: OrderEvent, row: Payment, tools: Tools) -> None:
    """Raise an alarm if the message's data differs from what the row has frozen."""
    # placed_at differs if the order was lost and placed again, or if its row was lost and recreated.
    asked = replace(FrozenRequest.of(event.data), placed_at=row.request.placed_at)
    # "": a recovered row has no payment method.
    methods = ("", event.data.payment_method) if row.attempt == event.data.attempt else (row.payment_method,)
    if asked != row.request or row.payment_method not in methods:
        message = "message differs from the frozen request: its data is ignored"
        tools.log(message, alarm=Cause.UNEXPECTED_ERROR, **event.log_fields)


def _give_back(row: Payment, deferred: Deferred, message: str, tools: Tools) -> None:
    tools.count("Payment.UNKNOWN")
    try:
        row = tools.payments.give_back(row, **deferred.kept)
    except WriteRefused:
        message += "; another worker has the row"
    finally:  # The alarm is raised even if DynamoDB does not answer.
        tools.log(message, alarm=deferred.alarm, **row.log_fields, why=deferred.why)


REEMIT_AFTER_SECONDS = 15 * 60
"""Nearly all duplicates arrive sooner, and cost only the refused claim. One this late may be the order service asking
again for an order that still waits, because the outcome's stream record was lost."""


def _refused(event: OrderEvent, row: Payment | None, tools: Tools) -> Disposition:
    """Ignore a duplicate; wait if another delivery has the lease."""
    about, shown = event.log_fields, _for_log(row) if row else None
    if row and is_duplicate(row, None if isinstance(event, CancelRequestedEvent) else event.data.attempt):
        _report_difference(event, row, tools)
        tools.log("duplicate ignored: the attempt has ended", **about, row=shown)
        reemit_if_late(row, tools)
        return Done()
    if row and row.lease_expires_at == 0:
        # No worker has the row. The customer may still finish 3-D Secure for an earlier attempt.
        return BackOff()
    # If the owner's clock is ahead, wait at most one lease; one second, if the row was lost meanwhile.
    wait_seconds = min(max(1, row.lease_expires_at - tools.now() + 1 if row else 1), tools.lease_seconds)
    tools.log("duplicate waits for the lease", **about, wait_seconds=wait_seconds, row=shown)
    return RetryAfter(wait_seconds)


def is_duplicate(row: Payment, attempt: int | None) -> bool:
    """Whether a message of this attempt, or of a cancellation (None), finds nothing left to do."""
    is_past = attempt is not None and attempt <= row.attempt and row.state is not PaymentState.PENDING
    return row.state in TERMINAL or is_past


def reemit_if_late(row: Payment, tools: Tools) -> None:
    """Emit the outcome again through the table's stream, unless it was emitted a short time ago."""
    now, emitted_at = tools.now(), max(row.finalized_at or 0, row.last_emitted_at or 0)
    if now - emitted_at >= REEMIT_AFTER_SECONDS:
        with suppress(WriteRefused):  # Each write of the row emits it.
            tools.payments.write_if_unchanged(row, {"last_emitted_at": now}, now=now)


def _for_log(row: Payment) -> dict[str, Any]:
    """The attributes that decide claims and writes, for log lines."""
    names = (
        *("state", "attempt", "revision", "lease_owner", "lease_expires_at", "finalized_at"),
        *("payment_intent_id", "released_at", "cancel_requested_at"),
    )
    return {name: value for name in names if (value := getattr(row, name)) is not None}
