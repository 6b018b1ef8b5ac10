"""All workers together stay under Stripe's limit, and use it: their slots, the item they share, the waits."""

import random
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import Semaphore
from time import sleep
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from charge_order.app import handle
from local.alarm_evaluation import Definition, Sample, datapoints, state_of
from onecharge.contract.events import OrderPlacedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.instruments import Instruments
from onecharge.payments.stripe_limit import CONFIRM_AFTER_SECONDS, SharedRate, Slot, StripeLimit, Taken, Turns, take
from onecharge.payments.stripe_metrics import status_of, stripe_request
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.worker import Turn
from onecharge.runtime.aws import BATCH_SIZE
from onecharge.runtime.consumer import BackOff, Disposition, Done
from testing.builders import BOUNDS, T0, order
from testing.charge_harness import ChargeHarness
from testing.harness import load_intrinsics, load_template
from testing.limited_stripe import LATENCIES, Backlog, Design, Latency
from testing.silent import SILENT
from testing.simulation.dynamodb import MemoryDynamoDB

RESOURCES = load_template()["Resources"]
PROFILES = load_template()["Mappings"]["Profile"]
RATE = 23.75
WITHIN = 4.0


@dataclass
class Clock:
    """Each sleep is over at once, and as long as it was meant to be."""

    now: float = float(T0)
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class StoppedClock(Clock):
    """For records on threads of their own: their times do not add up."""

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@dataclass
class Workers:
    """Workers with one item; `ahead` is how far the next one's clock is wrong."""

    clock: Clock = field(default_factory=Clock)
    client: Any = field(default_factory=lambda: MemoryDynamoDB(keys={"limits": ("name",)}))
    counted: list[str] = field(default_factory=list)

    def rate(
        self, *, rate: float = RATE, ahead: float = 0, client: Any = None, kind: type[SharedRate] = SharedRate
    ) -> SharedRate:
        instruments = Instruments(lambda: self.clock.now + ahead, SILENT, self.counted.append)
        return kind(client or self.client, "limits", "charge_order", rate=rate, instruments=instruments)

    def turns(
        self,
        *,
        seconds_left: float,
        at_once: int = 0,
        gather_seconds: float = 0,
        rate: SharedRate | None = None,
        client: Any = None,
    ) -> Turns:
        """The turns of an invocation that begins. On one thread nobody waits for the others."""
        instruments = Instruments(lambda: self.clock.now, SILENT, self.counted.append)
        return Turns(
            rate or self.rate(client=client),
            instruments,
            at_once=at_once,
            begin_until=self.clock.now + seconds_left - 26,
            gather_seconds=gather_seconds,
            sleep=self.clock.sleep,
        )


@pytest.fixture
def workers() -> Workers:
    return Workers()


# ---------------------------------------------------------------- slots


@pytest.mark.parametrize("seed", range(20))
def test_no_second_has_more_slots_than_the_rate(seed: int) -> None:
    """Whatever comes when, after whatever idle time: in any second, not only in those that a clock counts."""
    chance = random.Random(seed)
    now = float(T0)
    taken = Taken((), free_at=0, at_once_until=0)
    slots: list[float] = []
    rate = chance.choice([7.125, RATE, 95.0])
    for _ in range(300):
        now += chance.choice([0, 0.01, 0.1, 0.4, 1.5]) * chance.random()
        count = chance.randint(1, BATCH_SIZE)
        taken = take(taken.free_at, taken.at_once_until, now=now, count=count, rate=rate, within_seconds=WITHIN)
        slots += taken.slots
    assert len(slots) > 300
    assert all(first <= second for first, second in pairwise(slots))
    fullest = max(len([other for other in slots if each <= other < each + 1]) for each in slots)
    assert fullest <= rate + 1  # A slot at the beginning of the second, and one at its end.


def test_what_is_idle_begins_at_once() -> None:
    """As many as a second has, one by one or in a batch; who comes then waits until it is made up for."""
    first = take(T0 - 60, now=T0, count=1, rate=RATE, within_seconds=WITHIN)
    assert first.slots == (T0,)
    second = take(first.free_at, first.at_once_until, now=T0, count=30, rate=RATE, within_seconds=WITHIN)
    assert second.slots[:23] == (T0,) * 23
    assert second.slots[23] == pytest.approx(T0 + 24 / RATE)


