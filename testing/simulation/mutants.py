"""The protocol, broken on purpose in one place each: the simulation must catch every one of them."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType, SimpleNamespace
from typing import Any

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.gateway import Part, StripeGateway, StripeResponse, found_intent
from onecharge.payments.charges.protocol import (
    Cancel,
    CancelReason,
    Confirm,
    ConfirmResult,
    Create,
    Finalize,
    FoundIntent,
    FrozenRequest,
    Payment,
    Wait,
    decide,
    decide_after_lookup,
)
from onecharge.payments.charges.reconciler import Reconciler
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.charges.worker import ChargeJob, PaymentWorker
from onecharge.payments.leases import Claim, Claimed
from onecharge.payments.stripe_events import PaymentIntentEvent
from onecharge.payments.stripe_responses import Failure, LookupInconclusive, ResponseKind
from onecharge.runtime.consumer import BackOff, Batch, Disposition, Done, RetryAfter
from testing.simulation.explore import Mutate
from testing.simulation.world import SlotTurn, World

Decision = Finalize | Confirm | Cancel | Create | Wait


# ---------------------------------------------------------------- how a part is replaced


def rebuilt[Class: type](of: Class, **others: object) -> Class:
    """The class, with its methods seeing other things under these names of their module."""
    methods = {
        name: _with_globals(method, others)
        for name, method in vars(of).items()
        if isinstance(method, FunctionType) and method.__module__ == of.__module__ and not name.startswith("__")
    }
    return type(of.__name__, (of,), methods)  # type: ignore[return-value]


def _with_globals(method: FunctionType, others: Mapping[str, object]) -> FunctionType:
    made = FunctionType(
        method.__code__, {**method.__globals__, **others}, method.__name__, method.__defaults__, method.__closure__
    )
    made.__kwdefaults__ = method.__kwdefaults__
    return made


def _working(job: type[ChargeJob]) -> Mutate:
    class Mutant(PaymentWorker):
        def job(self, row: Payment, *, deadline: float) -> ChargeJob:
            return job(self, row, deadline)

    def mutate(world: World) -> None:
        world.service.worker = Mutant

    return mutate


def _deciding(mutant: Callable[..., Decision]) -> Mutate:
    """Workers and the reconciler decide like this."""

    def mutate(world: World) -> None:
        _working(rebuilt(ChargeJob, decide=mutant))(world)
        world.service.reconciler = rebuilt(Reconciler, decide=mutant)

    return mutate


def _storing(mutant: type[PaymentStore]) -> Mutate:
    def mutate(world: World) -> None:
        world.service.store = mutant(world.service.store.client, world.service.store.table)

    return mutate


def _asking(mutant: type[StripeGateway]) -> Mutate:
    def mutate(world: World) -> None:
        given = world.service.gateway
        world.service.gateway = mutant(
            given.client, has_time=given.has_time, page_size=given.page_size, parts=given.parts
        )

    return mutate


def _with_little_time(others: Mutate) -> Mutate:
    """Of four pages of a lookup, three are one too many."""

    def mutate(world: World) -> None:
        others(world)
        world.service.gateway = replace(world.service.gateway, has_time=lambda: world.choices.happens(0.25))

    return mutate


def _acknowledging(kind: type[Disposition]) -> Mutate:
    """Deliveries that are to come back in this way are acknowledged."""

    def mutate(world: World) -> None:
        world.service.acknowledge = lambda disposition: Done() if isinstance(disposition, kind) else disposition

    return mutate


def _without(*conditions: str) -> Mutate:
    """These parts are left out of the conditions of all writes."""

    def mutate(world: World) -> None:
        world.dynamodb.ignored_conditions.extend(conditions)

    return mutate


# ---------------------------------------------------------------- rows and leases

_CLAIM = (
    "attribute_not_exists(order_id) OR (attempt = :attempt AND #state = :pending AND lease_expires_at <= :now) OR "
    "(attempt < :attempt AND (#state = :declined OR (#state IN (:pending, :requires_action) AND "
    "lease_expires_at <= :now)))"
)
_AS_OWNER = "lease_owner = :ours AND #state = :pending AND attempt = :attempt"


class _FinalizesAsAnybody(PaymentStore):
    def finalize(self, payment: Payment, final: Finalize, *, now: int) -> Payment:
        present = self.read(payment.request.order_id) or payment
        return super().finalize(replace(payment, lease_owner=present.lease_owner), final, now=now)


class _FinalizesAnyAttempt(PaymentStore):
    def finalize(self, payment: Payment, final: Finalize, *, now: int) -> Payment:
        present = self.read(payment.request.order_id) or payment
        present = replace(payment, lease_owner=present.lease_owner, attempt=present.attempt)
        return super().finalize(present, final, now=now)


class _FreezesAnew(PaymentStore):
    """What the message says is charged, and not what was frozen."""

    def claim(self, request: FrozenRequest, **given: Any) -> Claim[Payment]:
        claim = super().claim(request, **given)
        return Claimed(replace(claim.row, request=request)) if isinstance(claim, Claimed) else claim


def lease_shorter_than_stripes_timeouts(world: World) -> None:
    world.service.bounds = replace(world.service.bounds, lease_seconds=1)


# ---------------------------------------------------------------- idempotency keys


def _with_keys(request: str, make: Callable[[World, str], str]) -> Mutate:
    """The SDK's client is given other keys for this request."""

    def mutate(world: World) -> None:
        given = world.service.gateway.client.v1.payment_intents
        send: Any = getattr(given, request)

        def sent(*arguments: Any) -> Any:
            *others, options = arguments
            return send(*others, {"idempotency_key": make(world, options["idempotency_key"])})

        intents = SimpleNamespace(**{**vars(given), request: sent})
        v1 = SimpleNamespace(**{**vars(world.service.gateway.client.v1), "payment_intents": intents})
        world.service.gateway = replace(world.service.gateway, client=SimpleNamespace(v1=v1))  # type: ignore[arg-type]

    return mutate


