"""Both sides of an audit: the movements of money that Stripe has booked, and our rows.

Stripe's are balance transactions, with the objects that caused them (Stripe API reference, "List all balance
transactions", "The Balance Transaction object"). Disputes and failed refunds may have the type `adjustment` (Stripe
documentation, "Reporting categories"), so the source and the sign say what a transaction is, not its type.

Our rows are read by order, a hundred with one request; and by the time they were finalized, which no index has: the
whole table is read, half a read unit for each 4 KB. A million rows of 700 bytes cost about one cent; an index would
cost a write unit with each of the rows' writes, for a question that is asked once a day.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import stripe

from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.payments.payment_intents import metadata_of
from onecharge.runtime.dynamodb import expression_values, from_item, read_items

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# ---------------------------------------------------------------- Stripe's side

PAGE_SIZE = 100
"""Transactions of one request, the most that Stripe returns."""
_TRIES = 6
_PAUSE_SECONDS = 2.0


class Kind(StrEnum):
    """What a movement is."""

    CHARGE = "charge"
    REFUND = "refund"
    REFUND_FAILURE = "refund that failed"
    DISPUTE = "dispute"
    DISPUTE_REVERSAL = "dispute that was won"
    REVERSAL = "charge that Stripe took back"
    OTHER = "other"
    """Not a customer's money: fees, payouts, transfers."""


_KINDS = {
    ("charge", True): Kind.CHARGE,
    ("charge", False): Kind.REVERSAL,
    ("refund", False): Kind.REFUND,
    ("refund", True): Kind.REFUND_FAILURE,
    ("dispute", False): Kind.DISPUTE,
    ("dispute", True): Kind.DISPUTE_REVERSAL,
}
"""By the object that caused it, and whether the money comes in."""


@dataclass(frozen=True)
class Booked:
    """One movement of money."""

    kind: Kind
    stripe_type: str
    amount_minor: int
    """Positive to our account, negative from it; in the currency that the customer pays in."""
    currency: str
    created: int
    """Epoch seconds; decides to which day it belongs."""
    source_id: str | None = None
    payment_intent_id: str | None = None
    order_id: str | None = None
    """By the metadata of a charge; those of a refund do not name the shop, and its PaymentIntent's do."""
    refund_id: str | None = None
    source_status: str | None = None
    """Of the source as it is now."""


def booked_of(transaction: Any, shop: str) -> Booked:
    """A balance transaction whose source is expanded."""
    source: Any = getattr(transaction, "source", None)
    is_in = transaction.amount >= 0
    kind = _KINDS.get((getattr(source, "object", ""), is_in), Kind.OTHER)
    amount, currency, created = transaction.amount, transaction.currency, transaction.created
    if kind is Kind.OTHER:
        return Booked(kind, transaction.type, amount, currency.upper(), created, source_id=_id_of(source))
    if currency != source.currency:  # Stripe has converted the source's amount for the account.
        amount, currency = source.amount if is_in else -source.amount, source.currency
    metadata = metadata_of(source)
    return Booked(
        kind,
        transaction.type,
        amount,
        currency.upper(),
        created,
        source_id=source.id,
        payment_intent_id=_id_of(getattr(source, "payment_intent", None)),
        order_id=_order_of(metadata, shop) if kind is Kind.CHARGE else None,
        refund_id=metadata.get("refund_id"),
        source_status=getattr(source, "status", None),
    )


def _order_of(metadata: Mapping[str, str], shop: str) -> str | None:
    """The order that they name, unless they name another shop, too; others may share the account."""
    order_id = metadata.get("order_id", "")
    return order_id if re.match(ORDER_ID_PATTERN, order_id) and metadata.get("shop", shop) == shop else None


def _id_of(expandable: Any) -> str | None:
    return expandable if expandable is None or isinstance(expandable, str) else str(expandable.id)