def test_after_a_short_idle_time_no_more_begins_at_once_than_it_would_have_had() -> None:
    """A tenth of a second makes room for two orders, not for a batch."""
    taken = take(T0 - 0.1, T0 - 5, now=T0, count=10, rate=RATE, within_seconds=WITHIN)
    assert [slot == T0 for slot in taken.slots].count(True) == 3


def test_a_slot_that_comes_too_late_is_not_taken() -> None:
    """Whoever comes next gets it."""
    taken = take(T0 + 3.9, now=T0, count=10, rate=RATE, within_seconds=WITHIN)
    assert len(taken.slots) == 3
    assert taken.free_at == pytest.approx(T0 + 3.9 + 3 / RATE)
    assert take(T0 + 5, now=T0, count=10, rate=RATE, within_seconds=WITHIN).free_at == T0 + 5


def test_a_clock_that_was_an_hour_wrong_stops_nobody() -> None:
    """An item that is further ahead than anybody takes slots is ignored."""
    taken = take(T0 + 3600, now=T0, count=10, rate=RATE, within_seconds=WITHIN)
    assert taken.slots[0] == T0
    assert taken.free_at < T0 + 1


# ---------------------------------------------------------------- the item


def test_workers_never_get_one_slot_twice(workers: Workers) -> None:
    """Each takes what comes after the others', whatever it knew before."""
    fleet = [workers.rate() for _ in range(8)]
    slots = [slot.begin_at for each in fleet for slot in each.take(10, until=workers.clock.now + WITHIN)]
    assert len(slots) == 80
    later = [slot for slot in slots if slot > T0]
    assert len(later) == len(set(later)) == 80 - 24


def test_a_race_for_the_item_is_lost_by_one(workers: Workers) -> None:
    """Another worker takes slots between the read and the write: the write is refused, and comes after."""

    class Racing(MemoryDynamoDB):
        def update_item(self, **given: Any) -> dict[str, Any]:
            if others:
                others.pop().take(10, until=workers.clock.now + WITHIN)
            return super().update_item(**given)

    workers.client = Racing(keys={"limits": ("name",)})
    others: list[SharedRate] = []
    mine, theirs = workers.rate(), workers.rate()
    mine.take(30, until=workers.clock.now + WITHIN)
    others.append(theirs)
    [slot] = mine.take(1, until=workers.clock.now + WITHIN)
    assert slot.begin_at > workers.clock.now + 39 / RATE


def test_an_item_that_cannot_be_written_stops_nobody(workers: Workers) -> None:
    """The limit saves work; without it Stripe's 429 is sent again, and nobody is charged twice."""

    class Down:
        exceptions = MemoryDynamoDB.exceptions

        def update_item(self, **_: Any) -> None:
            raise EndpointConnectionError(endpoint_url="https://dynamodb")

    assert workers.rate(client=Down()).take(10, until=workers.clock.now + WITHIN) == [Slot(T0, T0)] * 10
    assert workers.counted == ["StripeLimitUnreadable"]


def test_once_somebody_had_to_wait_all_workers_confirm_evenly_for_a_while(workers: Workers) -> None:
    """Also one whose own batch has no need to wait: what is confirmed late and at once would meet. Then none does."""
    fleet = [workers.rate() for _ in range(3)]
    waits: list[float] = []
    for each in fleet:
        [*_, slot] = each.take(10, until=workers.clock.now + WITHIN)
        waits.append(slot.confirm_at - slot.begin_at)
        workers.clock.now += 0.3
    assert waits == pytest.approx([0, 0, CONFIRM_AFTER_SECONDS])
    workers.clock.now += 2
    [slot] = fleet[0].take(1, until=workers.clock.now + WITHIN)
    assert (slot.begin_at, slot.confirm_at) == (workers.clock.now, workers.clock.now + CONFIRM_AFTER_SECONDS)
    workers.clock.now += 5
    [slot] = fleet[1].take(1, until=workers.clock.now + WITHIN)
    assert slot.confirm_at == slot.begin_at


