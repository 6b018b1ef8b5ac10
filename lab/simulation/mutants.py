"""The protocol, broken on purpose in one place each: the simulation must catch every one of them."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from lab.simulation.explore import Mutate
from lab.simulation.world import World
from onecharge.contract.states import PaymentState
from onecharge.payments.charge import cancel, confirm, create, retrieve
from onecharge.payments.charge_rows import PaymentStore, next_revision
from onecharge.payments.charge_rules import Finalize, Step, StripeIntent, decide, is_held, may_create
from onecharge.payments.payment_intents import PaymentIntents, Response
from onecharge.payments.rows import Payment
from onecharge.payments.stripe_events import parse_event
from onecharge.payments.stripe_responses import Failure, ResponseKind
from onecharge.payments.sync_rules import Difference, find_difference
from onecharge.payments.tools import Tools
from onecharge.runtime.consumer import BackOff, Disposition, Done, RetryAfter
from ops.release import Release
from ops.release import changes_without as release_without
from ops.release import decide as decide_release
from reconcile.run import REREAD_SECONDS

# ---------------------------------------------------------------- how a part is replaced


def _replacing(function: Callable[..., Any], mutant: Callable[..., Any]) -> Mutate:
    """Every caller of the function calls this one."""

    def mutate(world: World) -> None:
        world.service.replaced[function] = mutant

    return mutate


def _deciding(mutant: Callable[[Payment, StripeIntent, Step], Step]) -> Mutate:
    """The worker's decision about a PaymentIntent is another one."""

    def decided(row: Payment, intent: StripeIntent, *, is_answered: bool) -> Step:
        return mutant(row, intent, decide(row, intent, is_answered=is_answered))

    return _replacing(decide, decided)


def _storing(mutant: type[PaymentStore]) -> Mutate:
    def mutate(world: World) -> None:
        world.service.store = mutant(world.service.store.client, world.service.store.table)

    return mutate


def _asking(mutant: type[PaymentIntents]) -> Mutate:
    def mutate(world: World) -> None:
        world.service.stripe = mutant(world.service.stripe.client, world.service.stripe.shop)

    return mutate


def _without(*conditions: str) -> Mutate:
    """These parts are left out of the conditions of all writes."""

    def mutate(world: World) -> None:
        world.dynamodb.ignored_conditions.extend(conditions)

    return mutate


def _acknowledging(kind: type[Disposition]) -> Mutate:
    """Deliveries that are to come back in this way are acknowledged."""

    def mutate(world: World) -> None:
        world.service.acknowledge = lambda disposition: Done() if isinstance(disposition, kind) else disposition

    return mutate


def _with_keys(request: str, make: Callable[[World, str], str]) -> Mutate:
    """The SDK's client is given other keys for this request."""

    def mutate(world: World) -> None:
        given = world.service.stripe.client.v1
        send: Any = getattr(given.payment_intents, request)

        def sent(*arguments: Any) -> Any:
            *others, options = arguments
            return send(*others, {"idempotency_key": make(world, options["idempotency_key"])})

        intents = SimpleNamespace(**{**vars(given.payment_intents), request: sent})
        client: Any = SimpleNamespace(v1=SimpleNamespace(**{**vars(given), "payment_intents": intents}))
        world.service.stripe = replace(world.service.stripe, client=client)

    return mutate


# ---------------------------------------------------------------- rows and leases

_AS_OWNER = "lease_owner = :ours AND #state = :pending AND attempt = :was"


class _StoresAsAnybody(PaymentStore):
    def store_id(self, row: Payment, payment_intent_id: str) -> Payment:
        present = self.read(row.request.order_id) or row
        return super().store_id(replace(row, lease_owner=present.lease_owner), payment_intent_id)


class _FinalizesAsAnybody(PaymentStore):
    def finalize(self, row: Payment, final: Finalize, *, now: int) -> Payment:
        present = self.read(row.request.order_id) or row
        return super().finalize(replace(row, lease_owner=present.lease_owner, attempt=present.attempt), final, now=now)


# ---------------------------------------------------------------- create

_NUMBERS = itertools.count()


def _random(_: World, key: str) -> str:
    return f"{key}:{next(_NUMBERS)}"


class _Unfiltered(PaymentIntents):
    """A PaymentIntent that takes no cards is confirmed: each customer is told to try another card."""

    def create(self, row: Payment, number: int) -> Response:
        response = super().create(row, number)
        return replace(response, intent=response.intent and replace(response.intent, takes_cards=True))


