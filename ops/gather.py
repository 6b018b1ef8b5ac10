"""Reads everything that is known about one order: tables, DLQs, Stripe, checkpoints, mappings. Writes nothing.

Stripe is one of the facts: if it does not answer, the rest is still explained.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import stripe
from pydantic import ValidationError

from onecharge.contract.events import ORDER_ID_PATTERN, reason_of
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charges.gateway import StripeGateway, found_intent, list_refunds
from onecharge.payments.charges.protocol import FrozenRequest, Payment
from onecharge.payments.charges.store import payment_of
from onecharge.payments.processed_events import ProcessedEvents
from onecharge.payments.stripe_events import EVENT_TYPES
from onecharge.payments.stripe_responses import LookupInconclusive, classify, metadata_of, order_id_of
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import from_item, to_item
from onecharge.runtime.queues import DeadLetterAttribute
from ops.connection import Stack
from ops.dead_letters.letter import DeadLetter as Letter
from ops.dead_letters.queues import dlqs_of, reading
from ops.errors import ExitStatus, Problem
from ops.facts import (
    Charge,
    DeadLetter,
    Dispute,
    Facts,
    FailedRecord,
    IntentFacts,
    Source,
    StripeFacts,
    StripeRefund,
    UnprocessedEvent,
)
from ops.failed_records import Bucket
from ops.failed_records import FailedRecord as PutAside
from ops.refund_gather import refund_facts
from reconcile.checkpoint import ReconcileCheckpoint
from republish.republish import RepublishCheckpoint

SCAN_PAGES_MAX = 200
"""Pages of 1 MB that are searched for a correlation id, which no index has."""
MESSAGES_MAX = 1_000
"""Messages that are read of each DLQ; with more in it, the facts are incomplete, and say so."""
FAILED_RECORDS_MAX = 1_000
"""Failed stream records that are read, of all orders."""
EVENTS_AGE_SECONDS = 29 * 24 * 3600
"""Stripe keeps events for 30 days."""
_EVENT_PAGES_MAX = 10
_SOURCES = {
    "PublishEventsFunction": ("OrdersTable", "PaymentsTable", "OrderRefundsTable", "RefundsTable"),
    "ChargeOrderFunction": ("PaymentsQueue",),
    "UpdateOrderFunction": ("OrderUpdatesQueue",),
    "RefundChargeFunction": ("RefundsQueue",),
}
"""Who reads what, by logical ids; one that the stack lacks is left out."""


def order_id_of_reference(stack: Stack, given: str) -> str:
    """The order that an order id, a PaymentIntent's id or a correlation id means. Raises Problem."""
    if re.match(ORDER_ID_PATTERN, given):
        return given
    if re.fullmatch(r"pi_\w+", given):
        try:
            found = order_id_of(stack.stripe.v1.payment_intents.retrieve(given))
        except stripe.InvalidRequestError as error:
            raise Problem(f"Stripe has no PaymentIntent {given}: {classify(error).kind}", ExitStatus.FOUND) from None
        if found is None:
            raise Problem(f"{given} is not of this application: its metadata names no order", ExitStatus.FOUND)
        return found
    return _order_of_correlation_id(stack, given)


def _order_of_correlation_id(stack: Stack, correlation_id: str) -> str:
    paginator = stack.dynamodb.get_paginator("scan")
    pages = paginator.paginate(
        TableName=stack.resource("OrdersTable"),
        FilterExpression="correlation_id = :id",
        ExpressionAttributeValues=to_item({":id": correlation_id}),
        ProjectionExpression="order_id",
    )
    for number, page in enumerate(pages, 1):
        if page["Items"]:
            return str(page["Items"][0]["order_id"]["S"])
        if number >= SCAN_PAGES_MAX:
            raise Problem(f"no order with correlation id {correlation_id} in the first {number} MB: use its order id")
    raise Problem(
        f"{correlation_id}: no order id (ord_…), PaymentIntent (pi_…), or correlation id of an order", ExitStatus.FOUND
    )


@dataclass(frozen=True)
class Surroundings:
    """What is the same for every order of the stack."""

    now: int
    dead_letters: list[Letter]
    are_dead_letters_complete: bool
    failed_records: list[PutAside]
    sources: tuple[Source, ...]
    republish: RepublishCheckpoint | None
    reconcile: ReconcileCheckpoint | None
    requires_action_seconds: int


def surroundings(stack: Stack, *, now: int) -> Surroundings:
    """Read once, however many orders are explained."""
    letters, is_complete = _letters(stack)
    return Surroundings(
        now=now,
        dead_letters=letters,
        are_dead_letters_complete=is_complete,
        failed_records=list(islice(Bucket(stack).records(), FAILED_RECORDS_MAX)),
        sources=tuple(_sources(stack)),
        republish=CheckpointStore(stack.dynamodb, stack.resource("OrdersStateTable"), RepublishCheckpoint).read(),
        reconcile=CheckpointStore(stack.dynamodb, stack.resource("PaymentsStateTable"), ReconcileCheckpoint).read(),
        requires_action_seconds=int(stack.parameter("RequiresActionSeconds")),
    )