_NUMBERS = itertools.count()


def _random(_: World, key: str) -> str:
    return f"{key}:{next(_NUMBERS)}"


def _of_the_message(world: World, key: str) -> str:
    return f"{key}:{world.current.message.id if world.current and world.current.message else None}"


# ---------------------------------------------------------------- what Stripe answers


def _takes(kind: ResponseKind, *, for_: ResponseKind = ResponseKind.PAYMENT_METHOD_REFUSED) -> Mutate:
    """One kind of answer to a confirm is taken for another, as if it were for a decline."""

    class Mistaken(StripeGateway):
        def confirm(self, payment: Payment) -> StripeResponse:
            response = super().confirm(payment)
            is_it = response.failure is not None and response.failure.kind is kind
            return replace(response, failure=Failure(for_, code="mistaken")) if is_it else response

    return _asking(Mistaken)


def answers_of_other_requests_are_taken(world: World) -> None:
    """Whichever idempotency key they were given under."""
    world.stripe.is_of_another_request = lambda sent, received: False


def _any_object[Made](made: Made, *_: object, **__: object) -> Made:
    return made


class _OnlyListsAnHour(StripeGateway):
    def find_payment_intents(
        self, request: FrozenRequest, *, now: int, has_time: Callable[[], bool] = lambda: True
    ) -> list[FoundIntent]:
        listed = self._listed(request.order_id, now - 3600, has_time)
        return [found_intent(self._retrieved(each, has_time)) for each in listed]


class _StopsEarly(StripeGateway):
    """What a lookup has read before its time ended is taken for all that there is."""

    def _listed_part(self, order_id: str, has_time: Callable[[], bool], part: Part) -> list[str]:
        try:
            return super()._listed_part(order_id, has_time, part)
        except LookupInconclusive:
            return []

    def _retrieved(self, payment_intent_id: str, has_time: Callable[[], bool]) -> Any:
        return super()._retrieved(payment_intent_id, lambda: True)


class _OnlyListsAPage(StripeGateway):
    """The newest one of a window that has more."""

    def _listed_part(self, order_id: str, has_time: Callable[[], bool], part: Part) -> list[str]:
        return []


class _CancelsAsAbandoned(StripeGateway):
    """Of a cancellation there is no trace at Stripe."""

    def cancel(self, payment_intent_id: str, reason: CancelReason) -> StripeResponse:
        return super().cancel(payment_intent_id, CancelReason.ABANDONED)


# ---------------------------------------------------------------- decisions


def _abandoned_is_canceled(payment: Payment, intent: FoundIntent, **given: Any) -> Decision:
    if intent.status == "canceled":
        intent = replace(intent, cancellation_reason=CancelReason.BY_CUSTOMER)
    return decide(payment, intent, **given)


def _canceled_without_stripe(payment: Payment, intent: FoundIntent, **given: Any) -> Decision:
    decision = decide(payment, intent, **given)
    if isinstance(decision, Cancel) and decision.reason is CancelReason.BY_CUSTOMER:
        return Finalize(PaymentState.CANCELED, intent.payment_intent_id, intent.generation)
    return decision


