"""Works on a claimed row until it is final or has to wait. One skeleton: charges and refunds differ in their jobs.

claimed row ─► its turn ─► job.run ─┬─► Final ──────► finalize the row ─► report the outcome
                                    ├─► Release ────► release the lease ─► Unfinished: the message is delivered again
                                    └─► LeaseLost ──► Unfinished: a write was refused, and nothing was written

Whoever claims a row (a delivery, a cancellation, the reconciler) passes it to `work`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from onecharge.payments.instruments import Instruments
from onecharge.payments.leases import LeasedRow, LeasedTable, LeaseLost
from onecharge.runtime.alarms import Cause


class FinalState(Protocol):
    """The final state of a row, and what is reported of it."""

    @property
    def state(self) -> str: ...
    @property
    def code(self) -> str | None: ...
    @property
    def alarm(self) -> Cause | None:
        """Why a person has to see it, if so."""

    @property
    def stripe_request_id(self) -> str | None: ...


class Turn(Protocol):
    """When one claimed row may turn to Stripe, whose limit all workers share (stripe_limit.py)."""

    def begin(self) -> float | None:
        """Wait until it may begin; returns for how many seconds, or None if that is too far away."""

    def confirm(self) -> None:
        """Wait until its order may be confirmed."""


class _AtOnce:
    def begin(self) -> float | None:
        return 0

    def confirm(self) -> None:
        pass


AT_ONCE: Turn = _AtOnce()
"""Nobody waits."""


@dataclass(frozen=True)
class Unfinished:
    """The row is not final: the message is delivered again, or the reconciler visits the row."""

    why: str


class Release(Exception):
    """Nothing more can be done now: release the lease, and say why.

    Args:
        kept: attributes to write to the row with it, such as Stripe's error message.
    """

    def __init__(self, why: str, *, alarm: Cause | None = None, kept: Mapping[str, str | int] | None = None) -> None:
        super().__init__(why)
        self.why, self.alarm, self.kept = why, alarm, kept or {}


class Job[Row, Final](ABC):
    """One invocation's work on one claimed row.

    Args:
        deadline: epoch seconds, after which no further request to Stripe is begun.
    """

    def __init__(self, row: Row, instruments: Instruments, deadline: float) -> None:
        self.row = row
        """As it was last written."""
        self._instruments = instruments
        self._deadline = deadline

    @abstractmethod
    def run(self) -> Final:
        """Do what is to be done at Stripe. Raises Release, LeaseLost."""

    def _check_time(self) -> None:
        """Called before each request to Stripe."""
        if not self._has_time():
            raise Release("too little time left")

    def _has_time(self) -> bool:
        return self._instruments.clock() < self._deadline


@dataclass(frozen=True)
class Worker[Row: LeasedRow, Final: FinalState](ABC):
    """Works on the rows of one store."""

    store: LeasedTable[Row, Final]
    instruments: Instruments
    turn: Turn = field(default=AT_ONCE, kw_only=True)

    subject: ClassVar[str]
    """The prefix of its metrics: `Payment.SUCCEEDED`."""

    @abstractmethod
    def job(self, row: Row, *, deadline: float) -> Job[Row, Final]:
        """The work on this row."""

    def is_overdue(self, row: Row) -> bool:
        """Whether the row is unfinished for so long that a person has to see it."""
        return False

    def work(self, row: Row, *, deadline: float) -> Row | Unfinished:
        """Work on a claimed row.

        Args:
            deadline: epoch seconds, after which no further request to Stripe is begun.

        Returns:
            The row as it was finalized, or why it is not.
        """
        waited_seconds = self.turn.begin()
        # A turn comes early enough to leave the record all of its time.
        job = self.job(row, deadline=deadline + (waited_seconds or 0))
        try:
            if waited_seconds is None:
                raise Release("Stripe's limit is reached")
            final = job.run()
            finalized = self.store.finalize(job.row, final, now=self.instruments.now())
        except Release as release:
            return self._release(job.row, release)
        except LeaseLost:
            # The present owner sends the same requests under the same keys, and finalizes what Stripe answers. After a
            # cancellation request this worker is still the owner: the next claim, once its lease has expired, cancels.
            self.instruments.count("LeaseLost")
            self._log(job.row, "write refused: lease lost, or cancellation requested")
            return Unfinished("lease lost, or cancellation requested")
        self._report(finalized, final)
        return finalized

    def _release(self, row: Row, release: Release) -> Unfinished:
        overdue = Cause.OVERDUE if self.is_overdue(row) else None
        if overdue:
            self.instruments.count(f"{self.subject}Overdue")
        self.instruments.count(f"{self.subject}.UNKNOWN")
        self._log(row, f"{self.subject.lower()} not finished", alarm=release.alarm or overdue, why=release.why)
        try:
            self.store.release_lease(row, **release.kept)
        except LeaseLost:
            self.instruments.count("LeaseLost")
        return Unfinished(release.why)

    def _report(self, row: Row, final: Final) -> None:
        self.instruments.count(f"{self.subject}.{final.state}")
        self._log(
            row,
            f"{self.subject.lower()} finalized",
            alarm=final.alarm,
            state=final.state,
            code=final.code,
            stripe_request_id=final.stripe_request_id,
        )

    def _log(self, row: Row, message: str, *, alarm: Cause | None = None, **details: object) -> None:
        self.instruments.log(message, alarm=alarm, **{**row.log_fields, **details})
