"""What is known about one order at one moment, as plain data, and how it is read: it writes nothing.

Tables, DLQs, Stripe, checkpoints, mappings. Stripe is one of the facts: if it does not answer, the rest is still
explained. Times are epoch seconds, amounts minor units. diagnosis.py judges the facts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any

import stripe
from pydantic import ValidationError

from onecharge.contract.events import ORDER_ID_PATTERN, reason_of
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.republication import RepublishCheckpoint
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charge_rows import payment_of
from onecharge.payments.charge_rules import StripeIntent
from onecharge.payments.payment_intents import metadata_of, read_intent
from onecharge.payments.refund_rows import refund_of
from onecharge.payments.refund_rules import Refund, StripeRefund
from onecharge.payments.rows import Dispute, Payment
from onecharge.payments.stripe_events import ReconcileCheckpoint
from onecharge.payments.stripe_gateway import list_refunds
from onecharge.payments.stripe_objects import read_refund
from onecharge.payments.stripe_responses import Failure, LookupInconclusive, classify
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import from_item, to_item
from ops.connection import Stack
from ops.dlq_letters import DLQS, DeadLetter, reading
from ops.errors import ExitStatus, Problem

MESSAGES_MAX = 1_000
"""Messages that are read of each DLQ; with more in it, the facts are incomplete, and say so."""
LISTED_MAX = 1_000
"""PaymentIntents that are read of the order's first day."""
_FIRST_DAY_SECONDS, _CLOCKS_SECONDS = 26 * 3600, 2 * 3600
_NAMED_MAX = 10
"""Orders that are named, if the beginning of an id means several."""
_SOURCES = (
    *("OrdersTable", "PaymentsTable", "OrderRefundsTable", "RefundsTable"),
    *("PaymentsQueue", "OrderUpdatesQueue", "RefundsQueue"),
)
"""What functions read, by logical ids."""


@dataclass(frozen=True, kw_only=True)
class IntentFacts:
    """A PaymentIntent of the order, with what happened to it, in Stripe's objects."""

    intent: StripeIntent
    canceled_at: int | None = None
    charges: Sequence[stripe.Charge] = ()
    refunds: Sequence[stripe.Refund] = ()
    disputes: Sequence[stripe.Dispute] = ()

    @property
    def refunded_minor(self) -> int:
        """The sum of the refunds that have not failed."""
        return sum(each.amount for each in self.refunds if each.status not in ("failed", "canceled"))

    @property
    def is_returned(self) -> bool:
        """In full, by refunds that have not failed."""
        return self.refunded_minor >= self.intent.amount_minor


@dataclass(frozen=True, kw_only=True)
class StripeFacts:
    """What Stripe shows of the order."""

    intents: Sequence[IntentFacts] = ()
    failure: Failure | None = None
    """Why Stripe did not show it; what was read before is in `intents`."""
    is_complete: bool = True
    """Whether every PaymentIntent of the order's first day was seen."""
    was_asked: bool = True
    """Otherwise nothing is known: that no PaymentIntent is here says nothing."""

    @property
    def succeeded(self) -> list[IntentFacts]:
        return [each for each in self.intents if each.intent.status == "succeeded"]

    def of(self, payment_intent_id: str | None) -> IntentFacts | None:
        """The PaymentIntent of this id."""
        return next((each for each in self.intents if each.intent.payment_intent_id == payment_intent_id), None)


@dataclass(frozen=True, kw_only=True)
class RefundFacts:
    """One refund, by its id; the order service, the payment service or Stripe has it."""

    refund_id: str
    requested: StoredRefund | None = None
    """The order service's item."""
    row: Refund | None = None
    """The payment service's."""
    found: Sequence[StripeRefund] = ()
    """Stripe's refunds of this id."""


