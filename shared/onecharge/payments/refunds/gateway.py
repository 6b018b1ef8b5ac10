"""Stripe's refunds, as the refund protocol needs them: a request returns a refund, or why there is none.

find_refunds ─► create             a fresh refund: three requests

This module knows Stripe's API; what its objects mean is decided in protocol.py. Source: Stripe API reference, "Create a
refund", "List all refunds", "The Refund object".
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import stripe

from onecharge.contract.events import ATTEMPT_NUMBER_MAX
from onecharge.payments.charges.gateway import list_refunds
from onecharge.payments.refunds.protocol import FoundRefund, FrozenRefund
from onecharge.payments.stripe_responses import (
    Failure,
    LookupInconclusive,
    ResponseKind,
    classify,
    is_replay,
    is_replayed,
    metadata_of,
)

if TYPE_CHECKING:
    from stripe import RequestOptions
    from stripe.params import RefundCreateParams


@dataclass(frozen=True)
class RefundResponse:
    """A refund, or why there is none."""

    refund: FoundRefund | None = None
    failure: Failure | None = None
    is_replay: bool = False
    """The stored response of an earlier request: it does not prove the refund's current status."""


@dataclass(frozen=True)
class StripeRefunds:
    """Requests through one StripeClient, and so of one account.

    What one account shows proves nothing about another: a lookup and the POST after it use the same client.
    """

    client: stripe.StripeClient

    # ------------------------------------------------------------ one refund

    def create(self, request: FrozenRefund, key_number: int = 0) -> RefundResponse:
        """Create the refund that was frozen. Idempotent by its key."""
        metadata = {"order_id": request.order_id, "refund_id": request.refund_id, "attempt": str(request.attempt)}
        parameters: RefundCreateParams = {
            "payment_intent": request.payment_intent_id,
            "amount": request.amount_minor,
            "metadata": metadata,
        }
        # The SDK does not retry: a refusal of its second request would hide a 500 that Stripe may still execute.
        options: RequestOptions = {"idempotency_key": request.idempotency_key(key_number), "max_network_retries": 0}
        try:
            refund = self.client.v1.refunds.create(parameters, options)
        except stripe.StripeError as error:
            return RefundResponse(failure=classify(error), is_replay=is_replay(error.headers))
        if not metadata.items() <= metadata_of(refund).items():
            return RefundResponse(failure=Failure(ResponseKind.OTHER_OBJECT))
        return RefundResponse(refund=found_refund(refund), is_replay=is_replayed(refund))

    # ------------------------------------------------------------ lookup

    def find_refunds(self, payment_intent_id: str, refund_id: str) -> list[FoundRefund]:
        """Every refund of this id.

        Stripe does not say that its list of refunds shows one immediately. What has been refunded shows on the charge,
        too, which is read first: a refund that is made meanwhile is then no contradiction.

        Raises:
            LookupInconclusive: there are more refunds than are read, or fewer than the charge says.
            stripe.StripeError: Stripe did not answer, or refused.
        """
        expanded = self.client.v1.payment_intents.retrieve(payment_intent_id, {"expand": ["latest_charge"]})
        refunds = list(list_refunds(self.client, payment_intent_id))
        # Nor whether that sum falls when a refund fails: so those that failed are counted, too.
        if getattr(expanded.latest_charge, "amount_refunded", 0) > sum(each.amount for each in refunds):
            raise LookupInconclusive
        return [found_refund(refund) for refund in refunds if metadata_of(refund).get("refund_id") == refund_id]


def found_refund(refund: stripe.Refund) -> FoundRefund:
    """What the protocol needs to know of a refund that the SDK returned."""
    # The SDK's objects have no attribute for what a response leaves out.
    attempt = metadata_of(refund).get("attempt", "")
    is_pending = getattr(refund, "status", None) == "pending"
    is_attempt = attempt.isdecimal() and 1 <= int(attempt) <= ATTEMPT_NUMBER_MAX
    return FoundRefund(
        stripe_refund_id=refund.id,
        status=getattr(refund, "status", None) or "none",
        amount_minor=refund.amount,
        currency=refund.currency.upper(),
        failure_reason=getattr(refund, "failure_reason", None),
        pending_reason=getattr(refund, "pending_reason", None) if is_pending else None,
        attempt=int(attempt) if is_attempt else 1,
        created=getattr(refund, "created", 0),
    )