def _beside_processing(payment: Payment, intent: FoundIntent, **given: Any) -> Decision:
    decision = decide(payment, intent, **given)
    return Create(payment.generation + 1) if isinstance(decision, Wait) else decision


def _overlooks_the_request(payment: Payment, intent: FoundIntent, **given: Any) -> Decision:
    return decide(replace(payment, cancel_requested_at=None), intent, **given)


def _every_decline_is_ours(
    payment: Payment, intent: FoundIntent, *, confirm_result: ConfirmResult = ConfirmResult.NONE_YET
) -> Decision:
    """As if it were known by its payment method, which the attempt before may have had as well."""
    known = replace(payment, declined_charge_id="another")
    return decide(known, intent, confirm_result=confirm_result)


def _no_decline_is_final(
    payment: Payment, intent: FoundIntent, *, confirm_result: ConfirmResult = ConfirmResult.NONE_YET
) -> Decision:
    """A decline is tried again, with what Stripe stores under the key or not."""
    decision = decide(payment, intent, confirm_result=confirm_result)
    declined = isinstance(decision, Finalize) and decision.state is PaymentState.DECLINED
    return Cancel(CancelReason.ABANDONED) if declined else decision


class _NeverLooksUp(ChargeJob):
    def _must_look_up(self) -> bool:
        return False


class _LooksUpForNewRows(ChargeJob):
    def _must_look_up(self) -> bool:
        return self.row.revision == 1 and super()._must_look_up()


class _Adopts(ChargeJob):
    """What a lookup has found is confirmed."""

    def _look_up(self, own: FoundIntent | None) -> Finalize | None:
        found = self._gateway.find_payment_intents(self.row.request, now=self._instruments.now())
        for intent in found:
            if intent.is_open and own is not None and intent.payment_intent_id != own.payment_intent_id:
                self.row = self._store.write_payment_intent(self.row, intent.payment_intent_id, intent.generation)
                return self._act_on(intent)
        return super()._look_up(own)


def _leaves_it_open(payment: Payment, own: FoundIntent | None, others: Sequence[FoundIntent]) -> Any:
    closed = [replace(each, status="canceled") if each.is_open else each for each in others]
    return decide_after_lookup(payment, own, closed)


def _sees_no_trace(payment: Payment, own: FoundIntent | None, others: Sequence[FoundIntent]) -> Any:
    return decide_after_lookup(payment, own, [replace(each, cancellation_reason=None) for each in others])


class _GoesOnWithoutCanceling(ChargeJob):
    """The next generation is created while the one before may still be confirmed."""

    def _cancel(self, payment_intent_id: str, reason: CancelReason) -> FoundIntent:
        if reason is CancelReason.BY_CUSTOMER:
            return super()._cancel(payment_intent_id, reason)
        intent = self._intent_of(self._gateway.retrieve(payment_intent_id))
        is_open = intent.is_open
        return replace(intent, status="canceled", cancellation_reason=reason) if is_open else intent


class _FinalizesFirst(ChargeJob):
    def _confirm(self) -> Finalize:
        final = Finalize(PaymentState.SUCCEEDED, self.row.payment_intent_id, self.row.generation)
        self._store.finalize(self.row, final, now=self._instruments.now())
        return super()._confirm()


class _ConfirmsBeforeItIsWritten(ChargeJob):
    """The id is written down after the confirm."""

    def _ensure(self, generation: int) -> Finalize:
        response = self._gateway.create(self.row.request, generation)
        if response.failure or response.intent is None:
            return self._not_created(response, generation)
        intent_id = response.intent.payment_intent_id
        confirmed = self._gateway.confirm(replace(self.row, payment_intent_id=intent_id))
        if confirmed.failure or confirmed.intent is None:
            return self._not_created(confirmed, generation)
        self.row = self._store.write_payment_intent(self.row, intent_id, generation)
        return self._act_on(confirmed.intent, ConfirmResult.ANSWERED)


# ---------------------------------------------------------------- deliveries, webhooks, the reconciler


def dlq_after_three_receives(world: World) -> None:
    world.max_receive_count = 3


def what_was_received_before_is_a_duplicate(world: World) -> None:
    """Its row is there, so the order is taken for charged."""
    read = world.service.read_redelivered

    def taken_for_paid(batch: Batch[Any]) -> Mapping[str, Payment]:
        return {order_id: replace(row, state=PaymentState.SUCCEEDED) for order_id, row in read(batch).items()}

    world.service.read_redelivered = taken_for_paid  # type: ignore[method-assign]


