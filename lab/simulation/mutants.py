"""The protocol, broken on purpose in one place each: schedules of its kind must catch every one of them."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from lab.simulation.both_services import ORDER_REFUNDS
from lab.simulation.service import DECLINED, ORDERS, PAID
from lab.simulation.world import Mutate
from onecharge.contract.refund_events import is_refundable_despite
from onecharge.orders.refund_schema import rank
from onecharge.orders.refund_store import OrderRefundStore, _is_still, left_minor
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charge import confirm, create
from onecharge.payments.charge_rules import Outcome, Step, decide, final_changes, is_held, may_create
from onecharge.payments.payments_table import Payment, WriteRefused, next_revision
from onecharge.payments.refund import _write_sent, tell_later_word
from onecharge.payments.refund_rules import Sent, own
from onecharge.payments.refund_rules import decide as decide_refund
from onecharge.payments.stripe_errors import classify
from onecharge.payments.stripe_events import parse_event
from onecharge.payments.stripe_responses import Failure, Response, ResponseKind, StripeIntent
from onecharge.payments.sync import sync_row
from onecharge.payments.sync_rules import Difference, find_difference
from onecharge.payments.tools import Tools
from onecharge.runtime.consumer import BackOff, Disposition, Done, RetryAfter
from ops.release import changes_without as release_without
from ops.release import decide as decide_release
from reconcile.run import REREAD_SECONDS
from tests.shop.builders import T0
from tests.shop.dynamodb import TransactionCanceled
from tests.support.silent import SILENT

# ---------------------------------------------------------------- how a part is replaced


def _replacing(function: Callable[..., Any], mutant: Callable[..., Any]) -> Mutate:
    """Every caller of the function calls this one."""

    def mutate(world: Any) -> None:
        world.service.replaced[function] = mutant

    return mutate


def _deciding(change: Callable[[StripeIntent, Step], Step]) -> Mutate:
    """The worker's decision about a PaymentIntent is another one."""
    return _replacing(decide, lambda row, intent, **named: change(intent, decide(row, intent, **named)))


def _without(*conditions: str) -> Mutate:
    """These parts are left out of the conditions of all writes."""

    def mutate(world: Any) -> None:
        world.dynamodb.ignored_conditions.extend(conditions)

    return mutate


def _acknowledging(kind: type[Disposition]) -> Mutate:
    """Deliveries that are to come back in this way are acknowledged."""

    def mutate(world: Any) -> None:
        world.service.acknowledge = lambda disposition: Done() if isinstance(disposition, kind) else disposition

    return mutate


def _with(requests: str, name: str, make: Callable[[Any], Callable[..., Any]]) -> Mutate:
    """The SDK's client has another one of these requests, such as `refunds.create`; `make` is given the present one."""

    def mutate(world: Any) -> None:
        v1 = world.service.stripe.client.v1
        present = getattr(v1, requests)
        changed = SimpleNamespace(**{**vars(present), name: make(getattr(present, name))})
        client: Any = SimpleNamespace(v1=SimpleNamespace(**{**vars(v1), requests: changed}))
        world.service.stripe = replace(world.service.stripe, client=client)

    return mutate


_NUMBERS = itertools.count()


def _with_new_keys(requests: str, name: str) -> Mutate:
    """Each request has a key of its own."""

    def make(send: Any) -> Callable[..., Any]:
        def sent(*arguments: Any) -> Any:
            *others, options = arguments
            return send(*others, {"idempotency_key": f"{options['idempotency_key']}:{next(_NUMBERS)}"})

        return sent

    return _with(requests, name, make)


def _setting(name: str, value: Any) -> Mutate:
    """An attribute of the world has this value."""
    return lambda world: setattr(world, name, value)


def _another(part: Any, name: str, change: Callable[..., Any]) -> Any:
    """The part with another method of this name: `change` is given the part, the present method, its arguments."""

    class Mutant(type(part)):  # type: ignore[misc]
        pass

    def called(self: Any, *given: Any, **named: Any) -> Any:
        return change(self, partial(getattr(super(Mutant, self), name), **named), *given)

    setattr(Mutant, name, called)
    return Mutant(**vars(part))


def _whose(part: str, name: str, change: Callable[..., Any]) -> Mutate:
    """The service's store, its gateway to Stripe, or the release command has another method of this name."""

    def mutate(world: Any) -> None:
        present: Any = getattr(world.service, part)
        makes = part == "release"
        mutant = (lambda *given: _another(present(*given), name, change)) if makes else _another(present, name, change)
        setattr(world.service, part, mutant)

    return mutate


