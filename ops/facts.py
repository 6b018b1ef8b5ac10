"""What is known about one order at one moment, as plain data, and how it is read: it writes nothing.

Tables, DLQs, Stripe and the log. Stripe is one of the facts: if it does not answer, the rest is still explained. Times
are epoch seconds, amounts minor units. findings.py judges the facts.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import stripe
from pydantic import ValidationError

from onecharge.contract.events import ORDER_ID_PATTERN, reason_of
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charge_rows import payment_of
from onecharge.payments.charge_rules import StripeIntent
from onecharge.payments.payment_intents import metadata_of, read_intent
from onecharge.payments.rows import Dispute, Payment
from onecharge.payments.stripe_responses import Failure, classify
from onecharge.runtime.dynamodb import to_item
from ops.connection import Stack
from ops.dlq import DLQS, DeadLetter, reading
from ops.errors import ExitStatus, Problem

MESSAGES_MAX, LISTED_MAX, LOG_SECONDS = 1_000, 1_000, 10
"""What is read at most: messages of each DLQ, PaymentIntents of the order's first day, and for how long the log."""
_DAY_SECONDS, _CLOCKS_SECONDS = 26 * 3600, 2 * 3600
_ONCE: Any = {"max_network_retries": 0}
"""A person runs the command again. With the SDK's retry, a Stripe that did not answer took 18 seconds to give up."""


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


@dataclass(frozen=True, kw_only=True)
class StripeFacts:
    """What Stripe shows of the order; why it does not, in `failure`."""

    intents: Sequence[IntentFacts] = ()
    failure: Failure | None = None
    was_asked: bool = True

    def of(self, payment_intent_id: str | None) -> IntentFacts | None:
        """The PaymentIntent of this id."""
        return next((each for each in self.intents if each.intent.payment_intent_id == payment_intent_id), None)


@dataclass(frozen=True)
class LogLine:
    """A function's log line about the order."""

    at: float
    fields: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What is the same for every order of the stack."""

    now: int
    shop: str = ""
    ops: str = ".venv/bin/python -m ops"
    """How the commands begin, as they are typed."""
    dead_letters: Sequence[DeadLetter] = ()
    requires_action_seconds: int = 43_200
    omitted: Sequence[str] = ()
    """What was not read to its end."""


@dataclass(frozen=True, kw_only=True)
class Facts(Surroundings):
    """All that is known about one order; dead letters are its own."""

    order_id: str
    order: StoredOrder | None = None
    order_error: str | None = None
    """Why the order's item cannot be read: it breaks the schema."""
    payment: Payment | None = None
    stripe_message: str | None = None
    """What Stripe said when the last delivery ended without an outcome."""
    stripe: StripeFacts = StripeFacts()
    refunds: Sequence[StoredRefund] = ()
    """The order service's."""
    lines: Sequence[LogLine] = ()


# ---------------------------------------------------------------- which order


def order_id_of_reference(stack: Stack, given: str) -> str:
    """The order of an order id or of a PaymentIntent's. Raises Problem."""
    if re.match(ORDER_ID_PATTERN, given):
        return given
    if not re.fullmatch(r"pi_\w+", given):
        raise Problem(f"{given}: neither an order id (ord_…) nor a PaymentIntent's (pi_…)")
    response = stack.payment_intents.retrieve(given)
    if response.intent is None:
        kind = response.failure.kind if response.failure else ""
        raise Problem(f"Stripe does not show a PaymentIntent {given}: {kind}", ExitStatus.FOUND)
    if response.intent.order_id is None:
        raise Problem(f"{given} is not of this application: its metadata names no order", ExitStatus.FOUND)
    return response.intent.order_id


# ---------------------------------------------------------------- of every order


def surroundings(stack: Stack, *, now: int) -> Surroundings:
    """Read once, however many orders are explained."""
    _ = stack.resource(next(iter(DLQS))), stack.sqs  # Made before there are threads.
    with ThreadPoolExecutor(len(DLQS)) as threads:
        read = list(threads.map(partial(_letters, stack), DLQS))
    more = "The DLQs hold more messages than were read: one more of this order may be among them."
    return Surroundings(
        now=now,
        shop=stack.shop,
        ops=stack.command,
        dead_letters=[letter for letters, _ in read for letter in letters],
        requires_action_seconds=int(stack.parameter("RequiresActionSeconds")),
        omitted=[more] if any(unseen for _, unseen in read) else [],
    )


def _letters(stack: Stack, dlq: str) -> tuple[list[DeadLetter], int]:
    """What a DLQ holds, and how many more. Reading a source queue would raise its messages' receive counts."""
    with reading(stack, dlq, limit=MESSAGES_MAX) as found:
        return found


# ---------------------------------------------------------------- of one order


