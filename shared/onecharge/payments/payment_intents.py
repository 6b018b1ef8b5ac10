"""Stripe's PaymentIntents and their refunds as the protocol needs them: each request returns one, or why there is none.

This module knows Stripe's API; what its objects mean is decided in charge_rules.py and refund_rules.py. Source: Stripe
API reference, "PaymentIntents", "Idempotent requests", "Create a refund", "List all refunds".
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import stripe

from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.contract.refund_events import RefundRequested
from onecharge.payments.disputes import Dispute
from onecharge.payments.payments_table import Payment
from onecharge.payments.refund_rules import StripeRefund
from onecharge.payments.stripe_errors import classify
from onecharge.payments.stripe_responses import Failure, Response, ResponseKind, StripeIntent

if TYPE_CHECKING:
    from stripe import RequestOptions
    from stripe.params import PaymentIntentCreateParams, RefundCreateParams


_PAGE_SIZE = 100


def create_key(row: Payment, shop: str, number: int) -> str:
    """An idempotency key of the row's window: a release begins another window, with other keys."""
    return f"{shop}:{row.request.order_id}:{row.released_at or 0}:{number}"


def confirm_key(row: Payment, shop: str) -> str:
    """The one idempotency key of this attempt and PaymentIntent."""
    return f"{shop}:{row.request.order_id}:{row.attempt}:{row.payment_intent_id}"


def description_of(order_id: str) -> str:
    """A PaymentIntent's description: it names the order once more, beside metadata that a person may edit."""
    return f"Order {order_id}"


def _asked(request: Callable[[], Any], intent_id: str | None = None) -> Response:
    """The answer to a request: another PaymentIntent than the one asked for would pay with another order's money."""
    try:
        made = request()
    except stripe.StripeError as error:
        return Response(failure=classify(error), is_replay=is_replay(error))
    if intent_id is not None and getattr(made, "id", None) != intent_id:
        return Response(failure=Failure(ResponseKind.OTHER_OBJECT))
    return Response(intent=read_intent(made), is_replay=is_replay(made))


def is_replay(answer: Any) -> bool:
    """Whether the SDK's object or error is the stored response of an earlier request under the same key."""
    headers = getattr(getattr(answer, "last_response", answer), "headers", None)
    given = {name.lower(): value for name, value in (headers or {}).items()}
    return given.get("idempotent-replayed") == "true"


def read_intent(intent: Any) -> StripeIntent:
    """The protocol's view of a PaymentIntent. The SDK's objects have no attribute for what a response leaves out."""
    metadata = metadata_of(intent)
    order_id = metadata.get("order_id", "")
    charge = getattr(intent, "latest_charge", None)
    return StripeIntent(
        payment_intent_id=intent.id,
        status=intent.status,
        amount_minor=intent.amount,
        currency=intent.currency.upper(),
        shop=metadata.get("shop", ""),
        order_id=order_id if re.match(ORDER_ID_PATTERN, order_id) else None,
        is_described=getattr(intent, "description", None) == description_of(order_id),
        customer_id=metadata.get("customer_id", ""),
        created=getattr(intent, "created", 0),
        takes_cards="card" in getattr(intent, "payment_method_types", ("card",)),
        cancellation_reason=getattr(intent, "cancellation_reason", None),
        error_code=_error_code_of(intent, charge),
        charged_at=getattr(charge, "created", None),
        amount_refunded_minor=getattr(charge, "amount_refunded", 0),
        is_disputed=getattr(charge, "disputed", False),
        client_secret=getattr(intent, "client_secret", None),
    )


