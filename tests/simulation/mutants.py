"""The protocol, broken on purpose in one place each: the simulation must catch every one of them."""

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import stripe
from cancel_charge.cancel import CancelCharge
from onecharge.payments.ledger import Claim, Ledger
from onecharge.payments.settling import Settler

from charge_order.charge import ChargeOrder
from onecharge.deliveries import BackOff, Disposition, Done, RetryAfter
from onecharge.events import OrderPlacedEvent
from onecharge.payments.leases import LeaseLost
from onecharge.payments.protocol import Answer, ChargeRow, FoundIntent, FrozenRequest, Reply
from onecharge.payments.stripe_gateway import StripeGateway, Told, ToldOfCharge
from onecharge.payments.time_bounds import KEY_HORIZON_SECONDS, SEARCH_LAG_SECONDS
from onecharge.states import PaymentState
from receive_stripe_event.receive import OUTAGES, ReceiveStripeEvent
from tests.simulation.explore import Mutate
from tests.simulation.world import World


def no_condition_on_the_claim(world: World) -> None:
    world.dynamodb.ignored_conditions.append(
        "attribute_not_exists(order_id) OR (#state = :claimed AND lease_expires_at <= :now)"
    )


def no_lease(world: World) -> None:
    world.dynamodb.ignored_conditions.append("AND lease_expires_at <= :now")


def no_fencing(world: World) -> None:
    world.dynamodb.ignored_conditions.append("AND fencing_token = :ours")


def no_check_of_the_attempt_before(world: World) -> None:
    world.dynamodb.ignored_conditions.append("#state = :declined")


def lease_shorter_than_stripes_timeouts(world: World) -> None:
    world.service.charge_order = replace(world.service.charge_order, lease_seconds=1)


def dlq_after_three_receives(world: World) -> None:
    world.max_receive_count = 3


def _replace(world: World, name: str, mutant: Any) -> None:
    world.service.charge_order = replace(world.service.charge_order, **{name: mutant})


def _with_key(world: World, make: Callable[[str], str]) -> None:
    class OtherKeys(StripeGateway):
        def charge(self, request: FrozenRequest, idempotency_key: str) -> Reply:
            return super().charge(request, make(idempotency_key))

    _replace(world, "gateway", OtherKeys(world.service.charge_order.gateway.client))


def key_with_a_random_part(world: World) -> None:
    numbers = itertools.count()
    _with_key(world, lambda key: f"{key}:{next(numbers)}")


def key_per_message_id(world: World) -> None:
    _with_key(world, lambda key: f"{key}:{world.current.message.id if world.current else None}")


def search_alone_proves_absence(world: World) -> None:
    class Searching(StripeGateway):
        def look(self, request: FrozenRequest, **times: int) -> list[FoundIntent]:
            # Long after the charge could still appear, as if search did not lag.
            return super().look(request, placed_at=times["now"], appears_until=0, now=times["now"])

    _replace(world, "gateway", Searching(world.service.charge_order.gateway.client))


def list_of_one_hour(world: World) -> None:
    class ShortList(StripeGateway):
        def look(self, request: FrozenRequest, *, placed_at: int, appears_until: int, now: int) -> list[FoundIntent]:
            within = max(placed_at, now - SEARCH_LAG_SECONDS)
            return super().look(request, placed_at=within, appears_until=appears_until, now=now)

    _replace(world, "gateway", ShortList(world.service.charge_order.gateway.client))


def claim_deleted_on_error(world: World) -> None:
    class Deleting(Ledger):
        def hand_back(self, row: ChargeRow, *, look_first: bool, now: int) -> None:
            self.client.delete_item(TableName=self.table, Key=self._key(row.request))

    _replace(
        world, "ledger", Deleting(world.service.charge_order.ledger.client, world.service.charge_order.ledger.table)
    )


def claim_read_back_blindly(world: World) -> None:
    """A later attempt believes the row that it reads after its transaction, whosever it is by then."""

    class Believing(Ledger):
        def _claim_after_decline(self, request: FrozenRequest, update: Any, **times: int) -> Claim:
            return super()._claim_after_decline(request, update, now=times["now"], lease_expires_at=_Anything())

    _replace(
        world, "ledger", Believing(world.service.charge_order.ledger.client, world.service.charge_order.ledger.table)
    )