# ---------------------------------------------------------------- the records of an invocation


def test_records_wait_for_their_slots_and_then_for_their_confirms(workers: Workers) -> None:
    """With the limit reached an order is confirmed at a fixed time after its slot, however fast its create was."""
    workers.rate().take(30, until=T0 + WITHIN)
    turn = workers.turns(seconds_left=30).turn()
    waited = turn.begin()
    workers.clock.now += 0.3  # The create.
    turn.confirm()
    until_slot, until_confirm = workers.clock.slept
    assert waited == until_slot > 0.2
    assert until_confirm == pytest.approx(CONFIRM_AFTER_SECONDS - 0.3)


def test_below_the_limit_nobody_waits(workers: Workers) -> None:
    """Neither for a slot nor for a confirm."""
    turns = workers.turns(seconds_left=30)
    for turn in [turns.turn() for _ in range(10)]:
        assert turn.begin() == 0
        turn.confirm()
    assert workers.clock.slept == []


def test_who_comes_too_late_has_no_turn(workers: Workers) -> None:
    """It is counted; the others of the invocation have theirs."""
    workers.rate().take(95, until=T0 + WITHIN)
    turns = workers.turns(seconds_left=30)
    waits = [turns.turn().begin() for _ in range(10)]
    assert 0 < waits.count(None) < 10
    assert workers.counted == ["StripeLimitReached"] * waits.count(None)


def test_a_slot_leaves_a_record_all_of_its_time(workers: Workers) -> None:
    """Whoever waits for a slot still has as long as a record takes at most, before the invocation ends."""
    workers.rate().take(60, until=T0 + WITHIN)
    turns = workers.turns(seconds_left=29)
    while turns.turn().begin() is not None:
        pass
    assert 0 < workers.clock.now - T0 <= 29 - 26


@dataclass
class CountingWrites:
    """DynamoDB, which counts writes; the first lasts so long."""

    client: Any
    during_the_first: Callable[[], object] = lambda: None
    writes: int = 0

    def __post_init__(self) -> None:
        self.exceptions = self.client.exceptions

    def update_item(self, **given: Any) -> dict[str, Any]:
        self.writes += 1
        if self.writes == 1:
            self.during_the_first()
        response: dict[str, Any] = self.client.update_item(**given)
        return response


def test_below_the_limit_nobody_waits_for_the_claims_of_others(workers: Workers) -> None:
    """The first record takes slots for all of its batch, in one write; the last one's claim lasts as long as it may."""
    dynamodb = CountingWrites(workers.client)
    turns = workers.turns(client=dynamodb, seconds_left=30, at_once=10, gather_seconds=30)
    with turns.turn() as late:
        assert [turns.turn().begin() for _ in range(9)] == [0] * 9
        assert late.begin() == 0
    assert dynamodb.writes == 1
    assert stored_slots(workers) == 10


def reach_the_limit(rate: SharedRate, workers: Workers) -> None:
    """So that the next slot is not at once, but soon."""
    rate.take(27, until=workers.clock.now + WITHIN)


def test_at_the_limit_a_batch_takes_the_slots_that_it_uses_in_one_write(workers: Workers) -> None:
    """Seven of ten want one, at different times; three are duplicates, or fail. Nobody has another's slot."""
    workers.clock = StoppedClock()
    dynamodb = CountingWrites(workers.client)
    rate = workers.rate(client=dynamodb)
    reach_the_limit(rate, workers)
    turns = workers.turns(rate=rate, seconds_left=30, at_once=10, gather_seconds=30)

    def work(number: int) -> float | None:
        with turns.turn() as turn:
            sleep(number / 100)
            if number in {2, 9}:
                return None
            if number == 5:
                raise ZeroDivisionError
            return turn.begin()

    with ThreadPoolExecutor(10) as threads:
        outcomes = [threads.submit(work, number) for number in range(10)]
    assert [each.exception() is not None for each in outcomes].count(True) == 1
    begun = [each.result() for each in outcomes if not each.exception()]
    assert len({seconds for seconds in begun if seconds is not None}) == 7
    assert dynamodb.writes == 2
    assert stored_slots(workers) == 27 + 7


