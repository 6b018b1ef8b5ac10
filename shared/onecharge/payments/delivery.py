"""One delivery of a message that is to be worked on: from the result of its claim to what happens to the message.

claim ─┬─► Claimed         work on the row                  ─► Done; BackOff if it is unfinished
       ├─► HeldByAnother   wait until the lease has expired ─► RetryAfter
       ├─► AlreadyFinal    a duplicate; a late one has the outcome emitted again ─► Done
       └─► Superseded      a later attempt has the row      ─► Done

The same for charges and refunds: a subclass claims, and says whether a message differs from what the row froze.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, assert_never

from onecharge.contract.events import CloudEvent
from onecharge.payments.instruments import Instruments
from onecharge.payments.leases import AlreadyFinal, Claim, Claimed, HeldByAnother, LeasedRow, Superseded
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.worker import FinalState, Unfinished, Worker
from onecharge.runtime.consumer import BackOff, Disposition, Done, RetryAfter

REEMIT_AFTER_SECONDS = 15 * 60
"""Nearly all duplicates come sooner, and cost nothing but the refused claim. One that comes so late may be the order
service asking again, for an order or refund that still waits: the outcome's own stream record may be lost."""


@dataclass(frozen=True)
class DeliveryHandler[Row: LeasedRow, Final: FinalState, Event: CloudEvent[Any]](ABC):
    """Handles deliveries of one queue's events through a worker."""

    worker: Worker[Row, Final]
    bounds: TimeBounds
    instruments: Instruments

    @abstractmethod
    def _differs(self, event: Event, row: Row) -> bool:
        """Whether the message says something else than the row froze: what was frozen is what counts."""

    def _after_claim(self, event: Event, claim: Claim[Row], *, started_at: float) -> Disposition:
        match claim:
            case Claimed(row):
                self._warn_if_it_differs(event, row)
                result = self.worker.work(row, deadline=self.bounds.deadline(started_at))
                return BackOff() if isinstance(result, Unfinished) else Done()
            case HeldByAnother(lease_expires_at):
                return self._wait(event, lease_expires_at)
            case AlreadyFinal(row):
                self._warn_if_it_differs(event, row)
                self._reemit_if_late(row)
                return self._ignore(event, "duplicate ignored: already finalized", row)
            case Superseded(row):
                return self._ignore(event, "duplicate ignored: superseded by a later attempt", row)
            case _:
                assert_never(claim)

    def _wait(self, event: Event, lease_expires_at: int) -> Disposition:
        """Not acknowledged: should the holder crash, this delivery is the one that is worked on."""
        seconds = lease_expires_at - self.instruments.now() + 1
        # A holder whose clock is far ahead hides no message for longer than a lease.
        wait_seconds = min(max(1, seconds), self.bounds.lease_seconds)
        self.instruments.count("DuplicateWaiting")
        self._log(event, "duplicate waits for the lease", wait_seconds=wait_seconds)
        return RetryAfter(wait_seconds)

    def _ignore(self, event: Event, message: str, row: Row) -> Disposition:
        self.instruments.count("DuplicateIgnored")
        self._log(event, message, row_attempt=row.attempt, row_state=row.state)
        return Done()

    def _reemit_if_late(self, row: Row) -> None:
        now = self.instruments.now()
        emitted_at = max(row.finalized_at or 0, row.last_emitted_at or 0)
        if now - emitted_at >= REEMIT_AFTER_SECONDS and self.worker.store.reemit_outcome(row, now=now):
            self.instruments.count("OutcomeReemitted")

    def _warn_if_it_differs(self, event: Event, row: Row) -> None:
        if self._differs(event, row):
            self._log(event, "message differs from the frozen request, which holds", alarm=True)

    def _log(self, event: Event, message: str, *, alarm: bool = False, **details: object) -> None:
        about = {
            "order_id": event.data.order_id,
            "refund_id": getattr(event.data, "refund_id", None),
            "attempt": event.data.attempt,
            "correlation_id": event.correlationid,
        }
        self.instruments.log(message, alarm=alarm, **{**about, **details})
