"""Stripe's refunds, as the refund protocol sees them: requests go out, refunds or one kind of failure come back.

Source: Stripe API reference, "Create a refund", "List all refunds", "The Refund object".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import stripe

from onecharge.contract.events import ATTEMPTS_MAX
from onecharge.payments.charges.gateway import LookupInconclusive
from onecharge.payments.refunds.protocol import FoundRefund, FrozenRefund
from onecharge.payments.stripe_responses import Failure, classify, is_replay

if TYPE_CHECKING:
    from stripe import RequestOptions
    from stripe.params import RefundCreateParams, RefundListParams

_LIST_PAGES_MAX = 20
_PAGE_SIZE = 100


@dataclass(frozen=True)
class RefundResponse:
    """What came back: a refund, or why there is none."""

    refund: FoundRefund | None = None
    failure: Failure | None = None
    is_replay: bool = False
    """The stored answer of an earlier request: it does not say what the refund is by now."""


@dataclass(frozen=True)
class StripeRefunds:
    """Requests through one StripeClient, so of one account.

    What one account shows proves nothing about another: a lookup and the POST after it go through the same client.
    """

    client: stripe.StripeClient

    def create(self, request: FrozenRefund) -> RefundResponse:
        """Refund what is frozen, under its one key."""
        parameters: RefundCreateParams = {
            "payment_intent": request.payment_intent_id,
            "amount": request.amount_minor,
            "metadata": {
                "order_id": request.order_id,
                "refund_id": request.refund_id,
                "attempt": str(request.attempt),
            },
        }
        # The SDK does not send it again: a refusal would hide a 500 before it, which Stripe may still execute.
        options: RequestOptions = {"idempotency_key": request.idempotency_key, "max_network_retries": 0}
        try:
            refund = self.client.v1.refunds.create(parameters, options)
        except stripe.StripeError as error:
            return RefundResponse(failure=classify(error), is_replay=is_replay(error.headers))
        response = getattr(refund, "last_response", None)
        return RefundResponse(
            refund=_found(refund), is_replay=is_replay(response.headers) if response is not None else False
        )

    def find_refunds(self, payment_intent_id: str, refund_id: str) -> list[FoundRefund]:
        """Every refund of this id: the list of a PaymentIntent's refunds is immediate and complete.

        Raises:
            LookupInconclusive: the list is longer than is read in one go.
            stripe.StripeError: Stripe gave no answer.
        """
        refunds = self._listed(payment_intent_id)
        return [_found(refund) for refund in refunds if _metadata(refund).get("refund_id") == refund_id]

    def amount_refunded(self, payment_intent_id: str) -> int:
        """All that is refunded of a PaymentIntent now, by us or by hand; what failed is not. Raises as find_refunds."""
        refunds = [_found(refund) for refund in self._listed(payment_intent_id)]
        return sum(refund.amount_minor for refund in refunds if refund.status not in ("failed", "canceled"))

    def _listed(self, payment_intent_id: str) -> Iterator[stripe.Refund]:
        after: str | None = None
        for _ in range(_LIST_PAGES_MAX):
            parameters: RefundListParams = {"payment_intent": payment_intent_id, "limit": _PAGE_SIZE}
            if after is not None:
                parameters["starting_after"] = after
            page = self.client.v1.refunds.list(parameters)
            yield from page.data
            if not page.has_more:
                return
            after = page.data[-1].id
        raise LookupInconclusive


def _found(refund: stripe.Refund) -> FoundRefund:
    # The SDK's objects have no attribute for what an answer leaves out.
    attempt = _metadata(refund).get("attempt", "")
    is_attempt = attempt.isdecimal() and 1 <= int(attempt) <= ATTEMPTS_MAX
    return FoundRefund(
        stripe_refund_id=refund.id,
        status=getattr(refund, "status", None) or "none",
        amount_minor=refund.amount,
        currency=refund.currency.upper(),
        failure_reason=getattr(refund, "failure_reason", None),
        attempt=int(attempt) if is_attempt else 1,
        created=getattr(refund, "created", 0),
    )


def _metadata(made: Any) -> dict[str, str]:
    metadata = getattr(made, "metadata", None)
    return metadata.to_dict() if metadata is not None else {}
