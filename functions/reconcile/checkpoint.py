"""What a run of the reconciliation leaves to the next: how far it has come, in both directions."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from onecharge.runtime.checkpoints import Checkpoint


@dataclass(frozen=True)
class FailedEvent:
    """An event that could not be handled. Stripe keeps events for 30 days: it is retrieved again."""

    event_id: str
    attempts: int = 1


@dataclass(frozen=True, kw_only=True)
class ReconcileCheckpoint(Checkpoint):
    """How far the reconciliation of events and rows has come. Times are whole epoch seconds."""

    job: ClassVar[str] = "reconcile"

    since: int
    """Stripe's events before this time have been read."""
    until: int
    """The events from `since` up to before this time are being read, the newest first; equal to it: none are."""
    round_started_at: int
    """When the present round through the unfinished rows began."""
    round_completed_at: int
    """When the last round was completed."""
    after_event: str | None = None
    """The last event that was read: the cursor of the list."""
    failed: tuple[FailedEvent, ...] = ()
    """Events that could not be handled, the least recently tried first."""
    shard: int = 0
    """The shard of the index that the present round is in."""
    after_row: dict[str, Any] | None = None
    """The index key of the shard's last row that was visited: the cursor; None to begin at its oldest."""

    again_before: int = 0
    """After a restore: events from before this time are handled though they were processed. The rows may be older."""

    expects_webhooks_since: int = 0
    """When the first run was: an endpoint at Stripe is made with the stack, not before."""
    missed_in_a_row: int = 0
    """How many of the events that were read last never came here as webhooks."""

    @property
    def is_between_rounds(self) -> bool:
        """Whether the last round is completed, and no row of the next was visited."""
        return self.shard == 0 and self.after_row is None

    def again_since(self, since: int, *, now: int) -> Self:
        """To read Stripe's events again from then on, and to handle all of them up to now."""
        return replace(self, since=since, until=since, after_event=None, again_before=now)

    @classmethod
    def first(cls, *, since: int, now: int) -> Self:
        """Before the first run."""
        return cls(
            since=since,
            until=since,
            round_started_at=now,
            round_completed_at=now,
            expects_webhooks_since=now,
        )
