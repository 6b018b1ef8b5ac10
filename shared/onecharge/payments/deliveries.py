"""One delivery of a message, from its claim to what happens to the message: alike for charges and refunds.

claim ─┬─► Claimed         finalize_claimed                 ─► Done; BackOff if it has to be delivered again
       ├─► HeldByAnother   wait until the lease has expired ─► RetryAfter
       └─► AlreadyEnded, Superseded   a duplicate, or a later attempt has the row: a late message has the outcome
                                      emitted again ─► Done

finalize_claimed: to_final runs ─┬─► it returns what to finalize ─► raise its alarm, finalize the row, report
                                 ├─► it raises ReleaseLease ──────► release the lease
                                 └─► WriteRefused ────────────────► a write was refused, and nothing was written
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never

from onecharge.contract.events import CloudEvent
from onecharge.payments.instruments import Instruments
from onecharge.payments.rows import (
    PENDING,
    AlreadyEnded,
    Claim,
    Claimed,
    HeldByAnother,
    LeasedRow,
    LeasedTable,
    Outcome,
    ReleaseLease,
    Superseded,
    WriteRefused,
)
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage, RetryAfter
from onecharge.runtime.metrics import Metric

REEMIT_AFTER_SECONDS = 15 * 60
"""Nearly all duplicates come sooner, and cost only the refused claim. One that comes this late may be the order
service asking again, for an order or refund that still waits: the outcome's own stream record may be lost."""


@dataclass(frozen=True)
class Unfinished:
    """The row still needs work: the message is delivered again, or the reconciler visits the row."""

    why: str


def after_claim[Event: CloudEvent[Any], Row: LeasedRow, Final: Outcome](
    event: Event,
    claim: Claim[Row],
    store: LeasedTable[Row, Final],
    tools: Tools,
    to_final: Callable[[Row], Final],
    *,
    differs: Callable[[Event, Row], bool],
) -> Disposition:
    """Finalize the row that was claimed, or ignore the duplicate.

    Args:
        to_final: `charge` or `refund`; see `finalize_claimed`.
        differs: whether the message has other data than the row has frozen, which is what counts.
    """
    instruments = tools.instruments
    if isinstance(claim, Claimed | AlreadyEnded) and differs(event, claim.row):
        log_delivery(
            instruments,
            event,
            "message differs from the frozen request: its data is ignored",
            alarm=Cause.MESSAGE_DIFFERS,
        )
    match claim:
        case Claimed(row):
            result = finalize_claimed(to_final, row, store, instruments)
            return BackOff() if isinstance(result, Unfinished) else Done()
        case HeldByAnother():
            return _wait(instruments, event, claim, tools.lease_seconds)
        case AlreadyEnded(row):
            reemit_if_late(store, row, instruments)
            return _ignore(instruments, event, "duplicate ignored: the attempt has ended", row)
        case Superseded(row):
            # The order may be a restored one, which asks for an attempt of long ago.
            reemit_if_late(store, row, instruments)
            return _ignore(instruments, event, "duplicate ignored: superseded by a later attempt", row)
        case _:
            assert_never(claim)


def finalize_claimed[Row: LeasedRow, Final: Outcome](
    to_final: Callable[[Row], Final], row: Row, store: LeasedTable[Row, Final], instruments: Instruments
) -> Row | Unfinished:
    """Store what `charge` or `refund` decides about a claimed row; on ReleaseLease, give up the lease.

    Args:
        to_final: `charge` or `refund`: returns what to finalize the row as. Raises ReleaseLease if it cannot be
            finalized now, or WriteRefused.

    Returns:
        The row as it was finalized, or why it still needs work.
    """
    # A worker that is killed writes no other line: this one says until when the row waits for it.
    _log(row, f"{row.subject.lower()} claimed", instruments, row=shown(row))
    try:
        final = to_final(row)
        if final.alarm:
            # Before the write: once the row says so, its answer may be lost, or the worker killed, and duplicates
            # raise no alarm.
            _log(
                row,
                f"{row.subject.lower()}: a person has to see it",
                instruments,
                alarm=final.alarm,
                **_log_fields_of(final),
            )
        finalized = store.finalize(row, final, now=instruments.now())
    except ReleaseLease as release:
        return _release(row, release, store, instruments)
    except WriteRefused:
        # Another owner sends the same requests under the same keys, and finalizes the answers. If a cancellation
        # was requested, our lease stays until it expires, and the next claim cancels.
        instruments.count("WriteRefused")
        _log(row, "write refused: lease lost, or cancellation requested", instruments)
        return Unfinished("lease lost, or cancellation requested")
    _report(finalized, final, instruments)
    return finalized