def _confirms_before_it_is_stored(row: Payment, tools: Tools) -> StripeIntent | Finalize:
    created = create(row, tools)
    return (
        created
        if isinstance(created, Finalize)
        else confirm(replace(row, payment_intent_id=created.payment_intent_id), tools)
    )


# ---------------------------------------------------------------- decide, confirm, cancel


def _goes_on_after_canceled(row: Payment, intent: StripeIntent, step: Step) -> Step:
    return Finalize(PaymentState.DECLINED, intent, "canceled") if intent.status == "canceled" else step


def _overlooks_the_request(row: Payment, intent: StripeIntent, *, is_answered: bool) -> Step:
    return decide(replace(row, cancel_requested_at=None), intent, is_answered=is_answered)


def _canceled_without_stripe(intent: StripeIntent, tools: Tools) -> StripeIntent:
    return replace(intent, status="canceled")


def _finalizes_first(row: Payment, tools: Tools) -> StripeIntent:
    intent = retrieve(str(row.payment_intent_id), tools)
    tools.payments.finalize(row, Finalize(PaymentState.SUCCEEDED, intent), now=tools.now())
    return confirm(row, tools)


def _takes(kind: ResponseKind) -> Mutate:
    """One kind of answer to a confirm is taken for a decline."""

    class Mistaken(PaymentIntents):
        def confirm(self, row: Payment) -> Response:
            response = super().confirm(row)
            is_it = response.failure is not None and response.failure.kind is kind
            return replace(response, failure=Failure(ResponseKind.DECLINED, code="mistaken")) if is_it else response

    return _asking(Mistaken)


# ---------------------------------------------------------------- release


class _Partial(Release):
    """A look that begins late: clocks may differ."""

    def _listed(self, since: int) -> Any:
        return super()._listed(self.stripe_now() - 3600)


class _OfAnyAccount(Release):
    def _require_our_account(self, *, without: str = "") -> bool:
        return True


def _releasing(mutant: type[Release]) -> Mutate:
    def mutate(world: World) -> None:
        make = world.service.release
        world.service.release = lambda *given: mutant(**vars(make(*given)))  # type: ignore[method-assign]

    return mutate


def _deciding_release(change: Callable[[list[StripeIntent]], list[StripeIntent]]) -> Mutate:
    """The operator's command passes over some of what it has found."""
    return _replacing(decide_release, lambda row, found, **named: decide_release(row, change(list(found)), **named))


def _as_agreed(row: Payment, found: Any, *, shop: str, of: str | None = None) -> Any:
    """What does not agree counts as if it did."""
    request = row.request
    agreed = {"shop": shop, "order_id": request.order_id, "customer_id": request.customer_id}
    money = {"amount_minor": request.amount_minor, "currency": request.currency}
    return decide_release(row, [replace(each, **agreed, **money) for each in found], shop=shop, of=of)


def _released_at_once(row: Payment, order: Any, now: int, **_: Any) -> dict[str, Any]:
    return {"released_at": now, "held_because": None}


def _restores_everything(world: World) -> None:
    world.restored_loses = ()


# ---------------------------------------------------------------- Stripe's later word


def _differing(change: Callable[[Payment | None, StripeIntent, Difference | None], Difference | None]) -> Mutate:
    def mutant(row: Payment | None, intent: StripeIntent, **named: Any) -> Difference | None:
        return change(row, intent, find_difference(row, intent, **named))

    return _replacing(find_difference, mutant)


def _late_truth_is_ignored(row: Payment | None, _: StripeIntent, found: Difference | None) -> Difference | None:
    return None if row and row.state is PaymentState.DECLINED else found


def _lost_rows_stay_lost(row: Payment | None, _: StripeIntent, found: Difference | None) -> Difference | None:
    return None if row is None else found


def _nothing_expires(_: Payment | None, __: StripeIntent, found: Difference | None) -> Difference | None:
    return None if found and found.expires else found


def _forgets_what_followed(row: Payment | None, _: StripeIntent, found: Difference | None) -> Difference | None:
    return None if row and row.state is PaymentState.SUCCEEDED else found


def _believes_the_description(row: Payment | None, intent: StripeIntent, **named: Any) -> Difference | None:
    return find_difference(row, replace(intent, is_described=True), **named)