@dataclass(frozen=True)
class Unread:
    """A stream or a queue whose event source mapping is disabled: no function reads it."""

    source: str
    """The logical id of the table or queue."""
    uuid: str
    """The mapping's."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What is the same for every order of the stack; dead letters of all orders."""

    now: int
    shop: str = ""
    command: str = "python -m ops"
    """How the commands of the fixes begin."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The physical names of the functions that the fixes name by their logical ids."""
    dead_letters: Sequence[DeadLetter] = ()
    are_dead_letters_complete: bool = True
    """Whether every message of the DLQs was seen."""
    unread: Sequence[Unread] = ()
    republish: RepublishCheckpoint | None = None
    reconcile: ReconcileCheckpoint | None = None
    requires_action_seconds: int = 43_200
    hidden_seconds: int = 180
    """The visibility timeout of the payments queue."""


@dataclass(frozen=True, kw_only=True)
class Facts(Surroundings):
    """All that is known about one order; dead letters are its own."""

    order_id: str
    order: StoredOrder | None = None
    order_error: str | None = None
    """Why the order's item cannot be read: it breaks the schema."""
    payment: Payment | None = None
    row: Mapping[str, Any] = field(default_factory=dict)
    """The payment's row with all its attributes; `payment` has those that the protocol reads."""
    stripe: StripeFacts = StripeFacts()
    refunds: Sequence[RefundFacts] = ()


# ---------------------------------------------------------------- which order


def order_id_of_reference(stack: Stack, given: str) -> str:
    """The order that is meant by its id, the id's beginning (`ord_` may be omitted) or a PaymentIntent's id.

    Raises Problem.
    """
    given = given.rstrip("….")
    if re.match(ORDER_ID_PATTERN, given):
        return given
    if re.fullmatch(r"[0-9a-f]{4,32}", given):
        return order_id_of_reference(stack, f"ord_{given}")
    if re.fullmatch(r"ord_[0-9a-f]{1,31}", given):
        return _order_id_beginning(stack, given)
    if not re.fullmatch(r"pi_\w+", given):
        raise Problem(f"{given}: neither an order id (ord_…) nor a PaymentIntent's (pi_…)")
    response = stack.payment_intents.retrieve(given)
    if response.intent is None:
        kind = response.failure.kind if response.failure else ""
        raise Problem(f"Stripe does not show a PaymentIntent {given}: {kind}", ExitStatus.FOUND)
    if response.intent.order_id is None:
        raise Problem(f"{given} is not of this application: its metadata names no order", ExitStatus.FOUND)
    return response.intent.order_id


def _order_id_beginning(stack: Stack, start: str) -> str:
    if not stack.is_local:
        # The id is the table's hash key: only a scan finds it by its beginning, which reads and pays for every order.
        raise Problem(f"{start}: on AWS an order is found by its whole id, or by its PaymentIntent's")
    pages = stack.dynamodb.get_paginator("scan").paginate(
        TableName=stack.resource("OrdersTable"),
        FilterExpression="begins_with(order_id, :start)",
        ExpressionAttributeValues=to_item({":start": start}),
        ProjectionExpression="order_id",
    )
    found = list(islice((str(item["order_id"]["S"]) for page in pages for item in page["Items"]), _NAMED_MAX + 1))
    if len(found) != 1:
        names = ", ".join(sorted(found)[:_NAMED_MAX]) + (", …" if len(found) > _NAMED_MAX else "")
        which = (
            f"{start} is the beginning of several orders: {names}" if found else f"no order's id begins with {start}"
        )
        raise Problem(which, ExitStatus.FOUND)
    return found[0]


# ---------------------------------------------------------------- of every order


def surroundings(stack: Stack, *, now: int) -> Surroundings:
    """Read once, however many orders are explained."""
    letters, is_complete = _letters(stack)
    return Surroundings(
        now=now,
        shop=stack.shop,
        command="python -m ops" if stack.is_local else f"python -m ops --stack {stack.name}",
        names={each: stack.resource(each) for each in ("RepublishFunction", "ReconcileFunction")},
        dead_letters=letters,
        are_dead_letters_complete=is_complete,
        unread=list(unread(stack)),
        republish=CheckpointStore(stack.dynamodb, stack.resource("OrdersStateTable"), RepublishCheckpoint).read(),
        reconcile=CheckpointStore(stack.dynamodb, stack.resource("PaymentsStateTable"), ReconcileCheckpoint).read(),
        requires_action_seconds=int(stack.parameter("RequiresActionSeconds")),
        hidden_seconds=_hidden_seconds(stack),
    )


