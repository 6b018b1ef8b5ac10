"""The protocol, broken on purpose in one place each: the simulation must catch every one of them."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from lab.simulation.explore import Mutate
from lab.simulation.world import World
from onecharge.contract.events import NO_ATTEMPT_LEFT
from onecharge.contract.states import PaymentState
from onecharge.payments.charge import KeySpent, cancel, confirm, create, look_up, retrieve
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.charge_rules import (
    Cancel,
    CancelReason,
    ConfirmResult,
    Create,
    Decision,
    Finalize,
    FrozenRequest,
    Payment,
    StripeIntent,
    Wait,
    decide,
    decide_after_lookup,
)
from onecharge.payments.rows import Claim, Claimed
from onecharge.payments.stripe_events import StripeEvent
from onecharge.payments.stripe_gateway import Part, StripeGateway, StripeResponse
from onecharge.payments.stripe_objects import read_intent
from onecharge.payments.stripe_responses import Failure, LookupInconclusive, ResponseKind
from onecharge.payments.sync import look
from onecharge.payments.sync_rules import Discrepancy, find_discrepancy
from onecharge.payments.tools import Tools
from onecharge.runtime.consumer import BackOff, Disposition, Done, RetryAfter
from reconcile.run import REREAD_SECONDS

# ---------------------------------------------------------------- how a part is replaced


def _replacing(function: Callable[..., Any], mutant: Callable[..., Any]) -> Mutate:
    """Whoever calls the function calls this one."""

    def mutate(world: World) -> None:
        world.service.replaced[function] = mutant

    return mutate


def _deciding(mutant: Callable[[Payment, StripeIntent, ConfirmResult], Decision]) -> Mutate:
    """Decisions about a PaymentIntent are these."""

    def decided(payment: Payment, intent: StripeIntent | None, confirm_result: ConfirmResult) -> Decision:
        return mutant(payment, intent, confirm_result) if intent else decide(payment, intent, confirm_result)

    return _replacing(decide, decided)


def _storing(mutant: type[PaymentStore]) -> Mutate:
    def mutate(world: World) -> None:
        world.service.store = mutant(world.service.store.client, world.service.store.table)

    return mutate


def _asking(mutant: type[StripeGateway]) -> Mutate:
    def mutate(world: World) -> None:
        given = world.service.gateway
        world.service.gateway = mutant(given.client, given.parallel)

    return mutate


def _with_little_time(mutant: type[StripeGateway]) -> Mutate:
    """Of four pages of a lookup, three are one too many."""

    def mutate(world: World) -> None:
        class Hurried(mutant):  # type: ignore[misc, valid-type]
            def find_payment_intents(self, request: FrozenRequest, **given: Any) -> list[StripeIntent]:
                has_time = lambda: world.choices.happens(0.25)  # noqa: E731
                return super().find_payment_intents(request, **{**given, "has_time": has_time})  # type: ignore[no-any-return]

        _asking(Hurried)(world)

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
        def confirm(self, payment: Payment) -> StripeResponse[StripeIntent]:
            response = super().confirm(payment)
            is_it = response.failure is not None and response.failure.kind is kind
            return replace(response, failure=Failure(for_, code="mistaken")) if is_it else response

    return _asking(Mistaken)


class _OnlyListsAnHour(StripeGateway):
    def find_payment_intents(
        self,
        request: FrozenRequest,
        *,
        now: int,
        is_time_known: bool = True,
        has_time: Callable[[], bool] = lambda: True,
    ) -> list[StripeIntent]:
        listed = self._listed(request.order_id, now - 3600, has_time)
        return [read_intent(self._retrieved(each, has_time)) for each in listed]


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

    def cancel(self, payment_intent_id: str, reason: CancelReason) -> StripeResponse[StripeIntent]:
        return super().cancel(payment_intent_id, CancelReason.ABANDONED)


# ---------------------------------------------------------------- decisions


def _abandoned_is_canceled(payment: Payment, intent: StripeIntent, confirm_result: ConfirmResult) -> Decision:
    if intent.status == "canceled":
        intent = replace(intent, cancellation_reason=CancelReason.BY_CUSTOMER)
    return decide(payment, intent, confirm_result)


def _goes_on_after_a_person(payment: Payment, intent: StripeIntent, confirm_result: ConfirmResult) -> Decision:
    """What a person canceled in the Dashboard is replaced, and charged."""
    if intent.is_canceled_by_hand:
        intent = replace(intent, cancellation_reason=CancelReason.ABANDONED)
    return decide(payment, intent, confirm_result)


def _goes_on_after_stripe(payment: Payment, intent: StripeIntent, confirm_result: ConfirmResult) -> Decision:
    """What Stripe has canceled after a decline is replaced, and charged."""
    if intent.decline_code == NO_ATTEMPT_LEFT:
        intent = replace(intent, error_code=None)
    return decide(payment, intent, confirm_result)


def _canceled_without_stripe(payment: Payment, intent: StripeIntent, confirm_result: ConfirmResult) -> Decision:
    decision = decide(payment, intent, confirm_result)
    if isinstance(decision, Cancel) and decision.reason is CancelReason.BY_CUSTOMER:
        return Finalize(PaymentState.CANCELED, intent.payment_intent_id, intent.generation)
    return decision


def _beside_processing(payment: Payment, intent: StripeIntent, confirm_result: ConfirmResult) -> Decision:
    decision = decide(payment, intent, confirm_result)
    return Create(payment.generation + 1) if isinstance(decision, Wait) else decision


def _overlooks_the_request(payment: Payment, intent: StripeIntent, confirm_result: ConfirmResult) -> Decision:
    return decide(replace(payment, cancel_requested_at=None), intent, confirm_result)


def _every_decline_is_ours(payment: Payment, intent: StripeIntent, confirm_result: ConfirmResult) -> Decision:
    """As if it were known by its payment method, which the attempt before may have had as well."""
    return decide(replace(payment, declined_charge_id="another"), intent, confirm_result)


def _no_decline_ends_an_attempt(payment: Payment, intent: StripeIntent, confirm_result: ConfirmResult) -> Decision:
    """A decline is tried again, with what Stripe stores under the key or not."""
    decision = decide(payment, intent, confirm_result)
    declined = isinstance(decision, Finalize) and decision.state is PaymentState.DECLINED
    return Cancel(CancelReason.ABANDONED, intent.payment_intent_id) if declined else decision


def _confirms_what_takes_no_cards(row: Payment, generation: int, tools: Tools) -> StripeIntent | KeySpent | Finalize:
    """Each customer is told to try another card."""
    created = tools.stripe.create(row.request, generation)
    is_made = created.found is not None and created.failure is None and not created.is_replay
    return created.found if is_made and created.found else create(row, generation, tools)


def _believes_the_last_error(row: Payment, tools: Tools) -> tuple[StripeIntent, ConfirmResult, Finalize | None]:
    """A decline whose error an update has cleared is none: the card is tried again."""
    intent, confirm_result, refusal = confirm(row, tools)
    shown = read_intent(tools.stripe.client.v1.payment_intents.retrieve(intent.payment_intent_id))
    return replace(intent, error_code=shown.error_code), confirm_result, refusal


def _looks_up_for_new_rows(row: Payment, created: StripeIntent | Finalize, tools: Tools) -> Finalize | None:
    return look_up(row, created, tools) if row.revision == 1 else None


def _adopts(row: Payment, generation: int, tools: Tools) -> StripeIntent | KeySpent | Finalize:
    """What a lookup has found is confirmed."""
    created = create(row, generation, tools)
    if not isinstance(created, StripeIntent) or not tools.keys_may_be_forgotten(row):
        return created
    found = tools.stripe.find_payment_intents(row.request, now=tools.instruments.now())
    others = (each for each in found if each.is_open and each.payment_intent_id != created.payment_intent_id)
    return next(others, created)


def _leaves_it_open(payment: Payment, own: StripeIntent | None, others: Sequence[StripeIntent]) -> Any:
    closed = [replace(each, status="canceled") if each.is_open else each for each in others]
    return decide_after_lookup(payment, own, closed)


def _sees_no_trace(payment: Payment, own: StripeIntent | None, others: Sequence[StripeIntent]) -> Any:
    return decide_after_lookup(payment, own, [replace(each, cancellation_reason=None) for each in others])


def _passes_over_by_hand(payment: Payment, own: StripeIntent | None, others: Sequence[StripeIntent]) -> Any:
    return decide_after_lookup(payment, own, [each for each in others if not each.is_canceled_by_hand])


def _goes_on_without_canceling(payment_intent_id: str, reason: CancelReason, tools: Tools) -> StripeIntent:
    """The next generation is created while the one before may still be confirmed."""
    if reason is CancelReason.BY_CUSTOMER:
        return cancel(payment_intent_id, reason, tools)
    intent = retrieve(payment_intent_id, tools)
    return replace(intent, status="canceled", cancellation_reason=reason) if intent.is_open else intent


def _finalizes_first(row: Payment, tools: Tools) -> tuple[StripeIntent, ConfirmResult, Finalize | None]:
    final = Finalize(PaymentState.SUCCEEDED, row.payment_intent_id, row.generation)
    tools.payments.finalize(row, final, now=tools.instruments.now())
    return confirm(row, tools)


def _confirms_before_it_is_stored(row: Payment, generation: int, tools: Tools) -> StripeIntent | KeySpent | Finalize:
    """The id is stored after the confirm."""
    created = create(row, generation, tools)
    if isinstance(created, StripeIntent):
        created, _, _ = confirm(replace(row, payment_intent_id=created.payment_intent_id), tools)
    return created


# ---------------------------------------------------------------- deliveries, webhooks, the reconciler


def dlq_after_three_receives(world: World) -> None:
    world.max_receive_count = 3


def events_are_read_once(world: World) -> None:
    """Each run lists from where the last one ended, by that one's clock."""
    v1 = world.service.gateway.client.v1

    def listed(given: Any, *options: Any) -> Any:
        created = {**given["created"], "gte": given["created"]["gte"] + REREAD_SECONDS}
        return v1.events.list({**given, "created": created}, *options)  # type: ignore[arg-type]  # One more of it.

    events = SimpleNamespace(**{**vars(v1.events), "list": listed})
    client = SimpleNamespace(v1=SimpleNamespace(**{**vars(v1), "events": events}))
    world.service.gateway = replace(world.service.gateway, client=client)  # type: ignore[arg-type]