def an_event_is_believed(world: World) -> None:
    """What an event shows is taken for what holds now."""

    class Believing(Reconciler):
        def handle_event(self, event: PaymentIntentEvent) -> None:
            self._correct(event.order_id, self.store.read(event.order_id), event.intent)

    world.service.reconciler = Believing


def who_has_no_slot_begins(world: World) -> None:
    """A refused turn is taken for one that comes at once."""

    class Impatient(SlotTurn):
        def begin(self) -> float | None:
            return super().begin() or 0

    if world.scenario.slots:
        world.service.turn = lambda: Impatient(world)


def late_truth_is_ignored(world: World) -> None:
    """A success after a decline is nobody's business."""

    class Deaf(Reconciler):
        def _correct(self, order_id: str, payment: Payment | None, intent: FoundIntent) -> bool:
            is_declined = payment is not None and payment.state is PaymentState.DECLINED
            return not is_declined and super()._correct(order_id, payment, intent)

    world.service.reconciler = Deaf


MUTANTS: Mapping[str, Mutate] = {
    "no condition on the claim": _without(_CLAIM),
    "no lease in the claim": _without(" AND lease_expires_at <= :now"),
    "lease shorter than Stripe's timeouts": lease_shorter_than_stripes_timeouts,
    "id written without the lease": _without(
        f"{_AS_OWNER} AND attribute_not_exists(payment_intent_id)", f"{_AS_OWNER} AND payment_intent_id = :replaced"
    ),
    "id written after the confirm": _working(_ConfirmsBeforeItIsWritten),
    "finalize without the lease": _storing(_FinalizesAsAnybody),
    "finalize without the attempt": _storing(_FinalizesAnyAttempt),
    "finalized over a request to cancel": _without(" AND attribute_not_exists(cancel_requested_at)"),
    "finalized before it is confirmed": _working(_FinalizesFirst),
    "what the message says is charged": _storing(_FreezesAnew),
    "a random key for each create": _with_keys("create", _random),
    "a random key for each confirm": _with_keys("confirm", _random),
    "a second confirm key: one for each message": _with_keys("confirm", _of_the_message),
    "no lookup past 22 hours": _working(_NeverLooksUp),
    "lookup only for a new row": _working(_LooksUpForNewRows),
    "the list alone taken for complete": _asking(_OnlyListsAnHour),
    "a lookup that ends early taken for complete": _with_little_time(_asking(_StopsEarly)),
    "one page of the list taken for complete": _asking(_OnlyListsAPage),
    "what was found is adopted": _working(_Adopts),
    "what is found stays open": _working(rebuilt(ChargeJob, decide_after_lookup=_leaves_it_open)),
    "what is found canceled is no trace": _working(rebuilt(ChargeJob, decide_after_lookup=_sees_no_trace)),
    "abandoned taken for canceled": _deciding(_abandoned_is_canceled),
    "CANCELED without Stripe's word": _deciding(_canceled_without_stripe),
    "canceled for the customer as abandoned": _asking(_CancelsAsAbandoned),
    "a request to cancel is overlooked": _deciding(_overlooks_the_request),
    "a generation beside processing": _deciding(_beside_processing),
    "the next generation without canceling": _working(_GoesOnWithoutCanceling),
    "every decline is this attempt's": _deciding(_every_decline_is_ours),
    "a decline is tried again": _deciding(_no_decline_is_final),
    "a stored failure taken for an answer": _takes(ResponseKind.STORED_FAILURE, for_=ResponseKind.DECLINED),
    "no answer taken for a decline": _takes(ResponseKind.NO_ANSWER),
    "a 503 taken for a decline": _takes(ResponseKind.RETRYABLE),
    "a wrong API key taken for a decline": _takes(ResponseKind.ACCOUNT),
    "the answer to another request is taken": answers_of_other_requests_are_taken,
    "an answer about another object is taken": _asking(
        rebuilt(StripeGateway, with_id=_any_object, with_metadata=_any_object)
    ),
    "what was retrieved before is taken for a confirm's answer": _asking(
        rebuilt(StripeGateway, after_confirm=_any_object)
    ),
    "duplicates acknowledged under a live lease": _acknowledging(RetryAfter),
    "unknown outcomes acknowledged": _acknowledging(BackOff),
    "what was received before taken for a duplicate": what_was_received_before_is_a_duplicate,
    "reconciled without the revision": _without("revision = :revision"),
    "an event is taken for what holds now": an_event_is_believed,
    "late truth is ignored": late_truth_is_ignored,
    "who has no slot begins all the same": who_has_no_slot_begins,
    "to the DLQ after three receives": dlq_after_three_receives,
}
"""Each has to be caught; `make mutants` says after how many schedules."""
