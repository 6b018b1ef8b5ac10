"""Stripe's refunds, as the protocol needs them: a request returns one, or why there is none.

find_refunds ─► create_refund      a fresh refund: three requests

This module knows Stripe's API; what its objects mean is decided in refund_rules.py. Source: Stripe API reference,
"Create a refund", "List all refunds".
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import stripe

from onecharge.payments.payment_intents import metadata_of
from onecharge.payments.refund_rules import FrozenRefund, StripeRefund
from onecharge.payments.stripe_objects import read_refund
from onecharge.payments.stripe_responses import (
    Failure,
    LookupInconclusive,
    ResponseKind,
    classify,
    is_replay,
    is_replayed,
)

if TYPE_CHECKING:
    from stripe import RequestOptions
    from stripe.params import RefundCreateParams

_PAGE_SIZE = 100
_PAGES_MAX = 20
"""Of a PaymentIntent's refunds."""


@dataclass(frozen=True)
class StripeResponse:
    """A refund, or why there is none."""

    found: StripeRefund | None = None
    failure: Failure | None = None
    is_replay: bool = False
    """The stored response of an earlier request: it proves the object's id, not its current status."""


@dataclass(frozen=True)
class StripeGateway:
    """Requests through one StripeClient, and so to one account."""

    client: stripe.StripeClient

    def create_refund(self, request: FrozenRefund, key_number: int = 0) -> StripeResponse:
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
            return StripeResponse(failure=classify(error), is_replay=is_replay(error.headers))
        if not metadata.items() <= metadata_of(refund).items():
            return StripeResponse(failure=Failure(ResponseKind.OTHER_OBJECT))
        return StripeResponse(found=read_refund(refund), is_replay=is_replayed(refund))

    def find_refunds(self, payment_intent_id: str, refund_id: str) -> list[StripeRefund]:
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
        return [each for each in map(read_refund, refunds) if each.refund_id == refund_id]


def list_refunds(client: stripe.StripeClient, payment_intent_id: str) -> Iterator["stripe.Refund"]:
    """All refunds of a PaymentIntent that Stripe lists. Raises as `StripeGateway.find_refunds`."""
    return _all_of(client.v1.refunds.list, payment_intent=payment_intent_id)


def _all_of(read: Callable[[Any], Any], **of: str) -> Iterator[Any]:
    """The refunds of a PaymentIntent, page by page."""
    after: str | None = None
    for _ in range(_PAGES_MAX):
        parameters = {**of, "limit": _PAGE_SIZE}
        page = read(parameters if after is None else {**parameters, "starting_after": after})
        yield from page.data
        if not page.has_more:
            return
        after = page.data[-1].id
    raise LookupInconclusive