def _hidden_seconds(stack: Stack) -> int:
    queue = stack.resource("PaymentsQueue")
    answer = stack.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["VisibilityTimeout"])
    return int(answer["Attributes"]["VisibilityTimeout"])


def _letters(stack: Stack) -> tuple[list[DeadLetter], bool]:
    """What the DLQs hold, and whether that is all: each message is hidden for the moment of the read.

    Source queues are not received from: that would raise the receive count, which ends at maxReceiveCount, and hide
    the message from its function. A DLQ has no redrive policy.
    """

    def read(dlq: str) -> tuple[list[DeadLetter], bool]:
        with reading(stack, dlq, limit=MESSAGES_MAX) as opened:
            letters = [letter for batch in opened.batches() for letter in batch]
        return letters, not opened.unseen

    with ThreadPoolExecutor(len(DLQS)) as threads:  # Each waits a second for late messages.
        found = list(threads.map(read, DLQS))
    return [letter for letters, _ in found for letter in letters], all(is_all for _, is_all in found)


def unread(stack: Stack) -> Iterator[Unread]:
    """The streams and queues that no function reads.

    Mappings may be of an alias of the function: they are found by what they read.
    """
    # The last part of a queue's URL is its name, as of its ARN; a stream's ARN has the table's name in it.
    logical_ids = {stack.resource(name).split("/")[-1]: name for name in _SOURCES}
    pages = stack.client("lambda").get_paginator("list_event_source_mappings").paginate()
    for mapping in (each for page in pages for each in page["EventSourceMappings"]):
        parts = re.split(r"[:/]", mapping.get("EventSourceArn", ""))
        logical_id = next((logical_ids[part] for part in parts if part in logical_ids), None)
        if logical_id and mapping.get("State") in ("Disabled", "Disabling"):
            yield Unread(logical_id, mapping["UUID"])


# ---------------------------------------------------------------- of one order


def gather(stack: Stack, order_id: str, around: Surroundings, *, asks_stripe: bool) -> Facts:
    """All that is known about the order; without `asks_stripe`, all but what Stripe knows."""
    order, order_error = _order(stack, order_id)
    row = stack.item("PaymentsTable", order_id=order_id)
    payment = payment_of(row) if row else None
    at_stripe = (
        stripe_facts(stack, order_id, order, payment, around.now) if asks_stripe else StripeFacts(was_asked=False)
    )
    given: dict[str, Any] = {
        **vars(around),
        # A poison message may not be an event: every message that names the order is about it.
        "dead_letters": [each for each in around.dead_letters if order_id in each.body],
    }
    return Facts(
        **given,
        order_id=order_id,
        order=order,
        order_error=order_error,
        payment=payment,
        row=from_item(row) if row else {},
        stripe=at_stripe,
        refunds=_refunds(stack, order_id, at_stripe),
    )


def _order(stack: Stack, order_id: str) -> tuple[StoredOrder | None, str | None]:
    item = stack.item("OrdersTable", order_id=order_id)
    if item is None:
        return None, None
    try:
        order = StoredOrder.from_item(item)
        _ = order.current_attempt
    except ValidationError as invalid:
        return None, reason_of(invalid)
    return order, None


def _refunds(stack: Stack, order_id: str, at_stripe: StripeFacts) -> Sequence[RefundFacts]:
    """Every refund that the tables or Stripe know by one of our ids."""
    requested = {
        each.refund_id: each for each in map(StoredRefund.from_item, items_of(stack, "OrderRefundsTable", order_id))
    }
    rows = {row.request.refund_id: row for row in map(refund_of, items_of(stack, "RefundsTable", order_id))}
    made = [(metadata_of(each).get("refund_id"), each) for intent in at_stripe.intents for each in intent.refunds]
    return [
        RefundFacts(
            refund_id=refund_id,
            requested=requested.get(refund_id),
            row=rows.get(refund_id),
            found=[read_refund(each) for id_, each in made if id_ == refund_id],
        )
        for refund_id in sorted({*requested, *rows, *(id_ for id_, _ in made if id_)})
    ]