def _of_any_shop(world: World) -> None:
    """The shop in an event is not compared."""

    def parsed(event: Any) -> Any:
        found = parse_event(event)
        return found and replace(found, shop=world.service.stripe.shop)

    def compared(row: Payment | None, intent: StripeIntent, *, shop: str, **named: Any) -> Difference | None:
        return find_difference(row, intent, shop=intent.shop, **named)

    world.service.replaced |= {parse_event: parsed, find_difference: compared}


def _events_are_read_once(world: World) -> None:
    """Each run lists from where the last one ended, by that one's clock."""
    v1: Any = world.service.stripe.client.v1

    def listed(given: Any, *options: Any) -> Any:
        created = {**given["created"], "gte": given["created"]["gte"] + REREAD_SECONDS}
        return v1.events.list({**given, "created": created}, *options)

    client: Any = SimpleNamespace(v1=SimpleNamespace(**{**vars(v1), "events": SimpleNamespace(list=listed)}))
    world.service.stripe = replace(world.service.stripe, client=client)


def _dlq_after_three_receives(world: World) -> None:
    world.max_receive_count = 3


def _open_is_passed_over(found: list[StripeIntent]) -> list[StripeIntent]:
    return [each for each in found if not each.is_open]


def _canceled_is_passed_over(found: list[StripeIntent]) -> list[StripeIntent]:
    return [each for each in found if each.status != "canceled"]


_CLAIM = (
    "attribute_not_exists(order_id) OR (attempt = :attempt AND #state = :pending AND lease_expires_at <= :now) OR "
    "(attempt < :attempt AND (#state = :declined OR (#state = :pending AND lease_expires_at <= :now)))"
)

MUTANTS: Mapping[str, Mutate] = {
    "no condition on the claim": _without(_CLAIM),
    "the id is stored without the lease": _storing(_StoresAsAnybody),
    "the id is stored after the confirm": _replacing(create, _confirms_before_it_is_stored),
    "finalized without the lease": _storing(_FinalizesAsAnybody),
    "declined though to be canceled": _without(" AND attribute_not_exists(cancel_requested_at)"),
    "finalized before it is confirmed": _replacing(confirm, _finalizes_first),
    "a revision only counts": _replacing(next_revision, lambda row, now: row.revision),
    "created at any age": _replacing(may_create, lambda row, now: True),
    "a random key for each create": _with_keys("create", _random),
    "a PaymentIntent that takes no cards is confirmed": _asking(_Unfiltered),
    "a new key for each confirm": _with_keys("confirm", _random),
    "declined after a person canceled": _deciding(_goes_on_after_canceled),
    "a request to cancel is overlooked": _replacing(decide, _overlooks_the_request),
    "canceled without Stripe": _replacing(cancel, _canceled_without_stripe),
    "no answer taken for a decline": _takes(ResponseKind.NO_ANSWER),
    "a 503 taken for a decline": _takes(ResponseKind.RETRYABLE),
    "a wrong API key taken for a decline": _takes(ResponseKind.ACCOUNT),
    "duplicates acknowledged under a live lease": _acknowledging(RetryAfter),
    "unknown outcomes acknowledged": _acknowledging(BackOff),
    "to the DLQ after three receives": _dlq_after_three_receives,
    "released without a look": _deciding_release(lambda found: []),
    "a look that begins late": _releasing(_Partial),
    "a cancellation found is passed over": _deciding_release(_canceled_is_passed_over),
    "what is open is passed over": _deciding_release(_open_is_passed_over),
    "what does not agree is released": _replacing(decide_release, _as_agreed),
    "released with another account's key": _releasing(_OfAnyAccount),
    "released while a slow clock may create": _replacing(release_without, _released_at_once),
    "released, and no new window": _replacing(release_without, lambda *_, **__: {}),
    "a restored release counts": _restores_everything,
    "held, and nobody knows": _replacing(is_held, lambda row, now: False),
    "sync ignores the revision": _without("revision = :read"),
    "late truth is ignored": _differing(_late_truth_is_ignored),
    "a lost success stays lost": _differing(_lost_rows_stay_lost),
    "3-D Secure never expires": _differing(_nothing_expires),
    "refunds and disputes are ignored": _differing(_forgets_what_followed),
    "edited metadata is believed": _replacing(find_difference, _believes_the_description),
    "another shop's event counts": _of_any_shop,
    "events are read once": _events_are_read_once,
}
"""Each has to be caught; `make mutants` says after how many schedules."""
