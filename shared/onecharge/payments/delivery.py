"""One delivery of a message: from the result of its claim to what happens to the message. For charges and refunds.

claim ─┬─► Claimed         work on the row                  ─► Done; BackOff if it is unfinished
       ├─► HeldByAnother   wait until the lease has expired ─► RetryAfter
       ├─► AlreadyFinal    a duplicate; a late one has the outcome emitted again ─► Done
       └─► Superseded      a later attempt has the row      ─► Done
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, assert_never

from onecharge.contract.events import CloudEvent
from onecharge.payments.instruments import Instruments
from onecharge.payments.leases import (
    AlreadyFinal,
    Claim,
    Claimed,
    HeldByAnother,
    LeasedRow,
    LeasedTable,
    Superseded,
)
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS, TimeBounds
from onecharge.payments.worker import FinalState, Unfinished, Worker
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage, RetryAfter

REEMIT_AFTER_SECONDS = 15 * 60
"""Nearly all duplicates come sooner, and cost nothing but the refused claim. One that comes so late may be the order
service asking again, for an order or refund that still waits: the outcome's own stream record may be lost."""


def after_claim[Event: CloudEvent[Any], Row: LeasedRow, Final: FinalState](
    event: Event,
    claim: Claim[Row],
    worker: Worker[Row, Final],
    bounds: TimeBounds,
    *,
    differs: Callable[[Event, Row], bool],
    started_at: float,
) -> Disposition:
    """Work on the row that was claimed, or ignore the duplicate.

    Args:
        differs: whether the message has other data than the row has frozen, which is what counts.
        started_at: when the delivery began, in epoch seconds.
    """
    instruments = worker.instruments
    if isinstance(claim, Claimed | AlreadyFinal) and differs(event, claim.row):
        log_delivery(
            instruments,
            event,
            "message differs from the frozen request: its data is ignored",
            alarm=Cause.MESSAGE_DIFFERS,
        )
    match claim:
        case Claimed(row):
            result = worker.work(row, deadline=bounds.deadline(started_at))
            return BackOff() if isinstance(result, Unfinished) else Done()
        case HeldByAnother(lease_expires_at):
            return _wait(instruments, event, lease_expires_at, bounds)
        case AlreadyFinal(row):
            reemit_if_late(worker.store, row, instruments)
            return _ignore(instruments, event, "duplicate ignored: already finalized", row)
        case Superseded(row):
            return _ignore(instruments, event, "duplicate ignored: superseded by a later attempt", row)
        case _:
            assert_never(claim)


def reemit_if_late[Row: LeasedRow, Final](store: LeasedTable[Row, Final], row: Row, instruments: Instruments) -> None:
    """Emit the outcome again through the table's stream, unless it was emitted a short time ago."""
    now = instruments.now()
    emitted_at = max(row.finalized_at or 0, row.last_emitted_at or 0)
    if now - emitted_at >= REEMIT_AFTER_SECONDS and store.reemit_outcome(row, now=now):
        instruments.count("OutcomeReemitted")


def require_past(field: str, at: datetime, instruments: Instruments) -> None:
    """Raises PoisonMessage if the message's time is further in the future than clocks may differ."""
    if int(at.timestamp()) > instruments.now() + FUTURE_MAX_SECONDS:
        raise PoisonMessage(f"{field}: in the future")


def log_delivery(
    instruments: Instruments, event: CloudEvent[Any], message: str, *, alarm: Cause | None = None, **details: object
) -> None:
    """Write a log line about a delivery."""
    instruments.log(
        message,
        alarm=alarm,
        order_id=event.data.order_id,
        refund_id=getattr(event.data, "refund_id", None),
        attempt=event.data.attempt,
        correlation_id=event.correlationid,
        **details,
    )


def _wait(instruments: Instruments, event: CloudEvent[Any], lease_expires_at: int, bounds: TimeBounds) -> Disposition:
    """The message stays in the queue: if the holder crashes, its next delivery claims the row."""
    seconds = lease_expires_at - instruments.now() + 1
    # If the holder's clock is ahead, wait at most one lease.
    wait_seconds = min(max(1, seconds), bounds.lease_seconds)
    instruments.count("DuplicateWaiting")
    log_delivery(instruments, event, "duplicate waits for the lease", wait_seconds=wait_seconds)
    return RetryAfter(wait_seconds)


def _ignore(instruments: Instruments, event: CloudEvent[Any], message: str, row: LeasedRow) -> Disposition:
    instruments.count("DuplicateIgnored")
    log_delivery(instruments, event, message, row_attempt=row.attempt, row_state=row.state)
    return Done()
