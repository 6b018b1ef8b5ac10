"""Stripe's refunds: a request goes out under a key, one of the protocol's answers comes back.

Source: Stripe documentation, "Create a refund", "List all refunds", "The Refund object".
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import stripe

from onecharge.payments.stripe_gateway import LookInconclusive, reply_for_error
from refund_charge.protocol import FoundRefund, FrozenRefund, RefundReply, reply_for

if TYPE_CHECKING:
    from stripe.params import RefundCreateParams

_PAGES_MAX = 20
_PAGE_SIZE = 100


@dataclass(frozen=True)
class StripeRefunds:
    """Refunds and looks, through one StripeClient."""

    client: stripe.StripeClient

    def refund(self, request: FrozenRefund, idempotency_key: str) -> RefundReply:
        """Send the frozen request under the key; sent again under the same key, it refunds no second time."""
        parameters = cast("RefundCreateParams", json.loads(request.parameters_json))
        try:
            refund = self.client.v1.refunds.create(parameters, {"idempotency_key": idempotency_key})
        except stripe.StripeError as error:
            reply = reply_for_error(error)
            return RefundReply(reply.answer, code=reply.code)
        return reply_for(request, _found(refund))

    def look(self, request: FrozenRefund) -> list[FoundRefund]:
        """Every refund of this id: the list of a PaymentIntent's refunds is immediate and complete.

        Raises:
            LookInconclusive: the list is longer than is read in one go.
            stripe.StripeError: Stripe gave no answer.
        """
        page = self.client.v1.refunds.list({"payment_intent": request.payment_intent_id, "limit": _PAGE_SIZE})
        found = []
        for _ in range(_PAGES_MAX):
            found += [_found(refund) for refund in page.data if _is_of(refund, request.refund_id)]
            if not page.has_more:
                return found
            page = page.next_page()
        raise LookInconclusive


def _is_of(refund: stripe.Refund, refund_id: str) -> bool:
    metadata = refund.metadata
    return metadata is not None and metadata.to_dict().get("refund_id") == refund_id


def _found(refund: stripe.Refund) -> FoundRefund:
    # The SDK's objects have no attribute for what an answer leaves out.
    return FoundRefund(
        stripe_refund_id=refund.id,
        status=refund.status or "none",
        amount_minor=refund.amount,
        currency=refund.currency.upper(),
        failure_reason=getattr(refund, "failure_reason", None),
    )