def stored_slots(workers: Workers) -> int:
    """How many slots were taken since it was idle."""
    [item] = workers.client.scan(TableName="limits")["Items"]
    return round((int(item["free_at"]["N"]) / 1_000_000 - T0) * RATE)


def test_a_record_that_hangs_holds_the_others_up_for_a_moment(workers: Workers) -> None:
    """It decides nothing; the others take their slots without it, and it takes its own afterwards."""
    dynamodb = CountingWrites(workers.client)
    rate = workers.rate(client=dynamodb)
    reach_the_limit(rate, workers)
    turns = workers.turns(rate=rate, seconds_left=30, at_once=3, gather_seconds=0.01)
    with turns.turn() as late:
        with ThreadPoolExecutor(2) as threads:
            assert None not in list(threads.map(lambda _: turns.turn().begin(), range(2)))
        written = dynamodb.writes
        assert late.begin() is not None
    assert dynamodb.writes == written + 1


def seconds_waited(workers: Workers, fleet: list[SharedRate]) -> float:
    """By an order on average, in two minutes of 0.9 of the rate; each batch has five duplicates.

    Who has no slot in time waits for longer than all others.
    """
    chance = random.Random(1)
    waits: list[float] = []
    for step in range(600):
        orders = sum(chance.random() < 0.9 * RATE / 50 for _ in range(10))
        records = chance.sample([True] * orders + [False] * 5, orders + 5)
        turns = workers.turns(rate=fleet[step % len(fleet)], seconds_left=30, at_once=len(records))
        for is_order in records:
            with turns.turn() as turn:
                if is_order:
                    seconds = turn.begin()
                    waits.append(2 * WITHIN if seconds is None else seconds)
        workers.clock.now = T0 + (step + 1) / 5
    return statistics.mean(waits)


def test_what_is_taken_for_duplicates_is_no_orders_loss(workers: Workers) -> None:
    """Slots that nobody uses are of idle time: with nine tenths of the rate an order hardly waits."""
    workers.clock = StoppedClock()
    assert seconds_waited(workers, [workers.rate() for _ in range(4)]) < 0.3


@pytest.mark.parametrize("rate", [RATE, 95.0])
@pytest.mark.parametrize("load", [0.1, 0.2, 0.3])
def test_what_is_taken_for_duplicates_delays_no_order_far_below_the_limit(
    workers: Workers, rate: float, load: float
) -> None:
    """Nine of each batch: an order hardly waits, and the limit does not count as reached."""
    workers.clock = StoppedClock()
    chance = random.Random(1)
    fleet = [workers.rate(rate=rate) for _ in range(4)]
    waits: list[float] = []
    for _ in range(500):
        workers.clock.now += chance.expovariate(load * rate)
        turn = workers.turns(rate=chance.choice(fleet), seconds_left=30, at_once=10).turn()
        waits.append(turn.begin() or 0)
        turn.confirm()
    assert statistics.mean(waits) < 0.05
    assert max(workers.clock.slept, default=0) < CONFIRM_AFTER_SECONDS


def test_it_would_be_if_they_were_taken_at_the_limit_too(workers: Workers) -> None:
    """Without all_at_once the same orders wait for seconds."""
    workers.clock = StoppedClock()

    class ForAll(SharedRate):
        def take(self, count: int, *, until: float, all_at_once: bool = False) -> list[Slot]:
            return super().take(count, until=until)

    assert seconds_waited(workers, [workers.rate(kind=ForAll) for _ in range(4)]) > 3


def test_what_was_taken_for_a_claim_that_lasts_seconds_is_not_used(workers: Workers) -> None:
    """Its time has passed. Others have taken slots since: no second has more than the rate."""
    workers.clock = StoppedClock()
    late: list[Turns] = []
    for _ in range(5):
        turns = workers.turns(seconds_left=30, at_once=10)
        assert turns.turn().begin() == 0
        late += [turns] * 9
        workers.clock.now += 1
    waits = [turns.turn().begin() for turns in late]
    assert len([seconds for seconds in waits if seconds is not None and seconds < 1]) <= RATE + 1


