"""The movements of money that Stripe has booked: balance transactions, with the objects that caused them.

Source: Stripe API reference, "List all balance transactions", "The Balance Transaction object"; Stripe documentation,
"Reporting categories": disputes and failed refunds may have the type `adjustment`, so that what a transaction is
follows from its source and its sign, not from its type.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import stripe

from onecharge.payments.charges.gateway import NoSuchPaymentIntent, StripeGateway
from onecharge.payments.stripe_responses import LookupInconclusive, metadata_of, order_id_of

if TYPE_CHECKING:
    from stripe.params import BalanceTransactionListParams

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
    """No customer's money: fees, payouts, transfers."""


@dataclass(frozen=True)
class Booked:
    """One movement of money."""

    transaction_id: str
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
    """By the metadata of its source; a dispute, and a refund made by hand, have none of ours."""
    refund_id: str | None = None
    source_status: str | None = None
    """Of the source as it is now."""


_KINDS = {
    ("charge", True): Kind.CHARGE,
    ("charge", False): Kind.REVERSAL,
    ("refund", False): Kind.REFUND,
    ("refund", True): Kind.REFUND_FAILURE,
    ("dispute", False): Kind.DISPUTE,
    ("dispute", True): Kind.DISPUTE_REVERSAL,
}
"""By the object that caused it, and whether the money comes in."""


def booked_of(transaction: Any) -> Booked:
    """A balance transaction whose source is expanded."""
    source: Any = getattr(transaction, "source", None)
    is_in = transaction.amount >= 0
    kind = _KINDS.get((getattr(source, "object", ""), is_in), Kind.OTHER)
    if kind is Kind.OTHER:
        source_id = source if isinstance(source, str) else getattr(source, "id", None)
        return Booked(
            transaction.id,
            kind,
            transaction.type,
            transaction.amount,
            transaction.currency.upper(),
            transaction.created,
            source_id,
        )
    # Another currency: the account is settled in it, and Stripe has converted the source's amount.
    is_converted = transaction.currency != source.currency
    amount = (source.amount if is_in else -source.amount) if is_converted else transaction.amount
    return Booked(
        transaction.id,
        kind,
        transaction.type,
        amount,
        source.currency.upper(),
        transaction.created,
        source.id,
        _id_of(getattr(source, "payment_intent", None)),
        order_id_of(source),
        metadata_of(source).get("refund_id"),
        getattr(source, "status", None),
    )


class Charged(StrEnum):
    """What Stripe shows of a PaymentIntent that a row names as succeeded."""

    WITHIN = "charged within the time, without the order in its metadata"
    OUTSIDE = "charged at another time"
    NOT = "not charged"


@dataclass(frozen=True)
class StripeBooks:
    """The books of one Stripe account. A request that Stripe does not answer is repeated for about a minute."""

    client: stripe.StripeClient
    pause: Callable[[float], None] = time.sleep

    def pages(self, since: int, until: int) -> Iterator[list[Booked]]:
        """All transactions that were booked from `since` until before `until`, newest first; a hundred at a time.

        Raises:
            stripe.StripeError: Stripe does not answer, or refuses.
        """
        parameters: BalanceTransactionListParams = {
            "created": {"gte": since, "lt": until},
            "limit": PAGE_SIZE,
            "expand": ["data.source"],
        }
        while True:
            given = dict(parameters)
            page = self._patiently(lambda given=given: self.client.v1.balance_transactions.list(given))  # type: ignore[misc]
            yield [booked_of(each) for each in page.data]
            if not page.has_more:
                return
            parameters["starting_after"] = page.data[-1].id

    def order_of(self, payment_intent_id: str) -> str | None:
        """The order of a PaymentIntent; None if it is not ours."""
        try:
            return self._patiently(lambda: StripeGateway(self.client).order_of(payment_intent_id))
        except NoSuchPaymentIntent:
            return None

    def amount_refunded(self, payment_intent_id: str) -> int | None:
        """What is refunded of a PaymentIntent in total; None if that cannot be read completely."""
        try:
            return self._patiently(lambda: StripeGateway(self.client).amount_refunded(payment_intent_id))
        except LookupInconclusive:
            return None

    def charged(self, payment_intent_id: str, since: int, until: int) -> tuple[Charged, int, str]:
        """Whether and when a PaymentIntent was charged, with its amount and currency."""
        expand = {"expand": ["latest_charge.balance_transaction"]}
        try:
            intent: Any = self._patiently(
                lambda: self.client.v1.payment_intents.retrieve(payment_intent_id, expand)  # type: ignore[arg-type]
            )
        except stripe.InvalidRequestError as error:
            if error.http_status != 404:
                raise
            return Charged.NOT, 0, ""
        if intent.status != "succeeded":
            return Charged.NOT, 0, ""
        booked_at = intent.latest_charge.balance_transaction.created
        when = Charged.WITHIN if since <= booked_at < until else Charged.OUTSIDE
        return when, intent.amount, intent.currency.upper()

    def refund_booked_at(self, stripe_refund_id: str) -> int | None:
        """When a refund was booked; None if Stripe has no such refund."""
        try:
            refund: Any = self._patiently(
                lambda: self.client.v1.refunds.retrieve(stripe_refund_id, {"expand": ["balance_transaction"]})
            )
        except stripe.InvalidRequestError as error:
            if error.http_status != 404:
                raise
            return None
        booked = getattr(refund, "balance_transaction", None)
        return int(booked.created if booked else refund.created)

    def _patiently[Answer](self, request: Callable[[], Answer]) -> Answer:
        for tried in range(1, _TRIES + 1):
            try:
                return request()
            except (stripe.RateLimitError, stripe.APIConnectionError, stripe.APIError):
                if tried == _TRIES:
                    raise
                self.pause(_PAUSE_SECONDS * tried)
        raise AssertionError  # The loop returns or raises.


def _id_of(expandable: Any) -> str | None:
    return expandable if expandable is None or isinstance(expandable, str) else str(expandable.id)
