"""How far reconcile has come: its runs continue from here, and operators see whether it is behind."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from onecharge.runtime.checkpoints import Checkpoint

ROUND_OVERDUE_SECONDS = 3600
"""With rows or events this far behind, an order may be stuck without an alarm of its own: so this is one."""


@dataclass(frozen=True)
class FailedEvent:
    """An event that could not be applied. Stripe keeps events for 30 days: it is retrieved again."""

    event_id: str
    failed_at: int
    """When it failed first, in epoch seconds."""


@dataclass(frozen=True)
class AlarmedEvent:
    """An event that was applied, and raised an alarm: read again, it raises none."""

    event_id: str
    created: int


@dataclass(frozen=True, kw_only=True)
class ReconcileCheckpoint(Checkpoint):
    """How far the runs have come, in both directions. Times are whole epoch seconds."""

    job: ClassVar[str] = "reconcile"

    since: int
    """Stripe's events before this time have been read."""
    until: int
    """The events from `since` up to before this time are being read, the newest first; equal to it: none are."""
    round_started_at: int
    """When the present round through the unfinished rows began."""
    round_completed_at: int
    """When the last round was completed."""
    webhooks_expected_since: int = 0
    """When the first run was: an endpoint at Stripe is made with the stack, not before."""
    after_event: str | None = None
    """The last event that was read: the cursor of the list."""
    newest_events: tuple[int, ...] = ()
    """When Stripe created the newest events that were read: SILENT_EVENTS distinct times, the oldest first."""
    failed: tuple[FailedEvent, ...] = ()
    """Events that could not be applied, the least recently tried first."""
    alarmed: tuple[AlarmedEvent, ...] = ()
    """Those of the last hour that raised an alarm: what no row can record would be told in every reading."""
    shard: int = 0
    """The shard of the index that the present round is in."""
    after_row: dict[str, Any] | None = None
    """The index key of the shard's last row that was visited: the cursor; None to begin at its oldest."""

    @property
    def is_between_rounds(self) -> bool:
        """Whether the last round is completed, and no row of the next was visited."""
        return self.shard == 0 and self.after_row is None

    def reading_since(self, since: int) -> Self:
        """The same, with Stripe's events to be read from then on, also those that have raised an alarm."""
        return replace(self, since=since, until=since, after_event=None, alarmed=())

    @classmethod
    def first(cls, *, since: int, now: int) -> Self:
        """Before the first run."""
        return cls(since=since, until=since, round_started_at=now, round_completed_at=now, webhooks_expected_since=now)