def test_the_next_record_of_a_fifo_group_uses_no_slot_that_a_duplicate_left_long_ago(workers: Workers) -> None:
    """Records of a group come one after the other: the second, when the first has been to Stripe."""
    workers.clock = StoppedClock()
    turns = workers.turns(seconds_left=30, at_once=10)
    assert turns.turn().begin() == 0
    for _ in range(9):
        with turns.turn():
            pass
    workers.clock.now += 2
    workers.rate().take(30, until=workers.clock.now + WITHIN)
    assert turns.turn().begin() == pytest.approx(30 / RATE)


def test_what_is_wanted_while_a_write_lasts_is_taken_in_the_next(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the table is, a record never waits for more than one write beside its own."""
    wanted = Semaphore(0)

    def all_want() -> None:
        assert all(wanted.acquire(timeout=60) for _ in range(10))

    dynamodb = CountingWrites(workers.client, all_want)
    turns = workers.turns(client=dynamodb, seconds_left=30)
    decide = turns.decide

    def decide_and_say_so(*, wants: bool) -> None:
        decide(wants=wants)
        wanted.release()

    monkeypatch.setattr(turns, "decide", decide_and_say_so)
    with ThreadPoolExecutor(10) as threads:
        begun = [threads.submit(turns.turn().begin) for _ in range(10)]
        assert [each.result() for each in begun] == [0] * 10
    assert dynamodb.writes <= 2


def test_an_item_that_holds_anything_else_stops_nobody(workers: Workers) -> None:
    """Without its attributes, or with text in them: everybody begins at once, and it is counted."""
    for stored in ({}, {"free_at": {"S": "x"}}, {"free_at": {"N": "1.5"}}):
        workers.client.put_item(TableName="limits", Item={"name": {"S": "charge_order"}, **stored})
        assert len(workers.rate().take(3, until=T0 + WITHIN)) == 3


def test_once_the_item_is_right_again_the_limit_is_kept_again(workers: Workers) -> None:
    """By a worker, too, that has seen what it held before."""
    workers.client.put_item(TableName="limits", Item={"name": {"S": "charge_order"}, "free_at": {"S": "x"}})
    rate = workers.rate()
    rate.take(1, until=T0 + WITHIN)
    workers.client.delete_item(TableName="limits", Key={"name": {"S": "charge_order"}})
    slots = rate.take(30, until=T0 + WITHIN)
    assert slots[-1].begin_at > T0
    assert workers.counted == ["StripeLimitUnreadable"]


def test_a_clock_that_was_an_hour_ahead_delays_no_confirm(workers: Workers) -> None:
    """By it, the limit was reached in the future."""
    workers.rate(ahead=3600).take(30, until=T0 + 3600 + WITHIN)
    [slot] = workers.rate().take(1, until=T0 + WITHIN)
    assert slot.confirm_at == slot.begin_at


def test_a_table_that_answers_slowly_stops_nobody(workers: Workers) -> None:
    """Refused again and again, each time late: after a second in all, everybody begins."""

    class Slow:
        exceptions = workers.client.exceptions

        def update_item(self, **given: Any) -> None:
            workers.clock.now += 0.4
            stored = {"Item": {"free_at": {"N": str(int(workers.clock.now))}, "reached_at": {"N": "0"}}}
            raise self.exceptions.ConditionalCheckFailedException(stored, "UpdateItem")

    begun_at = workers.clock.now
    assert len(workers.rate(client=Slow()).take(3, until=T0 + WITHIN)) == 3
    assert workers.clock.now - begun_at < 2
    assert workers.counted == ["StripeLimitUnreadable"]


# ---------------------------------------------------------------- the protocol


@dataclass
class WaitsToConfirm:
    """A turn whose wait before the confirm does this."""

    wait: Callable[[], None]

    def begin(self) -> float | None:
        return 0

    def confirm(self) -> None:
        self.wait()


@dataclass
class NoTurn:
    """Stripe's limit is used up. Counts who asked."""

    asked: int = 0

    def begin(self) -> float | None:
        self.asked += 1
        return None

    def confirm(self) -> None:
        raise AssertionError


def deliver(charging: ChargeHarness, turn: Turn) -> Disposition:
    """One delivery of the order, with this turn."""
    charges = replace(charging.charges(), turn=turn)
    return handle(OrderPlacedEvent.of(order(), correlation_id="c"), charges)


def confirms(charging: ChargeHarness) -> list[str]:
    """The keys of all confirms."""
    return [key for operation, key in charging.stripe.requests if operation == "confirm"]


def test_without_a_turn_stripe_is_not_asked_and_the_lease_is_free() -> None:
    """The message backs off, and its next delivery charges the order under the same row."""
    charging = ChargeHarness()
    assert deliver(charging, NoTurn()) == BackOff()
    assert charging.stripe.requests == []
    assert charging.row["state"] == PaymentState.PENDING
    assert "lease_owner" not in charging.row
    assert charging.deliver() == Done()
    assert len(charging.stripe.intents) == 1


def test_a_duplicate_takes_no_turn() -> None:
    """Else what is sent again in an outage would use up the rate, and the backlog would grow for ever."""
    charging = ChargeHarness()
    assert charging.deliver() == Done()
    turn = NoTurn()
    assert [deliver(charging, turn) for _ in range(10)] == [Done()] * 10
    assert turn.asked == 0


def test_a_wait_for_the_turn_is_no_loss_of_time() -> None:
    """The deadline moves on with it: an order that waited is charged all the same."""
    charging = ChargeHarness()

    class Waits:
        def begin(self) -> float | None:
            charging.now += int(BOUNDS.record_seconds)
            return BOUNDS.record_seconds

        def confirm(self) -> None:
            pass

    assert deliver(charging, Waits()) == Done()
    assert charging.row["state"] == PaymentState.SUCCEEDED


def test_nothing_is_confirmed_past_the_deadline_after_a_wait() -> None:
    """The wait lies between the stored id and the confirm: the time is checked after it, and the row is released."""
    charging = ChargeHarness()

    def wait() -> None:
        charging.now += BOUNDS.record_seconds

    assert deliver(charging, WaitsToConfirm(wait)) == BackOff()
    assert confirms(charging) == []
    assert charging.row["state"] == PaymentState.PENDING
    assert "lease_owner" not in charging.row


def test_a_worker_that_loses_its_lease_while_it_waits_charges_nobody_twice() -> None:
    """Another worker, whose clock is ahead, claims the row and charges it: both confirm under one key."""
    charging = ChargeHarness()

    def wait() -> None:
        charging.ahead = BOUNDS.lease_seconds + 1
        assert charging.deliver() == Done()

    assert deliver(charging, WaitsToConfirm(wait)) == BackOff()
    assert len(confirms(charging)) == 2
    assert len(set(confirms(charging))) == 1
    assert charging.row["state"] == PaymentState.SUCCEEDED
    assert len(charging.stripe.intents) == 1


# ---------------------------------------------------------------- under the limit


@pytest.mark.parametrize(("limit", "workers"), [(25, 8), (100, 27)])
@pytest.mark.parametrize("latency", LATENCIES, ids=lambda each: each.name)
def test_all_workers_together_use_nine_tenths_of_the_limit_and_are_never_refused(
    limit: int, workers: int, latency: Latency
) -> None:
    """Two minutes in simulated time, under the stand-in's own limiter: no 429, and each order is received once."""
    outcome = Backlog(limit, workers, latency, Design.SHARED_SLOTS, orders=120 * limit).run()
    assert outcome.refused == 0
    assert outcome.receive_count_max == 1
    assert outcome.orders_per_second >= 0.9 * limit


@pytest.mark.parametrize("load", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("latency", LATENCIES, ids=lambda each: each.name)
def test_orders_that_come_over_time_are_hardly_ever_refused_either(load: float, latency: Latency) -> None:
    """Below the limit now somebody waits, now nobody: of 6,000 requests a handful is refused, or none."""
    outcome = Backlog(25, 8, latency, Design.SHARED_SLOTS, orders=3000, arriving_per_second=load * 25).run()
    assert outcome.refused <= 6
    assert outcome.receive_count_max <= 2


def test_with_too_many_workers_no_message_comes_near_the_dlq() -> None:
    """Most batches find no slot in time. They back off, and the limit is still kept."""
    outcome = Backlog(25, 40, LATENCIES[1], Design.SHARED_SLOTS, orders=3000).run()
    assert outcome.refused == 0
    assert 1 < outcome.receive_count_max < 20


def test_without_slots_the_same_workers_are_refused() -> None:
    """So the limiter of these tests refuses."""
    assert Backlog(25, 8, LATENCIES[1], Design.CONCURRENCY, orders=500).run().refused > 100
    assert Backlog(25, 8, LATENCIES[4], Design.UNEVEN_CONFIRMS, orders=3000).run().refused > 10


@pytest.mark.parametrize(
    ("endpoint", "account", "orders"),
    [(25, 100, 23.75), (25, 25, 7.125), (100, 400, 95), (100, 100, 28.5)],
)
def test_the_lower_limit_decides(endpoint: int, account: int, orders: float) -> None:
    """An order is two requests of the account's limit, and one of each endpoint's; 5 % is left free."""
    assert StripeLimit(endpoint, account, share_percent=60).rate(requests=2) == pytest.approx(orders)


@pytest.mark.parametrize(("a_minute", "state"), [(10, "ALARM"), (9, "OK")])
def test_five_minutes_of_429s_are_an_alarm(a_minute: int, state: str) -> None:
    """By the metric that each request to Stripe is counted with, in its dimension, and as CloudWatch evaluates it."""
    alarm = Definition.of(load_template("monitoring.yaml")["Resources"]["StripeRateLimited"]["Properties"])
    counted = stripe_request("POST", "https://api.stripe.com/v1/payment_intents", status_of(429), 0.02, None)
    assert alarm.metric == counted
    assert {name: str(value) for name, value in alarm.dimensions.items()} in counted.dimensions
    samples = [Sample(T0 + 60 * minute + n, 0.02) for minute in range(5) for n in range(a_minute)]
    assert state_of(alarm, datapoints(alarm, samples, now=T0 + 299)) == state
    assert state_of(alarm, datapoints(alarm, samples[: 4 * a_minute], now=T0 + 239)) == "OK"


# ---------------------------------------------------------------- the template


def test_all_functions_together_stay_under_the_account_limit() -> None:
    """Each has a share of its own, in percent."""
    shares = {
        name: int(variables["STRIPE_SHARE_PERCENT"])
        for name, each in RESOURCES.items()
        if "STRIPE_SHARE_PERCENT" in (variables := each["Properties"].get("Environment", {}).get("Variables", {}))
    }
    assert "ChargeOrderFunction" in shares
    assert sum(shares.values()) <= 100


@pytest.mark.parametrize("profile", ["live", "sandbox"])
def test_the_concurrency_uses_the_limit_and_its_waits_fit_into_an_invocation(profile: str) -> None:
    """Enough batches at a time if an order takes 2.2 s; and not so many that a batch waits for longer than it can."""
    given = PROFILES[profile]
    variables = load_intrinsics()["Resources"]["ChargeOrderFunction"]["Properties"]["Environment"]["Variables"]
    endpoint = load_template()["Parameters"]["StripeEndpointLimit"]["Default"]
    share = int(variables["STRIPE_SHARE_PERCENT"])
    batch_seconds = BATCH_SIZE / StripeLimit(endpoint, given["StripeAccountLimit"], share).rate(requests=2)
    in_flight = given["ChargeConcurrency"] * batch_seconds
    bounds = TimeBounds.of(given["ChargeTimeoutSeconds"])
    assert in_flight >= batch_seconds + 2.2
    assert in_flight - 0.25 <= given["ChargeTimeoutSeconds"] - bounds.record_seconds
