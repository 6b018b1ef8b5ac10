"""Stripe's rate limit: when a worker may begin, so that all workers together stay under it.

    records that have claimed their rows ─► one write to the function's item ─► each waits for its slot ─► Stripe
                                            (until when its rate is given away)

A slot is a time. The shared item knows how many workers there are without counting them: whoever takes slots moves its
time on, so the next worker's slots come after. The time lies in the past while there is nothing to wait for.

At the limit only who has claimed a row takes a slot: a duplicate takes none. Otherwise what republish sends again in an
outage would use up the rate, and the backlog would grow for ever. Far below it, slots for a whole batch are taken at
once, and what duplicates leave of them is lost to nobody.

Nothing about money depends on this. Who has no slot releases the lease and waits in the queue; a request that comes too
early is answered 429, which Stripe does not execute, and is sent again under its key (docs/protocol.md). If the item
cannot be read or written within a second, everybody begins at once.

Source: Stripe documentation, "Rate limits": requests per second of an account, and of each endpoint; an endpoint is one
operation, such as POST /v1/payment_intents, whatever the id in its path.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Condition, Lock
from typing import TYPE_CHECKING, Self

from onecharge.payments.instruments import Instruments
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.aws import error_code
from onecharge.runtime.dynamodb import expression_values, from_item, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

HEADROOM = 0.95
"""How much of the limit is used: the rest is for requests that overtake one another on their way to Stripe."""

CONFIRM_AFTER_SECONDS = 1.2
"""When the limit is reached, how long after its slot an order is confirmed, or later if its create took longer.

Creates leave evenly, but come back unevenly: confirmed as they come, a second would have more confirms than creates.
Longer than nearly every create, so that confirms leave as evenly. Below the limit nobody waits."""

_WAIT_SECONDS = 0.25
"""Who waits for longer has reached the limit. Less is chance: two orders that come within a moment."""
_REACHED_SECONDS = 5.0
"""For how long the limit then counts as reached: what is confirmed late and what is confirmed at once would meet."""
_IDLE_SECONDS = 1.0
"""How much of an idle time is made up for: what was not used in the last second may be used at once."""
_AHEAD_MAX_SECONDS = 6.0
"""Nobody takes slots so far ahead: an item that says so was written by a clock that was wrong, and is ignored. A slot
leaves a record all of its time, so it is within the 4 seconds of an invocation that records do not need."""
_TRIES = 8
"""How often slots are taken anew that another worker has taken meanwhile."""
_TAKE_SECONDS = 1.0
"""How long that may last in all."""
_GATHER_SECONDS = 0.05
"""How long the first record of a batch that wants a slot waits for the others. Longer than a claim usually takes."""
_KEPT_SECONDS = 0.25
"""For how long slots are kept for records that may want one yet. Longer than a claim over a new connection takes; so
short that what begins so late fits beside the slots that others have taken since."""
_MICROSECONDS = 1_000_000


# ---------------------------------------------------------------- the arithmetic


@dataclass(frozen=True)
class StripeLimit:
    """Stripe's limits of the account, and how much of them one function has."""

    endpoint_per_second: int
    account_per_second: int
    share_percent: int
    """Of the account's limit."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "StripeLimit":
        """Reads STRIPE_ENDPOINT_LIMIT, STRIPE_ACCOUNT_LIMIT and STRIPE_SHARE_PERCENT."""
        return cls(
            int(environment["STRIPE_ENDPOINT_LIMIT"]),
            int(environment["STRIPE_ACCOUNT_LIMIT"]),
            int(environment["STRIPE_SHARE_PERCENT"]),
        )

    def rate(self, *, requests: int) -> float:
        """How much work all workers of the function begin in a second, if each piece makes so many requests.

        Of these, one at most is to the same endpoint.
        """
        share = self.account_per_second * self.share_percent / 100
        return HEADROOM * min(self.endpoint_per_second, share / requests)


@dataclass(frozen=True)
class Taken:
    """Slots, and until when the rate is given away with them. All times are epoch seconds."""

    slots: tuple[float, ...]
    free_at: float
    at_once_until: float


def take(
    free_at: float, at_once_until: float = 0, *, now: float, count: int, rate: float, within_seconds: float
) -> Taken:
    """Take the next slots, as many of `count` as begin within this time.

    A slot is due when all slots before it have had their time. After an idle time, slots that are due in the next
    seconds (as many seconds as were idle, at most _IDLE_SECONDS) begin at once instead. In no second begin more than
    `rate` all the same: who begins early leaves the time in which it was due to nobody else.

    Args:
        free_at: until when the rate was given away.
        at_once_until: slots that are due before this time begin at once.
    """
    if free_at - now > _AHEAD_MAX_SECONDS:
        free_at = at_once_until = now
    if free_at < now:
        free_at, at_once_until = now, now + min(_IDLE_SECONDS, now - free_at)
    due = [free_at + index / rate for index in range(count)]
    slots = [now if at < at_once_until else at for at in due]
    in_time = [slot for slot in slots if slot <= now + within_seconds]
    return Taken(tuple(in_time), free_at + len(in_time) / rate, at_once_until)


# ---------------------------------------------------------------- the shared item


@dataclass(frozen=True)
class Slot:
    """When one record may begin; `confirm_at` is when its order may be confirmed. Epoch seconds."""

    begin_at: float
    confirm_at: float


@dataclass(frozen=True)
class _Item:
    """What workers share. Times are in microseconds since 1970, since DynamoDB's numbers are read as integers."""

    free_at: int = 0
    at_once_until: int = 0
    reached_at: int = 0
    """When the limit was reached last."""