class _Anything(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def _rewrite(mutant: type[ChargeOrder]) -> Mutate:
    def mutate(world: World) -> None:
        fields = world.service.charge_order.__dataclass_fields__
        world.service.charge_order = mutant(**{name: getattr(world.service.charge_order, name) for name in fields})

    return mutate


class _SettlesFirst(ChargeOrder):
    def _charge(self, event: OrderPlacedEvent, row: ChargeRow) -> Disposition:
        self.ledger.settle(row, PaymentState.SUCCEEDED, payment_intent_id=None, code=None, now=self._now())
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


class _OpensNewKeysAtOnce(ChargeOrder):
    """Nothing found is taken for proof, without the grace time."""

    def _look_first(self, event: OrderPlacedEvent, row: ChargeRow) -> Disposition:
        long_ago = row.placed_at - 10 * KEY_HORIZON_SECONDS
        return super()._look_first(event, replace(row, looking_since=long_ago))


class _NewKeyAfterAServerError(ChargeOrder):
    def _settle(self, event: OrderPlacedEvent, row: ChargeRow, reply: Reply) -> Disposition:
        if reply.answer is Answer.SERVER_ERROR:
            fresh = self.ledger.open_new_key(row, now=self._now())
            return super()._settle(event, fresh, self.gateway.charge(fresh.request, fresh.idempotency_key))
        return super()._settle(event, row, reply)


def failed_3d_secure_not_canceled(world: World) -> None:
    class Leaving(StripeGateway):
        def cancel(self, payment_intent_id: str) -> FoundIntent:
            found = self.retrieve(payment_intent_id)
            assert found is not None
            return replace(found, status="canceled")

    _replace(world, "gateway", Leaving(world.service.charge_order.gateway.client))


def cancels_without_a_look(world: World) -> None:
    class Blind(CancelCharge):
        def _after_look(self, row: ChargeRow) -> PaymentState:
            return self._settle_canceled(row)

    world.service.canceller = Blind


def cancel_gives_the_key_up(world: World) -> None:
    """What was not found is looked for from then on, though Stripe may have no answer stored under the key."""

    class GivingUp(CancelCharge):
        def _after_look(self, row: ChargeRow) -> PaymentState:
            state = super()._after_look(row)
            if state is PaymentState.CLAIMED:
                now = self._now()
                again = self.ledger.take_over(replace(row, lease_expires_at=now), now=now, lease_seconds=35)
                if again is not None:
                    self.ledger.hand_back(again, look_first=True, now=now)
            return state

    world.service.canceller = GivingUp


def reconciler_guesses(world: World) -> None:
    """Charges that it does not find it takes for declined."""

    class Guessing(Settler):
        def look(self, row: ChargeRow) -> bool:
            looked = super().look(row)
            ours = None if looked else self.ledger.take_over(self._again(row), now=self._now(), lease_seconds=125)
            if ours is not None:
                self.ledger.settle(ours, PaymentState.DECLINED, payment_intent_id=None, code=None, now=self._now())
            return True

        def _again(self, row: ChargeRow) -> ChargeRow:
            return self.ledger.read(row.request.order_id, row.request.attempt) or row

    world.service.settler = Guessing


def an_event_is_believed(world: World) -> None:
    """What an event shows is taken for what holds now."""

    class Believing(Settler):
        def told(self, told: Told) -> None:
            row = self.ledger.read(told.order_id, told.attempt)
            self.bring_together(row, told.intent, order_id=told.order_id, attempt=told.attempt)

    world.service.settler = Believing


def events_kept_before_they_are_handled(world: World) -> None:
    class Hasty(ReceiveStripeEvent):
        def _handle(self, told: Told | ToldOfCharge) -> None:
            self.handled.keep(told.event_id, now=int(self.clock()))
            super()._handle(told)

    world.service.receiver = Hasty


def failed_events_acknowledged(world: World) -> None:
    class Careless(ReceiveStripeEvent):
        def __call__(self, event: stripe.Event) -> None:
            with suppress(*OUTAGES):
                super().__call__(event)

    world.service.receiver = Careless


MUTANTS: Mapping[str, Mutate] = {
    "no condition on the claim": no_condition_on_the_claim,
    "no lease": no_lease,
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
    "the list goes back no further than search lags": list_of_one_hour,
    "absence taken for proof at once": _rewrite(_OpensNewKeysAtOnce),
    "no check of the attempt before": no_check_of_the_attempt_before,
    "a later attempt's claim read back blindly": claim_read_back_blindly,
    "what the message says is charged": _rewrite(_ChargesWhatTheMessageSays),
    "a failed 3-D Secure is not canceled": failed_3d_secure_not_canceled,
    "canceled without a look": cancels_without_a_look,
    "a cancellation gives the key up": cancel_gives_the_key_up,
    "the reconciler takes absence for a decline": reconciler_guesses,
    "an event is taken for what holds now": an_event_is_believed,
    "events kept before they are handled": events_kept_before_they_are_handled,
    "events acknowledged that were not handled": failed_events_acknowledged,
    "to the DLQ after three receives": dlq_after_three_receives,
}
