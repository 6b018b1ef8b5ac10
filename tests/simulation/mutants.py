"""The protocol, broken on purpose in one place each: the simulation must catch every one of them."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

from charge_order.charge import ChargeOrder
from charge_order.ledger import LeaseLost
from charge_order.protocol import Answer, ChargeRow, FoundIntent, FrozenRequest, Reply
from onecharge.deliveries import BackOff, Disposition, Done, RetryAfter
from onecharge.events import OrderPlacedEvent
from onecharge.states import ChargeState
from tests.simulation.explore import Mutate
from tests.simulation.world import World


def no_condition_on_the_claim(world: World) -> None:
    world.ledger.conditional = False


def no_fencing(world: World) -> None:
    world.ledger.fenced = False


def lease_shorter_than_stripes_timeouts(world: World) -> None:
    world.charge_order = replace(world.charge_order, lease_seconds=1)


def dlq_after_three_receives(world: World) -> None:
    world.max_receive_count = 3


def _with_key(world: World, make: Callable[[str], str]) -> None:
    charge = world.stripe.charge
    world.stripe.charge = lambda request, key: charge(request, make(key))  # type: ignore[method-assign]


def key_with_a_random_part(world: World) -> None:
    numbers = itertools.count()
    _with_key(world, lambda key: f"{key}:{next(numbers)}")


def key_per_message_id(world: World) -> None:
    _with_key(world, lambda key: f"{key}:{world.current.message.id}")


def search_alone_proves_absence(world: World) -> None:
    def look(request: FrozenRequest, *, placed_at: int, appears_until: int, now: int) -> list[FoundIntent]:
        visible_until = now - world.stripe.search_lag_seconds
        return [
            each.found()
            for each in world.stripe.intents
            if each.request.order_id == request.order_id and each.created < visible_until
        ]

    world.stripe.look = look  # type: ignore[method-assign]


def claim_deleted_on_error(world: World) -> None:
    def hand_back(row: ChargeRow, *, look_first: bool, now: int) -> None:
        world.ledger.rows.pop((row.request.order_id, row.request.attempt), None)
        world.states.pop((row.request.order_id, row.request.attempt), None)

    world.ledger.hand_back = hand_back  # type: ignore[method-assign]


def _rewrite(mutant: type[ChargeOrder]) -> Mutate:
    def mutate(world: World) -> None:
        fields = world.charge_order.__dataclass_fields__
        world.charge_order = mutant(**{name: getattr(world.charge_order, name) for name in fields})

    return mutate


class _SettlesFirst(ChargeOrder):
    def _charge(self, event: OrderPlacedEvent, row: ChargeRow) -> Disposition:
        self.ledger.settle(row, ChargeState.SUCCEEDED, payment_intent_id=None, code=None, now=self._now())
        self.gateway.charge(row.request, row.idempotency_key)
        return Done()


class _NeverLooks(ChargeOrder):
    def _charge(self, event: OrderPlacedEvent, row: ChargeRow) -> Disposition:
        try:
            return self._settle(event, row, self.gateway.charge(row.request, row.idempotency_key))
        except LeaseLost:
            return BackOff()


class _ChargesWhatTheMessageSays(ChargeOrder):
    def _charge(self, event: OrderPlacedEvent, row: ChargeRow) -> Disposition:
        return super()._charge(event, replace(row, request=FrozenRequest.of(event.data)))


class _AcknowledgesDuplicates(ChargeOrder):
    def __call__(self, event: OrderPlacedEvent) -> Disposition:
        disposition = super().__call__(event)
        return Done() if isinstance(disposition, RetryAfter) else disposition


class _AcknowledgesUnknownOutcomes(ChargeOrder):
    def __call__(self, event: OrderPlacedEvent) -> Disposition:
        disposition = super().__call__(event)
        return Done() if isinstance(disposition, BackOff) else disposition


def _takes(answer: Answer, *, for_: Answer) -> Mutate:
    """One answer is taken for another."""

    class Mistaken(ChargeOrder):
        def _settle(self, event: OrderPlacedEvent, row: ChargeRow, reply: Reply) -> Disposition:
            taken = for_ if reply.answer is answer else reply.answer
            return super()._settle(event, row, replace(reply, answer=taken))

    return _rewrite(Mistaken)


class _NewKeyAfterAServerError(ChargeOrder):
    def _settle(self, event: OrderPlacedEvent, row: ChargeRow, reply: Reply) -> Disposition:
        if reply.answer is Answer.SERVER_ERROR:
            fresh = self.ledger.open_new_key(row, now=self._now())
            return super()._settle(event, fresh, self.gateway.charge(fresh.request, fresh.idempotency_key))
        return super()._settle(event, row, reply)


MUTANTS: Mapping[str, Mutate] = {
    "no condition on the claim": no_condition_on_the_claim,
    "no fencing": no_fencing,
    "key with a random part": key_with_a_random_part,
    "key per message id": key_per_message_id,
    "claim deleted on error": claim_deleted_on_error,
    "settled before it is charged": _rewrite(_SettlesFirst),
    "no freshness rule, no look": _rewrite(_NeverLooks),
    "lease shorter than Stripe's timeouts": lease_shorter_than_stripes_timeouts,
    "decline retried under the same key": _takes(Answer.DECLINED, for_=Answer.NO_ANSWER),
    "duplicates acknowledged under a live lease": _rewrite(_AcknowledgesDuplicates),
    "unknown outcomes acknowledged": _rewrite(_AcknowledgesUnknownOutcomes),
    "no answer taken for a decline": _takes(Answer.NO_ANSWER, for_=Answer.DECLINED),
    "a wrong API key taken for a decline": _takes(Answer.BAD_API_KEY, for_=Answer.DECLINED),
    "a 500 taken for a decline": _takes(Answer.SERVER_ERROR, for_=Answer.DECLINED),
    "a new key right after a 500": _rewrite(_NewKeyAfterAServerError),
    "search alone taken for proof": search_alone_proves_absence,
    "what the message says is charged": _rewrite(_ChargesWhatTheMessageSays),
    "to the DLQ after three receives": dlq_after_three_receives,
}