def gather(stack: Stack, order_id: str, *, now: int) -> Facts:
    """All that is known about the order now, Stripe included."""
    facts = facts_of(stack, order_id, surroundings(stack, now=now))
    at_stripe = stripe_facts(stack, order_id, facts.order, facts.payment, now)
    return replace(
        facts,
        stripe=at_stripe,
        refunds=refund_facts(stack, order_id, at_stripe),
        unprocessed_events=_unprocessed_events(stack, at_stripe, now),
    )


def facts_of(stack: Stack, order_id: str, around: Surroundings) -> Facts:
    """What the tables and the DLQs know about the order."""
    order, order_error = _order(stack, order_id)
    row = _item(stack, "PaymentsTable", {"order_id": order_id})
    return Facts(
        now=around.now,
        order_id=order_id,
        order=order,
        order_error=order_error,
        payment=payment_of(row) if row else None,
        row=from_item(row) if row else {},
        dead_letters=tuple(_dead_letter(each) for each in around.dead_letters if order_id in each.body),
        are_dead_letters_complete=around.are_dead_letters_complete,
        failed_records=tuple(_failed_records(stack, around.failed_records, order_id)),
        sources=around.sources,
        republish=around.republish,
        reconcile=around.reconcile,
        requires_action_seconds=around.requires_action_seconds,
        refunds=refund_facts(stack, order_id, None),
    )


# ---------------------------------------------------------------- tables


def _item(stack: Stack, logical_id: str, key: dict[str, str]) -> Any:
    table = stack.resource(logical_id)
    return stack.dynamodb.get_item(TableName=table, Key=to_item(key), ConsistentRead=True).get("Item")


def _order(stack: Stack, order_id: str) -> tuple[StoredOrder | None, str | None]:
    item = _item(stack, "OrdersTable", {"order_id": order_id})
    if item is None:
        return None, None
    try:
        order = StoredOrder.from_item(item)
        _ = order.present_attempt
    except ValidationError as invalid:
        return None, reason_of(invalid)
    return order, None


# ---------------------------------------------------------------- queues and mappings


def _failed_records(stack: Stack, records: list[PutAside], order_id: str) -> Iterator[FailedRecord]:
    """Those of the order's own items."""
    tables = {stack.resource(name): name for name in ("OrdersTable", "PaymentsTable")}
    for each in records:
        if each.item_key.get("order_id") == {"S": order_id}:
            table = tables.get(each.table, each.table)
            yield FailedRecord(key=each.key, table=table, since=each.since, reason=each.reason)


def _letters(stack: Stack) -> tuple[list[Letter], bool]:
    """What the DLQs hold, and whether that is all: each message is hidden for the moment of the read.

    Source queues are not received from: that would raise the receive count, which ends at maxReceiveCount, and hide
    the message from its function. A DLQ has no redrive policy.
    """

    def read(dlq: str) -> tuple[list[Letter], bool]:
        with reading(stack, dlq, limit=MESSAGES_MAX) as opened:
            letters = [letter for batch in opened.batches() for letter in batch]
        return letters, not opened.unseen

    with ThreadPoolExecutor(len(dlqs_of(stack)) or 1) as threads:  # Each waits a second for what may still come.
        found = list(threads.map(read, dlqs_of(stack)))
    return [letter for letters, _ in found for letter in letters], all(is_all for _, is_all in found)


def _dead_letter(letter: Letter) -> DeadLetter:
    # A poison message may be no event: whatever names the order is about it.
    is_ours = DeadLetterAttribute.REASON in letter.attributes
    return DeadLetter(
        queue=letter.dlq,
        message_id=letter.message_id,
        sent_at=int(letter.sent_at.timestamp()),
        event_type=letter.event_type,
        reason=letter.reason if is_ours else None,
    )


def _sources(stack: Stack) -> Iterator[Source]:
    """Mappings may be of an alias of the function: they are found by what they read."""
    # The last part of a queue's URL is its name, as of its ARN; a stream's ARN has the table's name in it.
    readers = {
        stack.resource(logical_id).split("/")[-1]: (logical_id, function)
        for function, logical_ids in _SOURCES.items()
        for logical_id in logical_ids
        if stack.has_resource(logical_id)
    }
    pages = stack.functions.get_paginator("list_event_source_mappings").paginate()
    for mapping in (each for page in pages for each in page["EventSourceMappings"]):
        parts = re.split(r"[:/]", mapping.get("EventSourceArn", ""))
        logical_id, function = next((readers[part] for part in parts if part in readers), ("", ""))
        if logical_id:
            yield Source(
                source=logical_id,
                function=function,
                uuid=mapping["UUID"],
                is_enabled=mapping.get("State", "Enabled") not in ("Disabled", "Disabling"),
                last_result=mapping.get("LastProcessingResult", ""),
            )