@dataclass(frozen=True)
class PaymentIntents:
    """Requests through one StripeClient, and so to one account.

    Args:
        shop: spelled in keys and metadata. Two shops in one Stripe account share nothing.
    """

    client: stripe.StripeClient
    shop: str

    def create(self, row: Payment, number: int) -> Response:
        """Create the order's PaymentIntent, without `confirm`: no money moves.

        The parameters follow from frozen values alone: with others, Stripe refuses the key. The order's time is not
        among them: an order that was lost and placed again has another one, and is led to the same PaymentIntent.
        """
        request = row.request
        metadata = {"shop": self.shop, "order_id": request.order_id, "customer_id": request.customer_id}
        parameters: PaymentIntentCreateParams = {
            "amount": request.amount_minor,
            "currency": request.currency.lower(),
            # No redirect, so no return_url. `payment_method_types` is refused from version 2026-09-30.endive on.
            "allowed_payment_method_types": ["card"],
            "metadata": metadata,
            "description": description_of(request.order_id),
            # A prefix has ten characters at most, "* " follows, and all of it is 22 (Stripe documentation, "Statement
            # descriptors"): so it fits any account.
            "statement_descriptor_suffix": f"ORD {request.order_id[4:10].upper()}",
        }
        options: RequestOptions = {"idempotency_key": create_key(row, self.shop, number)}
        response = _asked(lambda: self.client.v1.payment_intents.create(parameters, options))
        if response.intent and not request.matches(response.intent, self.shop):
            return Response(failure=Failure(ResponseKind.OTHER_OBJECT))
        return response

    def confirm(self, row: Payment) -> Response:
        """Confirm the row's PaymentIntent with the attempt's payment method, under the attempt's one key."""
        intent_id = str(row.payment_intent_id)
        # Stripe.js in the page handles 3-D Secure (handleNextAction).
        parameters: Any = {"payment_method": row.payment_method, "use_stripe_sdk": True}
        options: RequestOptions = {"idempotency_key": confirm_key(row, self.shop)}
        return _asked(lambda: self.client.v1.payment_intents.confirm(intent_id, parameters, options), intent_id)

    def retrieve(self, intent_id: str) -> Response:
        """The PaymentIntent as it is now, with its latest charge: an update clears the PaymentIntent's last error."""
        expand: Any = {"expand": ["latest_charge"]}
        return _asked(lambda: self.client.v1.payment_intents.retrieve(intent_id, expand), intent_id)

    # ------------------------------------------------------------ cancellations, disputes, refunds

    def cancel(self, intent_id: str, reason: str) -> Response:
        """Cancel it; returns its final status, which is `succeeded` if it is too late. Idempotent.

        Args:
            reason: Stripe's `cancellation_reason`; `abandoned` says that 3-D Secure was not finished in time.
        """
        parameters: Any = {"cancellation_reason": reason}
        response = _asked(lambda: self.client.v1.payment_intents.cancel(intent_id, parameters), intent_id)
        refused = response.failure and response.failure.kind is ResponseKind.UNEXPECTED_STATE
        return self.retrieve(intent_id) if refused else response

    def with_dispute_that_counts(self, intent: StripeIntent) -> StripeIntent:
        """The PaymentIntent with the dispute of its charges that counts, if it has any. Raises stripe.StripeError."""
        if not intent.is_disputed:
            return intent
        of_it: Any = {"payment_intent": intent.payment_intent_id, "limit": _PAGE_SIZE}
        disputes = [Dispute(each.id, each.status) for each in self.client.v1.disputes.list(of_it).data]
        return replace(intent, dispute=Dispute.that_counts(disputes))

    def create_refund(self, wanted: RefundRequested, payment_intent_id: str) -> StripeRefund | Failure:
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
        return Failure(ResponseKind.RETRYABLE, "replayed") if is_replay(made) else read_refund(made)

    def retrieve_refund(self, stripe_refund_id: str) -> StripeRefund:
        """The refund as it is now. Raises stripe.StripeError."""
        return read_refund(self.client.v1.refunds.retrieve(stripe_refund_id))

    def list_refunds(self, payment_intent_id: str) -> list[StripeRefund]:
        """All refunds of the PaymentIntent, the newest first. Raises stripe.StripeError."""
        parameters: Any = {"payment_intent": payment_intent_id, "limit": _PAGE_SIZE}
        return list(map(read_refund, self.client.v1.refunds.list(parameters).auto_paging_iter()))


def read_refund(made: Any) -> StripeRefund:
    """The protocol's view of a refund."""
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


def _error_code_of(intent: Any, charge: Any) -> str | None:
    error = getattr(intent, "last_payment_error", None)
    if error is not None:
        return getattr(error, "decline_code", None) or getattr(error, "code", None)
    if getattr(charge, "status", None) == "failed":
        return getattr(getattr(charge, "outcome", None), "reason", None) or getattr(charge, "failure_code", None)
    return None


def metadata_of(made: Any) -> dict[str, str]:
    """The metadata of an object that the SDK returned."""
    metadata = getattr(made, "metadata", None)
    return metadata.to_dict() if metadata is not None else {}
