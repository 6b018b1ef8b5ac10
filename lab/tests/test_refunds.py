"""Refunds in a hostile world: each once, never more than was paid, and the order says what Stripe shows."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from lab.simulation.explore import explored
from lab.simulation.refunding import ORDER_REFUNDS, Break, RefundWorld, refund_world
from lab.simulation.service import ORDERS, WEBHOOK_BOUNDS
from lab.simulation.stored import is_caught
from onecharge.orders.refund_store import OrderRefundStore, _is_still, pending_minor
from onecharge.orders.schema import StoredOrder
from onecharge.payments.refund import _write_sent
from onecharge.payments.refund_rules import REFUSED, Sent, StripeRefund, after_refusal, decide, own
from onecharge.payments.stripe_events import StripeEvent
from onecharge.payments.stripe_responses import ResponseKind, classify
from onecharge.payments.sync import sync, sync_row
from orders_api.refund_order import is_refundable_despite
from tests.shop.dynamodb import TransactionCanceled
from tests.support.silent import SILENT
from update_order.refunds import is_later

SCHEDULES, SCHEDULES_NIGHTLY = 240, 3_000
SCHEDULES_FOR_A_MUTANT = 3_000
MET = {
    *("crash before the effect", "crash after the effect", "killed at the time-out", "zombie", "delay"),
    *("clock differs", "API key of another account", "by hand", "by hand, in our name", "bank returns", "held"),
    *("disputed", "put back", "late duplicate", "record lost", "Republished", "sns Publish: refused"),
    *("stripe: key pruned", "stripe: the list lacks a refund", "stripe refund: balance too low"),
    *("stripe refund: 500, executed 23 hours later", "dynamodb TransactWriteItems: answer lost"),
    *("dynamodb TransactWriteItems: transaction conflict", "refund: more-than-is-left", "refund: disputed"),
    *("ended: SUCCEEDED", "ended: FAILED", "ended: FAILED at Stripe", "alarm: Overdue"),
}
"""Everything that a schedule of refunds may meet."""


def test_no_schedule_of_refunds_breaks_an_invariant(is_nightly: bool) -> None:
    """Each refund once, none that was told to be refused, no more accepted than paid; in the end all agree."""
    findings = explored(range(SCHEDULES_NIGHTLY if is_nightly else SCHEDULES), partial(refund_world, 1), seed=1)
    assert not findings.violations, findings.violations[0]
    assert MET - findings.coverage.keys() == set()


# ---------------------------------------------------------------- mutants


def _replacing(function: Callable[..., Any], mutant: Callable[..., Any]) -> Break:
    return lambda world: world.service.replaced.update({function: mutant})


def _deciding(**changes: Any) -> Break:
    """The worker decides without one of the things that it has read."""
    return _replacing(decide, lambda wanted, listed, **given: decide(wanted, listed, **{**given, **changes}))


def _ignoring(condition: str) -> Break:
    return lambda world: world.dynamodb.ignored_conditions.append(condition)


def _without_total(world: RefundWorld) -> None:
    find = world.find_order
    world.find_order = lambda order_id: find(order_id).model_copy(update={"stripe_refunded_minor": 0})  # type: ignore[method-assign]


def _another_key_each_time(world: RefundWorld) -> None:
    v1: Any = world.service.stripe.client.v1
    number = iter(range(10**6))

    def create(given: Any, options: Any) -> Any:
        return v1.refunds.create(given, {**options, "idempotency_key": f"another {next(number)}"})

    refunds = SimpleNamespace(create=create, list=v1.refunds.list)
    client: Any = SimpleNamespace(v1=SimpleNamespace(**{**vars(v1), "refunds": refunds}))
    world.service.stripe = replace(world.service.stripe, client=client)


def _sends_what_is_refused(wanted: Any, listed: Any, *, sent: Sent, **given: Any) -> Any:
    return decide(wanted, listed, sent=sent._replace(code=None), **given)


def _refused_at_once(wanted: Any, sent: Sent, _: int) -> StripeRefund:
    return StripeRefund(None, REFUSED, wanted.amount_minor, wanted.currency, wanted.refund_id, sent.code)


def _tells_before_it_syncs(world: RefundWorld) -> None:
    def lazy(order_id: str, payment_intent_id: str, tools: Any, **how: Any) -> Any:
        if world.current is None or world.current.message is None:
            return sync_row(order_id, payment_intent_id, tools, **how)
        return tools.payments.read(order_id)

    world.service.replaced[sync_row] = lazy


def _one_after_the_other(world: RefundWorld) -> None:
    """Refund and order are not written in one transaction."""
    dynamodb = world.dynamodb

    def write(*, TransactItems: Any) -> None:
        for [(name, given)] in map(dict.items, TransactItems):
            try:
                getattr(dynamodb, f"{name.lower()}_item")(**given)
            except dynamodb.exceptions.ConditionalCheckFailedException:
                reasons: Any = [{"Code": "ConditionalCheckFailed"}]
                raise TransactionCanceled({"CancellationReasons": reasons}, "x") from None

    client = SimpleNamespace(transact_write_items=write, query=dynamodb.query, exceptions=dynamodb.exceptions)
    world.refund_store = OrderRefundStore(client, ORDER_REFUNDS, ORDERS)  # type: ignore[arg-type]


def _an_older_total(world: RefundWorld) -> None:
    """The total counts whatever its revision."""

    class Credulous(OrderRefundStore):
        def write_outcome(self, order: StoredOrder, refunds: Any, refund: Any, outcome: Any, to: Any) -> bool:
            newer = outcome.model_copy(update={"revision": max(outcome.revision, order.payment_revision + 1)})
            return super().write_outcome(order, refunds, refund, newer, to)

    world.refund_store = Credulous(**vars(world.refund_store))


def _is_any(name: str, read: int) -> str:
    return (
        f"(attribute_exists(order_id) OR {name} = :was_{name})" if name == "refunds_revision" else _is_still(name, read)
    )


def _silent(name: str) -> Break:
    return lambda world: setattr(world, name, lambda: None)


def _no_later_word(world: RefundWorld) -> None:
    def deaf(event: StripeEvent, report: Callable[[str], None]) -> None:
        sync(event, world.service.tools(WEBHOOK_BOUNDS, report))

    world.service.apply_event = deaf


def _nobody_is_alarmed(world: RefundWorld) -> None:
    world.service.logger = SILENT


MUTANTS: Mapping[str, Break] = {
    "another key each time": _another_key_each_time,
    "the list is not compared with the charge": _deciding(amount_refunded_minor=0),
    "its own is not looked up": _replacing(own, lambda refund_id, listed: None),
    "sent without a word in the row": _replacing(_write_sent, lambda *_: True),
    "the word in the row ignores its revision": _ignoring("revision = :read"),
    "a refusal is told while a request is open": _replacing(after_refusal, _refused_at_once),
    "what was refused is sent again": _replacing(decide, _sends_what_is_refused),
    "every failure is a refusal": _replacing(
        classify, lambda error: replace(classify(error), kind=ResponseKind.REFUND_REFUSED)
    ),
    "told before the row is synced": _tells_before_it_syncs,
    "outcomes by arrival": _replacing(is_later, lambda *_: True),
    "what waits is not counted": _replacing(pending_minor, lambda refunds: 0),
    "what Stripe has refunded is not counted": _without_total,
    "a total counts whatever its revision": _an_older_total,
    "two writes instead of one transaction": _one_after_the_other,
    "the order may have changed": _replacing(_is_still, _is_any),
    "a dispute is overlooked": _replacing(is_refundable_despite, lambda status: True),
    "Stripe's later word is not told": _no_later_word,
    "nothing is published again": _silent("republish"),
    "nobody is alarmed": _nobody_is_alarmed,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_refund_is_caught(name: str) -> None:
    """Each mutant, by the schedule that is stored for it or by another one of its scenario."""
    make = lambda scenario, number: refund_world(1, number, MUTANTS[name], of=scenario)  # noqa: E731
    assert is_caught("refunds", name, make, schedules=SCHEDULES_FOR_A_MUTANT), f"not caught: {name}"