def gather(
    stack: Stack, order_id: str, around: Surroundings, *, asks_stripe: bool = True, reads_log: bool = False
) -> Facts:
    """All that is known about the order; the log only if it is asked for."""
    order, order_error = _order(stack, order_id)
    row = stack.item("PaymentsTable", order_id=order_id)
    payment = payment_of(row) if row else None
    began = [payment.request.placed_at, payment.released_at or 0] if payment else []
    began += [int(datetime.fromisoformat(order.placed_at).timestamp())] if order else []
    since = min(filter(None, began), default=around.now - _DAY_SECONDS)
    between = (since - _CLOCKS_SECONDS, max([since, *began]) + _DAY_SECONDS)
    omitted = list(around.omitted)
    with ThreadPoolExecutor(1) as thread:
        log = thread.submit(_log, stack, order_id, since - 60, omitted) if reads_log else None
        shown = StripeFacts(was_asked=False)
        if asks_stripe:
            own = payment.payment_intent_id if payment else None
            shown = stripe_facts(stack.stripe, order_id, own, between, omitted)
        refunds = list(map(StoredRefund.from_item, items_of(stack, "OrderRefundsTable", order_id)))
    # A poison message may not be an event: every message that names the order is about it.
    letters = [each for each in around.dead_letters if order_id in each.body]
    return Facts(
        **{**vars(around), "dead_letters": letters, "omitted": omitted},
        order_id=order_id,
        order=order,
        order_error=order_error,
        payment=payment,
        stripe_message=row["stripe_message"]["S"] if row and "stripe_message" in row else None,
        stripe=shown,
        refunds=refunds,
        lines=log.result() if log else (),
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


def items_of(stack: Stack, table: str, order_id: str) -> list[Mapping[str, Any]]:
    """The order's items of a table by its logical id, in DynamoDB's JSON, read consistently."""
    pages = stack.dynamodb.get_paginator("query").paginate(
        TableName=stack.resource(table),
        KeyConditionExpression="order_id = :order_id",
        ExpressionAttributeValues=to_item({":order_id": order_id}),
        ConsistentRead=True,
    )
    return [item for page in pages for item in page["Items"]]


def _log(stack: Stack, order_id: str, since: float, omitted: list[str]) -> list[LogLine]:
    """The order's lines since then. CloudWatch reads a log page by page, also those that hold none of them."""
    started_at, lines = time.monotonic(), list[LogLine]()
    given = {"logGroupName": stack.resource("FunctionsLogGroup"), "filterPattern": f'{{ $.order_id = "{order_id}" }}'}
    for page in stack.client("logs").get_paginator("filter_log_events").paginate(**given, startTime=int(since * 1000)):
        found = [each for each in page["events"] if order_id in each["message"] and each["message"].startswith("{")]
        lines += [LogLine(each["timestamp"] / 1000, json.loads(each["message"])) for each in found]
        if page.get("nextToken") and time.monotonic() - started_at > LOG_SECONDS:
            omitted.append("The log was not read to its end: CloudWatch Logs Insights finds later lines by order_id.")
            break
    return lines


# ---------------------------------------------------------------- Stripe


def stripe_facts(
    client: stripe.StripeClient, order_id: str, own: str | None, between: tuple[int, int], omitted: list[str]
) -> StripeFacts:
    """The row's PaymentIntent, and each that names the order among those of its first day.

    This is a first look. `release` reads everything since.
    """
    found: dict[str, IntentFacts | None] = {}
    failure = None
    try:
        if own:
            found[own] = _intent_facts(client, own)
        created = {"gte": between[0], "lt": between[1]}
        parameters: Any = {"created": created, "limit": 100, "expand": ["data.latest_charge"]}
        listed = list(islice(client.v1.payment_intents.list(parameters, _ONCE).auto_paging_iter(), LISTED_MAX + 1))
        named = [each.id for each in listed if order_id in orders_named_by(each)]
        found |= {each: _intent_facts(client, each) for each in named if each not in found}
        if len(listed) > LISTED_MAX:
            omitted.append(
                "Stripe has more PaymentIntents of the order's first day than were read: `release` reads all."
            )
    except stripe.StripeError as error:
        failure = classify(error)
    intents = sorted(filter(None, found.values()), key=lambda each: each.intent.created)
    return StripeFacts(intents=intents, failure=failure)


def orders_named_by(made: Any) -> set[str]:
    """Every order that a PaymentIntent or its charge names: a person may have edited some of it."""
    both = (made, getattr(made, "latest_charge", None))
    texts = [getattr(each, "description", None) or "" for each in both]
    texts += [metadata_of(each).get("order_id", "") for each in both]
    return set(re.findall(r"\bord_[0-9a-f]{32}\b", " ".join(texts)))


def _intent_facts(client: stripe.StripeClient, payment_intent_id: str) -> IntentFacts | None:
    """None if the account does not have it."""
    try:
        made = client.v1.payment_intents.retrieve(payment_intent_id, {"expand": ["latest_charge"]}, _ONCE)
    except stripe.InvalidRequestError as error:
        if error.http_status != 404:
            raise
        return None
    of_it: Any = {"payment_intent": payment_intent_id, "limit": 100}
    charges = client.v1.charges.list(of_it, _ONCE).data
    is_disputed = any(getattr(each, "disputed", False) for each in charges)
    disputes = client.v1.disputes.list(of_it, _ONCE).data if is_disputed else []
    return IntentFacts(
        intent=replace(
            read_intent(made), dispute=Dispute.that_counts(Dispute(each.id, each.status) for each in disputes)
        ),
        canceled_at=getattr(made, "canceled_at", None),
        charges=charges[::-1],
        refunds=list(client.v1.refunds.list(of_it, _ONCE).auto_paging_iter()) if charges else [],
        disputes=disputes,
    )
