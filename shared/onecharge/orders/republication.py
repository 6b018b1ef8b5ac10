"""When what waits for an outcome is published again, and how far republish has come; operators see both."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from onecharge.runtime.checkpoints import Checkpoint

DAY_SECONDS = 24 * 3600

FIRST_WAIT_SECONDS = 15 * 60
"""An order is paid within seconds; one that has waited this long is published again. It is not less than the payment
service's REEMIT_AFTER_SECONDS (payments/deliveries.py): an earlier duplicate has no outcome emitted again."""


def republications_due(waiting_seconds: float) -> int:
    """How often an item that has waited this long is to have been republished.

    After 15 minutes, again whenever that has doubled, and daily from the first day on: in an outage of Stripe every
    duplicate is one more request to Stripe.
    """
    if waiting_seconds < FIRST_WAIT_SECONDS:
        return 0
    doubled = int(min(waiting_seconds, DAY_SECONDS - 1) // FIRST_WAIT_SECONDS).bit_length()
    return doubled + int(waiting_seconds // DAY_SECONDS)


@dataclass(frozen=True, kw_only=True)
class RepublishCheckpoint(Checkpoint):
    """How far the present round through the shards of all sources has come. Times are whole epoch seconds."""

    job: ClassVar[str] = "republish"

    round_at: int
    """When the round began. Whether an item is due is judged by this time, however many runs the round takes."""
    round_before_at: int = 0
    """When the previous round began; 0 if there was none."""
    part: int = 0
    """The index of the shard that is being read, among the shards of all sources; their number once the round is
    completed."""
    after_entry: Mapping[str, str] | None = None
    """The last entry of that shard that was read: the cursor; None to begin with the oldest."""