def _believes_the_event(order_id: str, event: StripeEvent, *given: Any) -> StripeIntent | None:
    """What it shows is taken for what holds now."""
    return event.intent or look(order_id, event, *given)


def _late_truth_is_ignored(payment: Payment | None, intent: StripeIntent, **given: Any) -> Discrepancy:
    """A success after a decline is nobody's business."""
    is_declined = payment is not None and payment.state is PaymentState.DECLINED
    return Discrepancy.NONE if is_declined else find_discrepancy(payment, intent, **given)


MUTANTS: Mapping[str, Mutate] = {
    "no condition on the claim": _without(_CLAIM),
    "no lease in the claim": _without(" AND lease_expires_at <= :now"),
    "lease shorter than Stripe's timeouts": lease_shorter_than_stripes_timeouts,
    "id stored without the lease": _without(
        f"{_AS_OWNER} AND attribute_not_exists(payment_intent_id)", f"{_AS_OWNER} AND payment_intent_id = :replaced"
    ),
    "id stored after the confirm": _replacing(create, _confirms_before_it_is_stored),
    "finalize without the lease": _storing(_FinalizesAsAnybody),
    "finalize without the attempt": _storing(_FinalizesAnyAttempt),
    "finalized over a request to cancel": _without(" AND attribute_not_exists(cancel_requested_at)"),
    "finalized before it is confirmed": _replacing(confirm, _finalizes_first),
    "what the message says is charged": _storing(_FreezesAnew),
    "a random key for each create": _with_keys("create", _random),
    "a random key for each confirm": _with_keys("confirm", _random),
    "a second confirm key: one for each message": _with_keys("confirm", _of_the_message),
    "no lookup past 22 hours": _replacing(look_up, lambda *_: None),
    "lookup only for a new row": _replacing(look_up, _looks_up_for_new_rows),
    "the list alone taken for complete": _asking(_OnlyListsAnHour),
    "a lookup that ends early taken for complete": _with_little_time(_StopsEarly),
    "one page of the list taken for complete": _asking(_OnlyListsAPage),
    "what was found is adopted": _replacing(create, _adopts),
    "what is found stays open": _replacing(decide_after_lookup, _leaves_it_open),
    "what is found canceled is no trace": _replacing(decide_after_lookup, _sees_no_trace),
    "abandoned taken for canceled": _deciding(_abandoned_is_canceled),
    "the next generation after a person canceled": _deciding(_goes_on_after_a_person),
    "the next generation after Stripe gave up": _deciding(_goes_on_after_stripe),
    "what is found canceled by hand is passed over": _replacing(decide_after_lookup, _passes_over_by_hand),
    "CANCELED without Stripe's word": _deciding(_canceled_without_stripe),
    "canceled for the customer as abandoned": _asking(_CancelsAsAbandoned),
    "a request to cancel is overlooked": _deciding(_overlooks_the_request),
    "a generation beside processing": _deciding(_beside_processing),
    "the next generation without canceling": _replacing(cancel, _goes_on_without_canceling),
    "every decline is this attempt's": _deciding(_every_decline_is_ours),
    "a PaymentIntent that takes no cards is confirmed": _replacing(create, _confirms_what_takes_no_cards),
    "a decline whose error was cleared is tried again": _replacing(confirm, _believes_the_last_error),
    "a refused card is tried again": _replacing(
        confirm, lambda row, tools: confirm(replace(row, refused_cards=()), tools)
    ),
    "a decline is tried again": _deciding(_no_decline_ends_an_attempt),
    "a stored failure taken for an answer": _takes(ResponseKind.STORED_FAILURE, for_=ResponseKind.DECLINED),
    "a replayed refusal is sent again": _takes(ResponseKind.STORED_REFUSAL, for_=ResponseKind.ACCOUNT),
    "no answer taken for a decline": _takes(ResponseKind.NO_ANSWER),
    "a 503 taken for a decline": _takes(ResponseKind.RETRYABLE),
    "a wrong API key taken for a decline": _takes(ResponseKind.ACCOUNT),
    "duplicates acknowledged under a live lease": _acknowledging(RetryAfter),
    "unknown outcomes acknowledged": _acknowledging(BackOff),
    "reconciled without the revision": _without("revision = :revision"),
    "an event is taken for what holds now": _replacing(look, _believes_the_event),
    "events are read once": events_are_read_once,
    "late truth is ignored": _replacing(find_discrepancy, _late_truth_is_ignored),
    "to the DLQ after three receives": dlq_after_three_receives,
}
"""Each has to be caught; `make mutants` says after how many schedules."""