# ---------------------------------------------------------------- claim, create


def _as_anybody(store: Any, write: Callable[..., Any], row: Payment, *given: Any) -> Any:
    """Whoever has the lease."""
    present = store.read(row.request.order_id) or row
    return write(replace(row, lease_owner=present.lease_owner, attempt=present.attempt), *given)


def _taking_cards(_: Any, create: Callable[..., Response], *given: Any) -> Response:
    """A PaymentIntent that takes no cards is confirmed: each customer is told to try another card."""
    response = create(*given)
    return replace(response, intent=response.intent and replace(response.intent, takes_cards=True))


def _confirms_before_it_is_stored(row: Payment, tools: Tools) -> StripeIntent | Outcome:
    created = create(row, tools)
    return (
        created
        if isinstance(created, Outcome)
        else confirm(replace(row, payment_intent_id=created.payment_intent_id), tools)
    )


# ---------------------------------------------------------------- decide, confirm, cancel


def _canceled_without_stripe(stripe: Any, _: Callable[..., Response], intent_id: str, reason: str) -> Response:
    response: Response = stripe.retrieve(intent_id)
    return replace(response, intent=response.intent and replace(response.intent, status="canceled"))


def _finalizes_first(row: Payment, tools: Tools) -> StripeIntent:
    intent = tools.fetch_intent(str(row.payment_intent_id))
    changes = final_changes(Outcome(PAID, intent), tools.now())
    tools.payments.finalize(row, changes, now=tools.now())
    return confirm(row, tools)


def _takes(kind: ResponseKind) -> Mutate:
    """One kind of answer to a confirm is taken for a decline."""

    def mistaken(_: Any, confirm: Callable[..., Response], *given: Any) -> Response:
        response = confirm(*given)
        is_it = response.failure is not None and response.failure.kind is kind
        return replace(response, failure=Failure(ResponseKind.DECLINED, code="mistaken")) if is_it else response

    return _whose("stripe", "confirm", mistaken)


# ---------------------------------------------------------------- release


def _looking(sees: Callable[[StripeIntent], bool]) -> Mutate:
    """The operator's command passes over some of what it has found."""
    return _replacing(decide_release, lambda row, found, **named: decide_release(row, [*filter(sees, found)], **named))


def _as_agreed(row: Payment, found: Any, *, shop: str, of: str | None = None) -> Any:
    """What does not agree counts as if it did."""
    request = row.request
    agreed = {"shop": shop, "order_id": request.order_id, "customer_id": request.customer_id}
    money = {"amount_minor": request.amount_minor, "currency": request.currency}
    return decide_release(row, [replace(each, **agreed, **money) for each in found], shop=shop, of=of)


# ---------------------------------------------------------------- later changes at Stripe


def _differing(is_ignored: Callable[[Payment | None, Difference], object]) -> Mutate:
    """A difference between a row and Stripe is ignored, if this says so."""

    def mutant(row: Payment | None, intent: StripeIntent, **named: Any) -> Difference | None:
        found = find_difference(row, intent, **named)
        return None if found and is_ignored(row, found) else found

    return _replacing(find_difference, mutant)


def _of_any_shop(world: Any) -> None:
    """The shop in an event is not compared."""

    def parsed(event: Any) -> Any:
        found = parse_event(event)
        return found and replace(found, shop=world.service.stripe.shop)

    def compared(row: Payment | None, intent: StripeIntent, *, shop: str, **named: Any) -> Difference | None:
        return find_difference(row, intent, shop=intent.shop, **named)

    world.service.replaced |= {parse_event: parsed, find_difference: compared}


def _listed_once(list_events: Any) -> Callable[..., Any]:
    """Each run lists from where the last one ended, by that one's clock."""

    def listed(given: Any, *options: Any) -> Any:
        created = {**given["created"], "gte": given["created"]["gte"] + REREAD_SECONDS}
        return list_events({**given, "created": created}, *options)

    return listed


_CLAIM = (
    "attribute_not_exists(order_id) OR (attempt = :attempt AND #state = :pending AND lease_expires_at <= :now) OR "
    "(attempt < :attempt AND (#state = :declined OR (#state = :pending AND lease_expires_at <= :now)))"
)