def reemit_if_late[Row: LeasedRow, Final: Outcome](
    store: LeasedTable[Row, Final], row: Row, instruments: Instruments
) -> None:
    """Emit the outcome again through the table's stream, unless there is none, or it was emitted a short time ago."""
    if row.state == PENDING:
        return
    now = instruments.now()
    emitted_at = max(row.finalized_at or 0, row.last_emitted_at or 0)
    if now - emitted_at >= REEMIT_AFTER_SECONDS and store.reemit_outcome(row, now=now):
        instruments.count("OutcomeReemitted")


def require_past(name: str, at: datetime, instruments: Instruments) -> None:
    """Raises PoisonMessage if the message's time is further in the future than clocks may differ."""
    if int(at.timestamp()) > instruments.now() + FUTURE_MAX_SECONDS:
        raise PoisonMessage(f"{name}: in the future")


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


def shown(row: LeasedRow) -> dict[str, object]:
    """The row in a log line: what decides about claims and writes."""
    fields: dict[str, object] = {
        "state": row.state,
        "attempt": row.attempt,
        "revision": row.revision,
        "lease_owner": row.lease_owner,
        "lease_expires_at": row.lease_expires_at,
        "finalized_at": row.finalized_at,
        "payment_intent_id": row.log_fields["payment_intent_id"],
    }
    return {name: value for name, value in fields.items() if value is not None}


def count_money(instruments: Instruments, subject: str, amount_minor: int, currency: str) -> None:
    """Count money as a metric, for the dashboard: an indication, never the books (`python -m ops audit` has these).

    It is counted once a row has become SUCCEEDED: one conditional write, which no duplicate and no replay repeats. A
    worker that dies between that write and its log's last line omits it; a refund that fails later is not subtracted.
    """
    dimensions = {"currency": currency}
    if subject == "Payment":
        instruments.count(Metric("MoneyCharged", dimensions, value=amount_minor))
    else:
        instruments.count(Metric("MoneyRefunded", dimensions, value=amount_minor))


def count_end(instruments: Instruments, row: LeasedRow, state: str) -> None:
    """Count the money of a row that has ended; of a payment, also whether it is declined, whoever finalizes it."""
    if state == "SUCCEEDED":
        count_money(instruments, row.subject, row.amount_minor, row.currency)
    if row.subject == "Payment" and state in ("SUCCEEDED", "DECLINED"):
        instruments.count(Metric("DeclinedShare", {"of": "payments"}, value=int(state == "DECLINED")))


def _wait(instruments: Instruments, event: CloudEvent[Any], held: HeldByAnother, lease_seconds: int) -> Disposition:
    """The message stays in the queue: if the lease owner crashes, its next delivery claims the row."""
    seconds = held.lease_expires_at - instruments.now() + 1
    # If the owner's clock is ahead, wait at most one lease.
    wait_seconds = min(max(1, seconds), lease_seconds)
    instruments.count("DuplicateWaiting")
    row = shown(held.row) if held.row else None
    log_delivery(instruments, event, "duplicate waits for the lease", wait_seconds=wait_seconds, row=row)
    return RetryAfter(wait_seconds)


def _ignore(instruments: Instruments, event: CloudEvent[Any], message: str, row: LeasedRow) -> Disposition:
    instruments.count("DuplicateIgnored")
    log_delivery(instruments, event, message, row=shown(row))
    return Done()


def _release[Row: LeasedRow, Final: Outcome](
    row: Row, release: ReleaseLease, store: LeasedTable[Row, Final], instruments: Instruments
) -> Unfinished:
    # The reconciler does not visit a row that messages keep claiming: its age is checked here.
    overdue = Cause.OVERDUE if row.is_overdue(instruments.now()) else None
    if overdue:
        instruments.count(f"{row.subject}Overdue")
    instruments.count(f"{row.subject}.UNKNOWN")
    try:
        row = store.release_lease(row, **release.kept)
    except WriteRefused:
        instruments.count("WriteRefused")
    finally:  # The alarm is raised even if DynamoDB does not answer.
        _log(row, f"{row.subject.lower()} not finished", instruments, alarm=release.alarm or overdue, why=release.why)
    return Unfinished(release.why)


def _report(row: LeasedRow, final: Outcome, instruments: Instruments) -> None:
    instruments.count(f"{row.subject}.{final.state}")
    count_end(instruments, row, final.state)
    _log(row, f"{row.subject.lower()} finalized", instruments, row=shown(row), **_log_fields_of(final))


def _log_fields_of(final: Outcome) -> dict[str, Any]:
    return {"state": final.state, "code": final.code, "stripe_request_id": final.stripe_request_id}


def _log(
    row: LeasedRow, message: str, instruments: Instruments, /, *, alarm: Cause | None = None, **details: object
) -> None:
    instruments.log(message, alarm=alarm, **{**row.log_fields, **details})
