"""Stripe's refunds of a PaymentIntent. Source: Stripe API reference, "Create a refund", "List all refunds"."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import stripe

from onecharge.contract.refunds import RefundRequested
from onecharge.payments.payment_intents import metadata_of
from onecharge.payments.refund_rules import StripeRefund
from onecharge.payments.stripe_responses import Failure, ResponseKind, classify, is_replayed

if TYPE_CHECKING:
    from stripe import RequestOptions
    from stripe.params import RefundCreateParams

_PAGE_SIZE = 100


@dataclass(frozen=True)
class RefundsAtStripe:
    """Requests through one StripeClient, and so to one account."""

    client: stripe.StripeClient
    shop: str

    def create(self, wanted: RefundRequested, payment_intent_id: str) -> StripeRefund | Failure:
        """Create the refund, under its one key."""
        metadata = {"shop": self.shop, "order_id": wanted.order_id, "refund_id": wanted.refund_id}
        parameters: RefundCreateParams = {
            "payment_intent": payment_intent_id,
            "amount": wanted.amount_minor,
            "metadata": metadata,
        }
        # The SDK does not retry: a refusal of its second request would hide a 500 that Stripe may still execute.
        key = f"{self.shop}:{wanted.refund_id}"
        options: RequestOptions = {"idempotency_key": key, "max_network_retries": 0}
        try:
            made = self.client.v1.refunds.create(parameters, options)
        except stripe.StripeError as error:
            return classify(error)
        if not metadata.items() <= metadata_of(made).items():
            return Failure(ResponseKind.OTHER_OBJECT)
        # A replay shows it as it was then: the next delivery lists it.
        return Failure(ResponseKind.RETRYABLE, "replayed") if is_replayed(made) else read_refund(made)

    def list(self, payment_intent_id: str) -> list[StripeRefund]:
        """All refunds of the PaymentIntent, the newest first. Raises stripe.StripeError."""
        parameters: Any = {"payment_intent": payment_intent_id, "limit": _PAGE_SIZE}
        return list(map(read_refund, self.client.v1.refunds.list(parameters).auto_paging_iter()))


def read_refund(made: Any) -> StripeRefund:
    """The protocol's view of a refund. The SDK's objects have no attribute for what a response leaves out."""
    status = getattr(made, "status", None) or "none"
    return StripeRefund(
        stripe_refund_id=made.id,
        status=status,
        amount_minor=made.amount,
        currency=made.currency.upper(),
        refund_id=metadata_of(made).get("refund_id"),
        failure_reason=getattr(made, "failure_reason", None),
        pending_reason=getattr(made, "pending_reason", None) if status == "pending" else None,
    )