_CHARGES: Mapping[str, Mutate] = {
    "no condition on the claim": _without(_CLAIM),
    "the id is stored without the lease": _whose("store", "store_id", _as_anybody),
    "the id is stored after the confirm": _replacing(create, _confirms_before_it_is_stored),
    "finalized without the lease": _whose("store", "finalize", _as_anybody),
    "declined though to be canceled": _without(" AND attribute_not_exists(cancel_requested_at)"),
    "finalized before it is confirmed": _replacing(confirm, _finalizes_first),
    "a revision only counts": _replacing(next_revision, lambda row, now: row.revision),
    "created at any age": _replacing(may_create, lambda row, now: True),
    "a random key for each create": _with_new_keys("payment_intents", "create"),
    "a PaymentIntent that takes no cards is confirmed": _whose("stripe", "create", _taking_cards),
    "a new key for each confirm": _with_new_keys("payment_intents", "confirm"),
    "declined after a person canceled": _deciding(
        lambda intent, step: Outcome(DECLINED, intent, "canceled") if intent.status == "canceled" else step
    ),
    "a request to cancel is overlooked": _replacing(
        decide, lambda row, *given, **named: decide(replace(row, cancel_requested_at=None), *given, **named)
    ),
    "canceled without Stripe": _whose("stripe", "cancel", _canceled_without_stripe),
    "no answer taken for a decline": _takes(ResponseKind.NO_ANSWER),
    "a 503 taken for a decline": _takes(ResponseKind.RETRYABLE),
    "a wrong API key taken for a decline": _takes(ResponseKind.ACCOUNT),
    "duplicates acknowledged under a live lease": _acknowledging(RetryAfter),
    "unknown outcomes acknowledged": _acknowledging(BackOff),
    "to the DLQ after three receives": _setting("max_receive_count", 3),
    "released without a look": _looking(lambda _: False),
    "a look that begins late": _whose(
        "release", "_listed", lambda release, listed: listed(since=release.stripe_now() - 3600)
    ),
    "a cancellation found is passed over": _looking(lambda each: each.status != "canceled"),
    "what is open is passed over": _looking(lambda each: not each.is_open),
    "what does not agree is released": _replacing(decide_release, _as_agreed),
    "released with another account's key": _whose("release", "_require_our_account", lambda *_: True),
    "released while a slow clock may create": _replacing(
        release_without, lambda row, order, now, **_: {"released_at": now, "held_because": None}
    ),
    "released, and no new window": _replacing(release_without, lambda *_, **__: {}),
    "a restored release counts": _setting("restored_loses", ()),
    "held, and nobody knows": _replacing(is_held, lambda row, now: False),
    "sync ignores the revision": _without("revision = :read"),
    "late truth is ignored": _differing(lambda row, _: row and row.state is DECLINED),
    "a lost success stays lost": _differing(lambda row, _: row is None),
    "3-D Secure never expires": _differing(lambda _, found: found.expires),
    "edited metadata is believed": _replacing(
        find_difference, lambda row, intent, **named: find_difference(row, replace(intent, is_described=True), **named)
    ),
    "another shop's event counts": _of_any_shop,
    "events are read once": _with("events", "list", _listed_once),
}

# ---------------------------------------------------------------- refunds


def _closing(is_forgotten: Callable[[Sent], bool]) -> Mutate:
    """The worker decides as if nothing was sent before."""

    def decided(*of: Any, sent: Sent, **given: Any) -> Any:
        return decide_refund(*of, sent=sent._replace(since=0) if is_forgotten(sent) else sent, **given)

    return _replacing(decide_refund, decided)


def _forgets_refusals(world: Any) -> None:
    """Once it is told."""

    def decided(wanted: Any, *listed: Any, sent: Sent, **given: Any) -> Any:
        code = None if wanted.refund_id in world.refused else sent.code
        return decide_refund(wanted, *listed, sent=sent._replace(code=code), **given)

    world.service.replaced[decide_refund] = decided


def _without_total(world: Any) -> None:
    find = world.find_order
    world.find_order = lambda order_id: find(order_id).model_copy(update={"stripe_refunded_minor": 0})


def _tells_before_it_syncs(world: Any) -> None:
    def lazy(order_id: str, payment_intent_id: str, tools: Any, **how: Any) -> Any:
        if world.current is None or world.current.message is None:
            return sync_row(order_id, payment_intent_id, tools, **how)
        return tools.payments.read(order_id)

    world.service.replaced[sync_row] = lazy