def items_of(stack: Stack, table: str, order_id: str) -> list[Mapping[str, Any]]:
    """The order's items of a table by its logical id, in DynamoDB's JSON, read consistently."""
    pages = stack.dynamodb.get_paginator("query").paginate(
        TableName=stack.resource(table),
        KeyConditionExpression="order_id = :order_id",
        ExpressionAttributeValues=to_item({":order_id": order_id}),
        ConsistentRead=True,
    )
    return [item for page in pages for item in page["Items"]]


# ---------------------------------------------------------------- Stripe


def stripe_facts(
    stack: Stack, order_id: str, order: StoredOrder | None, payment: Payment | None, now: int
) -> StripeFacts:
    """The row's PaymentIntent, and each that names the order among those of its first day.

    This is a first look. `release` reads everything since.
    """
    intents: dict[str, IntentFacts] = {}
    is_complete, failure = True, None
    try:
        if payment and payment.payment_intent_id:
            try:
                intents[payment.payment_intent_id] = _intent_facts(stack.stripe, payment.payment_intent_id)
            except stripe.InvalidRequestError as error:
                if error.http_status != 404:
                    raise
        named, is_complete = _named_at_stripe(stack.stripe, order_id, _windows(order, payment, now))
        intents |= {each: _intent_facts(stack.stripe, each) for each in named if each not in intents}
    except (LookupInconclusive, stripe.StripeError) as error:
        is_complete = False
        failure = classify(error) if isinstance(error, stripe.StripeError) else None
    by_time = sorted(intents.values(), key=lambda each: each.intent.created)
    return StripeFacts(intents=by_time, failure=failure, is_complete=is_complete)


def _windows(order: StoredOrder | None, payment: Payment | None, now: int) -> tuple[int, int]:
    """From when until when the order's PaymentIntent may have been created; epoch seconds."""
    placed = [payment.request.placed_at, payment.released_at or 0] if payment else []
    placed += [int(datetime.fromisoformat(order.placed_at).timestamp())] if order else []
    since = min(filter(None, placed), default=now - _FIRST_DAY_SECONDS)
    return since - _CLOCKS_SECONDS, max([since, *placed]) + _FIRST_DAY_SECONDS


def _named_at_stripe(client: stripe.StripeClient, order_id: str, between: tuple[int, int]) -> tuple[list[str], bool]:
    """The PaymentIntents of this time that name the order; and whether all of this time were read."""
    created = {"gte": between[0], "lt": between[1]}
    parameters: Any = {"created": created, "limit": 100, "expand": ["data.latest_charge"]}
    listed = client.v1.payment_intents.list(parameters).auto_paging_iter()
    read = list(islice(listed, LISTED_MAX + 1))
    return [each.id for each in read if order_id in orders_named_by(each)], len(read) <= LISTED_MAX


def orders_named_by(made: Any) -> set[str]:
    """Every order that a PaymentIntent or its charge names: a person may have edited some of it."""
    both = (made, getattr(made, "latest_charge", None))
    texts = [getattr(each, "description", None) or "" for each in both]
    texts += [metadata_of(each).get("order_id", "") for each in both]
    return set(re.findall(r"\bord_[0-9a-f]{32}\b", " ".join(texts)))


def _intent_facts(client: stripe.StripeClient, payment_intent_id: str) -> IntentFacts:
    made = client.v1.payment_intents.retrieve(payment_intent_id, {"expand": ["latest_charge"]})
    charges = client.v1.charges.list({"payment_intent": payment_intent_id, "limit": 100}).data
    disputes = client.v1.disputes.list({"payment_intent": payment_intent_id, "limit": 100}).data
    newest = Dispute(disputes[0].id, disputes[0].status) if disputes else None
    return IntentFacts(
        intent=replace(read_intent(made), dispute=newest),
        canceled_at=getattr(made, "canceled_at", None),
        charges=charges[::-1],
        refunds=list(list_refunds(client, payment_intent_id)),
        disputes=disputes,
    )
