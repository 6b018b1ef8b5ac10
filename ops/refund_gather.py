"""Reads what is known about the refunds of one order: the requests, the rows, and Stripe's refunds."""

from onecharge.orders.refunds import StoredRefund
from onecharge.payments.refunds.protocol import FoundRefund, Refund
from onecharge.payments.refunds.store import refund_of
from onecharge.runtime.dynamodb import to_item
from ops.connection import Stack
from ops.facts import StripeFacts
from ops.refund_facts import RefundFacts


def refund_facts(stack: Stack, order_id: str, at_stripe: StripeFacts | None) -> tuple[RefundFacts, ...]:
    """Every refund that the tables or Stripe know by one of our ids.

    Args:
        at_stripe: None if Stripe was not asked.
    """
    requested = {
        each.refund_id: each for each in map(StoredRefund.from_item, _items(stack, "OrderRefundsTable", order_id))
    }
    rows = {row.request.refund_id: row for row in map(refund_of, _items(stack, "RefundsTable", order_id))}
    found = _found(at_stripe, rows) if at_stripe else {}
    ids = sorted({*requested, *rows, *found})
    is_known = at_stripe is not None and at_stripe.failure is None
    return tuple(
        RefundFacts(
            refund_id=each,
            requested=requested.get(each),
            row=rows.get(each),
            found=found.get(each, []) if is_known else None,
        )
        for each in ids
    )


def _items(stack: Stack, logical_id: str, order_id: str) -> list[dict[str, object]]:
    answer = stack.dynamodb.get_paginator("query").paginate(
        TableName=stack.resource(logical_id),
        KeyConditionExpression="order_id = :order_id",
        ExpressionAttributeValues=to_item({":order_id": order_id}),
        ConsistentRead=True,
    )
    return [item for page in answer for item in page["Items"]]  # type: ignore[misc]


def _found(at_stripe: StripeFacts, rows: dict[str, Refund]) -> dict[str, list[FoundRefund]]:
    found: dict[str, list[FoundRefund]] = {}
    for intent in at_stripe.intents:
        for each in intent.refunds:
            if each.refund_id is not None:
                row = rows.get(each.refund_id)
                found.setdefault(each.refund_id, []).append(
                    FoundRefund(
                        stripe_refund_id=each.stripe_refund_id,
                        status=each.status,
                        amount_minor=each.amount_minor,
                        currency=intent.intent.currency,
                        failure_reason=each.failure_reason,
                        attempt=row.attempt if row else 1,
                        created=each.created,
                    )
                )
    return found