def _one_after_the_other(world: Any) -> None:
    """Refund and order are not written in one transaction."""
    dynamodb = world.dynamodb

    def write(*, TransactItems: Any) -> None:
        for [(name, given)] in map(dict.items, TransactItems):
            try:
                getattr(dynamodb, f"{name.lower()}_item")(**given)
            except dynamodb.exceptions.ConditionalCheckFailedException:
                reasons: Any = [{"Code": "ConditionalCheckFailed"}]
                raise TransactionCanceled({"CancellationReasons": reasons}, "x") from None

    client: Any = SimpleNamespace(transact_write_items=write, query=dynamodb.query, exceptions=dynamodb.exceptions)
    world.refund_store = OrderRefundStore(client, ORDER_REFUNDS, ORDERS)


class _Credulous(OrderRefundStore):
    """The total counts whatever its revision."""

    def store_outcome(self, refund: Any, order: StoredOrder, outcome: Any) -> bool:
        newer = outcome.model_copy(update={"revision": max(outcome.revision, order.payment_revision + 1)})
        return super().store_outcome(refund, order, newer)


def _is_any(name: str, read: int) -> str:
    still = _is_still(name, read)
    return f"(attribute_exists(order_id) OR {name} = :was_{name})" if name == "refunds_revision" else still


_REFUNDS: Mapping[str, Mutate] = {
    "another key each time": _with_new_keys("refunds", "create"),
    "its own is not looked up": _replacing(own, lambda refund_id, listed: None),
    "sent without a word in the row": _replacing(
        _write_sent, lambda row, id_, sent, tools: _write_sent(row, id_, sent, tools) if sent.code else None
    ),
    "the word in the row ignores its revision": _without("revision = :read"),
    "a refusal is told while a request is open": _closing(lambda sent: bool(sent.code)),
    "sent while the list may lack it": _closing(lambda sent: not sent.code),
    "a refusal answers every request": _replacing(
        _write_sent,
        lambda row, id_, sent, tools: _write_sent(row, id_, Sent(code=sent.code) if sent.code else sent, tools),
    ),
    "what was refused is sent again": _forgets_refusals,
    "every failure is a refusal": _replacing(
        classify, lambda error: replace(classify(error), kind=ResponseKind.REFUND_REFUSED)
    ),
    "told before the row is synced": _tells_before_it_syncs,
    "outcomes by arrival": _replacing(rank, lambda _: -next(_NUMBERS)),
    "what waits is not counted": _replacing(
        left_minor, lambda order, refunds: left_minor(order, [each for each in refunds if rank(each)])
    ),
    "what Stripe has refunded is not counted": _without_total,
    "a total counts whatever its revision": lambda world: setattr(
        world, "refund_store", _Credulous(**vars(world.refund_store))
    ),
    "two writes instead of one transaction": _one_after_the_other,
    "the order may have changed": _replacing(_is_still, _is_any),
    "a dispute is overlooked": _replacing(is_refundable_despite, lambda status: True),
    "Stripe's later word is not told": _replacing(tell_later_word, lambda *_: None),
    "nothing is published again": _setting("republish", lambda: None),
    "nobody is alarmed": lambda world: setattr(world.service, "logger", SILENT),
    "refunds and disputes are ignored": _differing(lambda row, _: row and row.state is PAID),
}

# ---------------------------------------------------------------- seams


def _as_if_just_emitted(_: Any, claim: Callable[..., Any], *given: Any) -> Any:
    try:
        return claim(*given)
    except WriteRefused as refused:
        row = refused.row
        is_superseded = row is not None and row.attempt > given[0].attempt
        raise WriteRefused(replace(row, last_emitted_at=2 * T0) if row and is_superseded else row) from None


_SEAMS: Mapping[str, Mutate] = {
    "an outcome counts whatever its money": _without(" AND amount_minor = :amount AND currency = :currency"),
    "outcomes by arrival": _without(" AND (attribute_not_exists(payment_revision) OR payment_revision < :revision)"),
    "the outcome of a later attempt is ignored": _without("attempt < :attempt OR "),
    "a superseded message emits nothing": _whose("store", "claim", _as_if_just_emitted),
    "a restore emits nothing": _setting("mends", lambda mending: []),
    "no operator comes": _setting("operate", lambda: None),
    # The number of writes, which begins anew with a row that was lost.
    "revisions only count": _setting("counts_revisions", True),
}

MUTANTS: Mapping[str, Mapping[str, Mutate]] = {"charges": _CHARGES, "refunds": _REFUNDS, "seams": _SEAMS}
"""By kind. Each has to be caught; `make mutants` says after how many schedules."""