class SharedRate:
    """One function's rate, shared by its workers through one item of a table (key `name`)."""

    def __init__(
        self, client: "DynamoDBClient", table: str, name: str, *, rate: float, instruments: Instruments
    ) -> None:
        self._client, self._table, self._name = client, table, name
        self._rate, self._instruments = rate, instruments
        self._seen = _Item()
        """The item as this worker last saw it. Usually another worker has moved it on."""

    @classmethod
    def of(
        cls,
        environment: Mapping[str, str],
        name: str,
        *,
        requests: int,
        client: "DynamoDBClient",
        instruments: Instruments,
    ) -> Self:
        """The rate of the function of this name, whose work takes so many requests. Reads STRIPE_LIMIT_TABLE, and what
        StripeLimit reads.

        Args:
            client: an impatient one (runtime/aws.py): a table that does not answer is not waited for.
        """
        rate = StripeLimit.of(environment).rate(requests=requests)
        return cls(client, environment["STRIPE_LIMIT_TABLE"], name, rate=rate, instruments=instruments)

    def turns(self, at_once: int, *, seconds_left: float, bounds: TimeBounds) -> "Turns":
        """The turns of a batch, so many of whose records are handled at once; its invocation has so much time left."""
        until = self._instruments.clock() + max(0.0, seconds_left - bounds.record_seconds)
        return Turns(self, self._instruments, at_once=at_once, begin_until=until)

    def take(self, count: int, *, until: float, all_at_once: bool = False) -> list[Slot]:
        """The slots of so many pieces of work; fewer if not all of them begin until then (epoch seconds).

        One request while this worker is alone, two while others work too.

        Args:
            all_at_once: none at all, unless each of them begins at once, and as many could after them.
        """
        try:
            return self._take(count, until, all_at_once)
        except Exception as error:  # Whatever is wrong with the item or the table: orders do not wait for it.
            self._seen = _Item()  # What was seen may be what is wrong.
            self._instruments.count("StripeLimitUnreadable")
            self._instruments.logger.warning(
                "Stripe's limit is not kept: its item cannot be written", extra={"error": error_code(error)}
            )
            now = self._instruments.clock()
            return [Slot(now, now)] * count

    def _take(self, count: int, until: float, all_at_once: bool) -> list[Slot]:
        begun_at = self._instruments.clock()
        for _ in range(_TRIES):
            now, seen = self._instruments.clock(), self._seen
            if now - begun_at > _TAKE_SECONDS:
                raise TimeoutError
            within_seconds = max(0.0, until - now)
            taken = take(
                seen.free_at / _MICROSECONDS,
                seen.at_once_until / _MICROSECONDS,
                now=now,
                count=count,
                rate=self._rate,
                within_seconds=within_seconds,
            )
            if all_at_once and taken.free_at + count / self._rate > taken.at_once_until:
                return []
            reaches = len(taken.slots) < count or taken.slots[-1] > now + _WAIT_SECONDS
            reached_at = now if reaches else seen.reached_at / _MICROSECONDS
            times = (taken.free_at, taken.at_once_until, reached_at)
            if self._write(_Item(*(round(at * _MICROSECONDS) for at in times))):
                confirm_after = CONFIRM_AFTER_SECONDS if abs(now - reached_at) < _REACHED_SECONDS else 0
                return [Slot(slot, slot + confirm_after) for slot in taken.slots]
        return []

    def _write(self, item: _Item) -> bool:
        """Whether the item was as it was last seen; otherwise it is seen now."""
        try:
            self._client.update_item(
                TableName=self._table,
                Key=to_item({"name": self._name}),
                UpdateExpression="SET free_at = :free_at, at_once_until = :at_once_until, reached_at = :reached_at",
                ConditionExpression="attribute_not_exists(free_at) OR free_at = :seen",
                ExpressionAttributeValues=expression_values(
                    free_at=item.free_at,
                    at_once_until=item.at_once_until,
                    reached_at=item.reached_at,
                    seen=self._seen.free_at,
                ),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self._client.exceptions.ConditionalCheckFailedException as refused:
            stored = from_item(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD
            self._seen = _Item(stored["free_at"], stored.get("at_once_until", 0), stored.get("reached_at", 0))
            return False
        self._seen = item
        return True


# ---------------------------------------------------------------- the records of one batch


class Turns:
    """The slots of one batch, which its records take on several threads, each once it has its lease.

    A batch takes its slots in one write. The first record that wants one takes slots for all records that may want one
    yet, if all of them can begin at once, and as many of others: below the limit nobody waits for another's claim. What
    a duplicate then leaves is of an idle time, and nobody misses it. Else the first record waits a moment, until each
    of the others wants one too or has ended without: at the limit no slot is taken that is not used. Who comes later
    than that, or long after the slots were taken, takes its own.

    Args:
        at_once: how many of the batch's records are handled at the same time, and can wait for one another.
        begin_until: epoch seconds; who begins later could be cut off halfway.
        gather_seconds: how long the first record waits for the others, at most.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        rate: SharedRate,
        instruments: Instruments,
        *,
        at_once: int,
        begin_until: float,
        gather_seconds: float = _GATHER_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._instruments, self._sleep = rate, instruments, sleep
        self._begin_until, self._gather_seconds = begin_until, gather_seconds
        self._undecided = at_once
        self._wanted = 0
        """How many records want a slot, and have none."""
        self._decision, self._taking = Condition(), Lock()
        self._slots: deque[Slot | None] = deque()
        """Those that are taken, and None for each that was wanted and is too far away."""
        self._taken_at = 0.0

    def turn(self) -> "StripeTurn":
        """The turn of one record; to be entered, and left when the record has ended."""
        return StripeTurn(self)

    def decide(self, *, wants: bool) -> None:
        """One more record wants a slot, or has ended without."""
        with self._decision:
            self._undecided -= 1
            self._wanted += wants
            self._decision.notify_all()

    def take(self) -> Slot | None:
        """A slot of its own for whoever wants one; None if there is none in time."""
        with self._taking:
            if self._instruments.clock() - self._taken_at > _KEPT_SECONDS:
                self._slots.clear()
            if not self._slots:
                self._slots.extend(self._taken())
                self._taken_at = self._instruments.clock()
            slot = self._slots.popleft()
            with self._decision:
                self._wanted -= 1
        if slot is None:
            self._instruments.count("StripeLimitReached")
        return slot

    def _taken(self) -> list[Slot | None]:
        """The slots of all records that want one and have none, or may want one yet."""
        with self._decision:
            undecided, wanted = self._undecided, self._wanted
        if undecided > 0:
            slots = self._rate.take(wanted + undecided, until=self._begin_until, all_at_once=True)
            if slots:
                return [*slots]
        with self._decision:
            self._decision.wait_for(lambda: self._undecided <= 0, timeout=self._gather_seconds)
            wanted = self._wanted
        slots = self._rate.take(wanted, until=self._begin_until)
        return [*slots, *[None] * (wanted - len(slots))]

    def wait_until(self, at: float, *, seconds_max: float) -> float:
        """Returns for how many seconds it has waited: no longer than the maximum, whatever the clock does meanwhile."""
        seconds = max(0.0, min(at - self._instruments.clock(), seconds_max))
        if seconds > 0:
            self._sleep(seconds)
        return seconds


class StripeTurn:
    """One record's turn at Stripe, as payments/worker.py has it. Begun once, by one thread."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._is_decided = False
        self._confirm_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._decide(wants=False)

    def begin(self) -> float | None:
        self._decide(wants=True)
        slot = self._turns.take()
        if slot is None:
            return None
        self._confirm_at = slot.confirm_at
        return self._turns.wait_until(slot.begin_at, seconds_max=_AHEAD_MAX_SECONDS)

    def confirm(self) -> None:
        self._turns.wait_until(self._confirm_at, seconds_max=CONFIRM_AFTER_SECONDS)

    def _decide(self, *, wants: bool) -> None:
        if not self._is_decided:
            self._is_decided = True
            self._turns.decide(wants=wants)
