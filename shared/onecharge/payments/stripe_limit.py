"""Stripe's rate limit: when a worker may begin, so that all workers together stay under it.

    a batch of 10 ─► one write to the function's item ─► 10 slots ─► each record waits for its slot, and is then claimed
                     (until when its rate is given away)

A slot is a time. The shared item knows how many workers there are without counting them: whoever takes slots moves its
time on, so the next worker's slots come after. The time lies in the past while there is nothing to wait for.

Nothing about money depends on this. Who has no slot waits in the queue; a request that comes too early is answered 429,
which Stripe does not execute, and is sent again under its key (docs/protocol.md). If the item cannot be read or
written, everybody begins at once.

Source: Stripe documentation, "Rate limits": requests per second of an account, and of each endpoint; an endpoint is one
operation, such as POST /v1/payment_intents, whatever the id in its path.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from onecharge.payments.instruments import Instruments
from onecharge.runtime.consumer import BackOff, Disposition
from onecharge.runtime.dynamodb import expression_values, from_item, to_item

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext
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
_AHEAD_MAX_SECONDS = 10.0
"""Nobody takes slots so far ahead: an item that says so was written by a clock that was wrong, and is ignored."""
_TRIES = 8
"""How often slots are taken anew that another worker has taken meanwhile."""
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


def take(free_at: float, *, now: float, count: int, rate: float, within_seconds: float) -> Taken:
    """Take the next slots, as many of `count` as begin within this time.

    In no second begin more than `rate`: not even if what was idle is made up for, since the slots after that begin as
    much later.

    Args:
        free_at: until when the rate was given away.
    """
    if free_at - now > _AHEAD_MAX_SECONDS:
        free_at = now
    at_once = int(min(_IDLE_SECONDS, max(0.0, now - free_at)) * rate)
    begin = max(free_at, now)
    slots = [begin if index < at_once else begin + index / rate for index in range(count)]
    in_time = [slot for slot in slots if slot <= now + within_seconds]
    return Taken(tuple(in_time), begin + len(in_time) / rate if in_time else free_at)


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
        client: "DynamoDBClient",
        name: str,
        *,
        requests: int,
        instruments: Instruments,
    ) -> "SharedRate":
        """The rate of the function of this name, whose work takes so many requests. Reads STRIPE_LIMIT_TABLE, and what
        StripeLimit reads.
        """
        rate = StripeLimit.of(environment).rate(requests=requests)
        return cls(client, environment["STRIPE_LIMIT_TABLE"], name, rate=rate, instruments=instruments)

    def take(self, count: int, *, within_seconds: float) -> list[Slot]:
        """The slots of so many pieces of work; fewer if not all of them begin within this time.

        One request while this worker is alone, two while others work too.
        """
        try:
            return self._take(count, within_seconds)
        except (BotoCoreError, ClientError) as error:
            self._instruments.count("StripeLimitUnreadable")
            self._instruments.logger.warning(
                "Stripe's limit is not kept: its item cannot be written", extra={"error": type(error).__name__}
            )
            now = self._instruments.clock()
            return [Slot(now, now)] * count

    def _take(self, count: int, within_seconds: float) -> list[Slot]:
        for _ in range(_TRIES):
            now, seen = self._instruments.clock(), self._seen
            taken = take(
                seen.free_at / _MICROSECONDS, now=now, count=count, rate=self._rate, within_seconds=within_seconds
            )
            reaches = len(taken.slots) < count or taken.slots[-1] > now + _WAIT_SECONDS
            reached_at = now if reaches else seen.reached_at / _MICROSECONDS
            if self._write(_Item(round(taken.free_at * _MICROSECONDS), round(reached_at * _MICROSECONDS))):
                confirm_after = CONFIRM_AFTER_SECONDS if now - reached_at < _REACHED_SECONDS else 0
                return [Slot(slot, slot + confirm_after) for slot in taken.slots]
        return []

    def _write(self, item: _Item) -> bool:
        """Whether the item was as it was last seen; otherwise it is seen now."""
        try:
            self._client.update_item(
                TableName=self._table,
                Key=to_item({"name": self._name}),
                UpdateExpression="SET free_at = :free_at, reached_at = :reached_at",
                ConditionExpression="attribute_not_exists(free_at) OR free_at = :seen",
                ExpressionAttributeValues=expression_values(
                    free_at=item.free_at, reached_at=item.reached_at, seen=self._seen.free_at
                ),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self._client.exceptions.ConditionalCheckFailedException as refused:
            stored = from_item(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD
            self._seen = _Item(stored["free_at"], stored["reached_at"])
            return False
        self._seen = item
        return True


# ---------------------------------------------------------------- a batch and its slots


class Batches(Protocol):
    """What consumes the batches of a queue: runtime.consumer.Consumer."""

    def consume(self, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse": ...


class Turns:
    """The slots of one invocation at a time, which its records take one by one, on several threads.

    Args:
        record_seconds: how long one record takes at most: a record begins only if so much is left of the invocation.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        rate: SharedRate,
        instruments: Instruments,
        *,
        record_seconds: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._instruments, self._sleep = rate, instruments, sleep
        self._record_seconds = record_seconds
        self._slots: deque[Slot] = deque()

    def take(self, count: int, *, seconds_left: float) -> None:
        """Take the slots of a batch of so many records, in an invocation with so much time left."""
        self._slots = deque(self._rate.take(count, within_seconds=max(0.0, seconds_left - self._record_seconds)))

    def in_turn(self, work: Callable[[Callable[[], None]], Disposition]) -> Disposition:
        """Wait for the next slot, and work. Without one the message goes back to its queue, unclaimed.

        It backs off as in an outage, so that its receive count stays far from maxReceiveCount.

        Args:
            work: gets what waits until a confirm may be sent.
        """
        try:
            slot = self._slots.popleft()
        except IndexError:
            self._instruments.count("StripeLimitReached")
            return BackOff()
        self._wait_until(slot.begin_at, seconds_max=_AHEAD_MAX_SECONDS)
        return work(lambda: self._wait_until(slot.confirm_at, seconds_max=CONFIRM_AFTER_SECONDS))

    def _wait_until(self, at: float, *, seconds_max: float) -> None:
        seconds = min(at - self._instruments.clock(), seconds_max)  # Whatever the clock does meanwhile.
        if seconds > 0:
            self._sleep(seconds)


@dataclass(frozen=True)
class PacedConsumer:
    """A consumer whose records call `Turns.in_turn`."""

    consumer: Batches
    turns: Turns

    def consume(self, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
        """Process a batch, its records in their slots; returns the partial batch response."""
        self.turns.take(len(event["Records"]), seconds_left=context.get_remaining_time_in_millis() / 1000)
        return self.consumer.consume(event, context)