# ---------------------------------------------------------------- Stripe


def stripe_facts(
    stack: Stack, order_id: str, order: StoredOrder | None, payment: Payment | None, now: int
) -> StripeFacts:
    """Every PaymentIntent of the order, by the row's id and by a lookup."""
    client = stack.stripe
    intents: dict[str, IntentFacts] = {}
    is_complete = True
    try:
        if payment and payment.payment_intent_id:
            try:
                intents[payment.payment_intent_id] = _intent_facts(client, payment.payment_intent_id)
            except stripe.InvalidRequestError as error:
                if error.http_status != 404:
                    raise
        request = payment.request if payment else _request_of(order_id, order)
        try:
            found = StripeGateway(client).find_payment_intents(request, now=now)
        except LookupInconclusive:
            found, is_complete = [], False
        for each in found:
            if each.payment_intent_id not in intents:
                intents[each.payment_intent_id] = _intent_facts(client, each.payment_intent_id)
    except stripe.StripeError as error:
        return StripeFacts(intents=_sorted(intents), failure=classify(error), is_complete=False)
    return StripeFacts(intents=_sorted(intents), is_complete=is_complete)


def _request_of(order_id: str, order: StoredOrder | None) -> FrozenRequest:
    if order is not None:
        return FrozenRequest.of(order.present_attempt)
    # Nothing but the id is known: everything of it is looked up.
    return FrozenRequest(order_id=order_id, amount_minor=0, currency="", customer_id="", placed_at=0)


def _sorted(intents: dict[str, IntentFacts]) -> tuple[IntentFacts, ...]:
    return tuple(sorted(intents.values(), key=lambda each: (each.created, each.intent.generation)))


def _intent_facts(client: stripe.StripeClient, payment_intent_id: str) -> IntentFacts:
    made = client.v1.payment_intents.retrieve(payment_intent_id)
    charges = client.v1.charges.list({"payment_intent": payment_intent_id, "limit": 100}).data
    disputes = client.v1.disputes.list({"payment_intent": payment_intent_id, "limit": 100}).data
    return IntentFacts(
        intent=found_intent(made),
        created=made.created,
        canceled_at=getattr(made, "canceled_at", None),
        charges=tuple(_charge(each) for each in reversed(charges)),
        refunds=tuple(_refund(each) for each in list_refunds(client, payment_intent_id)),
        disputes=tuple(_dispute(each) for each in disputes),
    )


def _charge(charge: Any) -> Charge:
    return Charge(
        charge_id=charge.id,
        status=charge.status,
        amount_minor=charge.amount,
        created=charge.created,
        failure_code=getattr(getattr(charge, "outcome", None), "reason", None) or getattr(charge, "failure_code", None),
    )


def _refund(refund: Any) -> StripeRefund:
    return StripeRefund(
        stripe_refund_id=refund.id,
        status=getattr(refund, "status", None) or "none",
        amount_minor=refund.amount,
        created=refund.created,
        refund_id=metadata_of(refund).get("refund_id"),
        failure_reason=getattr(refund, "failure_reason", None),
    )


def _dispute(dispute: Any) -> Dispute:
    return Dispute(
        dispute_id=dispute.id,
        status=dispute.status,
        reason=dispute.reason,
        amount_minor=dispute.amount,
        created=dispute.created,
        respond_by=getattr(getattr(dispute, "evidence_details", None), "due_by", None),
    )


def _unprocessed_events(stack: Stack, facts: StripeFacts, now: int) -> tuple[UnprocessedEvent, ...]:
    """The events of the order's PaymentIntents that the webhook has not processed; none if Stripe does not answer."""
    if facts.failure is not None or not facts.intents:
        return ()
    processed = ProcessedEvents(stack.dynamodb, stack.resource("StripeEventsTable"))
    since = max(min(each.created for each in facts.intents), now - EVENTS_AGE_SECONDS)
    ids = {each.intent.payment_intent_id for each in facts.intents}
    try:
        events = list(_events_of(stack.stripe, ids, since))
    except stripe.StripeError:
        return ()
    return tuple(each for each in events if not processed.contains(each.event_id))


def _events_of(client: stripe.StripeClient, payment_intent_ids: set[str], since: int) -> Iterator[UnprocessedEvent]:
    """Stripe's list has no filter for an object: the events since the first PaymentIntent, as many as are read."""
    page = client.v1.events.list({"types": list(EVENT_TYPES), "created": {"gte": since}, "limit": 100})
    for _ in range(_EVENT_PAGES_MAX):
        for event in page.data:
            made: Any = event.data.object
            if {made.id, getattr(made, "payment_intent", None)} & payment_intent_ids:
                yield UnprocessedEvent(event_id=event.id, type=event.type, created=event.created)
        if not page.has_more:
            return
        page = page.next_page()