@dataclass(frozen=True)
class StripeBooks:
    """The books of one Stripe account. A request that Stripe does not answer is repeated for about a minute.

    Methods raise stripe.StripeError.
    """

    client: stripe.StripeClient
    shop: str

    def pages(self, since: int, until: int) -> Iterator[list[Booked]]:
        """All transactions that were booked from `since` until before `until`, newest first; a hundred at a time."""
        parameters: Any = {"created": {"gte": since, "lt": until}, "limit": PAGE_SIZE, "expand": ["data.source"]}
        while True:
            page = _patiently(partial(self.client.v1.balance_transactions.list, parameters))
            yield [booked_of(each, self.shop) for each in page.data]
            if not page.has_more:
                return
            parameters["starting_after"] = page.data[-1].id

    def order_of(self, payment_intent_id: str) -> str | None:
        """The order of a PaymentIntent; None if it is not ours."""
        return _order_of(metadata_of(self._intent(payment_intent_id)), self.shop)

    def amount_refunded(self, payment_intent_id: str) -> int:
        """What is refunded of a PaymentIntent in total."""
        return int(self._intent(payment_intent_id, "latest_charge").latest_charge.amount_refunded)

    def charged(self, payment_intent_id: str) -> tuple[int, int, str] | None:
        """When the charge of a PaymentIntent was booked, its amount and currency; None if it was not charged."""
        intent = self._intent(payment_intent_id, "latest_charge.balance_transaction")
        if intent is None or intent.status != "succeeded":
            return None
        return intent.latest_charge.balance_transaction.created, intent.amount, intent.currency.upper()

    def refund_booked_at(self, stripe_refund_id: str) -> int | None:
        """When a refund was booked; None if Stripe has no such refund."""
        expand: Any = {"expand": ["balance_transaction"]}
        refund = _if_found(lambda: self.client.v1.refunds.retrieve(stripe_refund_id, expand))
        if refund is None:
            return None
        booked = getattr(refund, "balance_transaction", None)
        return int(booked.created if booked else refund.created)

    def _intent(self, payment_intent_id: str, *expand: str) -> Any:
        """The PaymentIntent; None if Stripe has none."""
        given: Any = {"expand": list(expand)}
        return _if_found(lambda: self.client.v1.payment_intents.retrieve(payment_intent_id, given))


def _if_found(request: Callable[[], Any]) -> Any:
    """What Stripe has; None if it has none."""
    try:
        return _patiently(request)
    except stripe.InvalidRequestError as error:
        if error.http_status != 404:
            raise
        return None


def _patiently[Answer](request: Callable[[], Answer]) -> Answer:
    for tried in range(1, _TRIES + 1):
        try:
            return request()
        except (stripe.RateLimitError, stripe.APIConnectionError, stripe.APIError):
            if tried == _TRIES:
                raise
            time.sleep(_PAUSE_SECONDS * tried)
    raise AssertionError  # The loop returns or raises.


# ---------------------------------------------------------------- our side

type Row = Mapping[str, Any]
"""A row's attributes in plain Python values."""


@dataclass(frozen=True)
class Rows:
    """The rows of the Payments or the Refunds table."""

    client: "DynamoDBClient"
    table: str

    def of(self, keys: Iterable[Mapping[str, str]]) -> Iterator[Row]:
        """The rows of these keys, strongly consistent; in any order, without those that are lost.

        Raises ReadsThrottled.
        """
        return map(from_item, read_items(self.client, self.table, keys))

    def succeeded(self, since: int, until: int) -> Iterator[Row]:
        """The rows that were finalized as SUCCEEDED within the time."""
        return self._within("state", "SUCCEEDED", "finalized_at", since, until)

    def _within(self, name: str, value: str, at: str, since: int | str, until: int | str) -> Iterator[Row]:
        """The rows with this value whose time `at` is within; a page of at most 1 MB at a time."""
        pages = self.client.get_paginator("scan").paginate(
            TableName=self.table,
            FilterExpression=f"#name = :value AND {at} >= :since AND {at} < :until",
            ExpressionAttributeNames={"#name": name},
            ExpressionAttributeValues=expression_values(value=value, since=since, until=until),
        )
        for page in pages:
            yield from map(from_item, page["Items"])


@dataclass(frozen=True)
class Orders(Rows):
    """The items of the Orders table."""

    def paid(self, since: datetime, until: datetime) -> Iterator[str]:
        """The ids of the orders that were paid within the time."""
        rows = self._within("status", "PAID", "paid_at", since.isoformat(), until.isoformat())
        return (row["order_id"] for row in rows)
