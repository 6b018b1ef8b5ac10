"""Stripe, as the charge protocol sees it: requests go out, PaymentIntents or one kind of failure come back.

This module knows what Stripe's objects look like; what they mean is decided in protocol.py. Source: Stripe API
reference, "PaymentIntents", "Idempotent requests", "Search".
"""

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import requests
import stripe
from requests.adapters import HTTPAdapter

from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.payments.charges.protocol import CancelReason, FoundIntent, FrozenRequest, Payment
from onecharge.payments.stripe_responses import Failure, ResponseKind, classify, is_replay
from onecharge.payments.time_bounds import SEARCH_LAG_SECONDS, STRIPE_RETRIES, TimeBounds
from onecharge.runtime.aws import BATCH_SIZE

if TYPE_CHECKING:
    from stripe.params import PaymentIntentCreateParams

STRIPE_VERSION = "2026-10-28.endive"
"""Named, so that an upgrade of the SDK is no silent upgrade of the API."""

_LIST_PAGES_MAX = 20
_PAGE_SIZE = 100
_LIST_MARGIN_SECONDS = 3600
"""Clocks differ by less than this: the list begins so much earlier, and ends so much later."""


class NoSuchPaymentIntent(Exception):
    """The account of our secret has no PaymentIntent of this id."""


class LookupInconclusive(Exception):
    """Stripe showed too much to be sure that everything of the order was seen."""


def stripe_client(api_key: str, *, api_base: str, bounds: TimeBounds) -> stripe.StripeClient:
    """One client for all threads: one connection pool, bounded time, and no file written about usage."""
    stripe.enable_telemetry = False
    # The SDK logs two lines a request at INFO; each delivery has one line of ours that says more.
    logging.getLogger("stripe").setLevel(logging.WARNING)
    session = requests.Session()
    session.mount("https://", HTTPAdapter(pool_connections=1, pool_maxsize=BATCH_SIZE))
    session.mount("http://", HTTPAdapter(pool_connections=1, pool_maxsize=BATCH_SIZE))
    return stripe.StripeClient(
        api_key,
        stripe_version=STRIPE_VERSION,
        base_addresses={"api": api_base},
        max_network_retries=STRIPE_RETRIES,
        http_client=stripe.RequestsClient(
            timeout=(bounds.stripe_connect_timeout_seconds, bounds.stripe_read_timeout_seconds),
            session=session,
        ),
    )


@dataclass(frozen=True)
class StripeResponse:
    """What came back: a PaymentIntent, or why there is none."""

    intent: FoundIntent | None = None
    failure: Failure | None = None
    is_replay: bool = False
    """The stored answer of an earlier request: it proves which PaymentIntent it is, and not what it is by now."""


class ChargeEventType(StrEnum):
    """What may happen to a charge after it was made, by the type of Stripe's event."""

    REFUNDED = "charge.refunded"
    DISPUTE_CREATED = "charge.dispute.created"
    DISPUTE_UPDATED = "charge.dispute.updated"
    DISPUTE_CLOSED = "charge.dispute.closed"


class RefundEventType(StrEnum):
    """What may happen to a refund after it was made."""

    UPDATED = "refund.updated"
    FAILED = "refund.failed"


_LATE_INTENT_EVENTS = ("payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled")
_LATE_EVENTS = (*_LATE_INTENT_EVENTS, *ChargeEventType, *RefundEventType)
_INTENT_EVENTS = (*_LATE_INTENT_EVENTS, "payment_intent.requires_action")
EVENT_TYPES = (*_INTENT_EVENTS, *ChargeEventType, *RefundEventType)
"""Every type that the webhook endpoint at Stripe has to send."""


@dataclass(frozen=True)
class PaymentIntentEvent:
    """A PaymentIntent of ours, as it was when Stripe made the event."""

    event_id: str
    order_id: str
    intent: FoundIntent

    @property
    def payment_intent_id(self) -> str:
        return self.intent.payment_intent_id


@dataclass(frozen=True)
class ChargeEvent:
    """Money of a charge went back, or may have to; `order_id` is None if the object itself does not say."""

    event_id: str
    type: ChargeEventType
    payment_intent_id: str | None
    order_id: str | None
    dispute_status: str | None = None


@dataclass(frozen=True)
class RefundEvent:
    """A refund changed at Stripe. `refund_id` is ours, or None for one that was made by hand."""

    event_id: str
    type: RefundEventType
    stripe_refund_id: str
    status: str
    order_id: str | None
    refund_id: str | None
    payment_intent_id: str | None
    failure_reason: str | None = None


StripeEvent = PaymentIntentEvent | ChargeEvent | RefundEvent


@dataclass(frozen=True)
class EventPage:
    """Events, newest first; `next` is the id of the last one if there are more."""

    events: list[StripeEvent]
    next: str | None


@dataclass(frozen=True)
class StripeGateway:
    """Requests through one StripeClient."""

    client: stripe.StripeClient
    has_time: Callable[[], bool] = lambda: True
    """Whether a lookup, which takes many requests, may go on."""

    # ------------------------------------------------------------ the two requests of an order

    def create(self, request: FrozenRequest, generation: int) -> StripeResponse:
        """Create the generation's PaymentIntent, without confirm: no money moves. Idempotent by its key."""
        parameters: PaymentIntentCreateParams = {
            "amount": request.amount_minor,
            "currency": request.currency.lower(),
            # No redirect, so no return_url. `payment_method_types` is refused from version 2026-09-30.endive on.
            "allowed_payment_method_types": ["card"],
            "metadata": {
                "order_id": request.order_id,
                "customer_id": request.customer_id,
                "placed_at": str(request.placed_at),
                "generation": str(generation),
            },
        }
        try:
            intent = self.client.v1.payment_intents.create(
                parameters, {"idempotency_key": request.create_key(generation)}
            )
        except stripe.StripeError as error:
            return _response_of(error)
        return StripeResponse(intent=found_intent(intent), is_replay=_is_replayed(intent))

    def confirm(self, payment: Payment) -> StripeResponse:
        """Confirm the PaymentIntent that is written down, with the attempt's payment method, under its one key."""
        try:
            intent = self.client.v1.payment_intents.confirm(
                str(payment.payment_intent_id),
                {"payment_method": payment.payment_method},
                {"idempotency_key": payment.confirm_key},
            )
        except stripe.StripeError as error:
            return _response_of(error)
        return StripeResponse(intent=found_intent(intent), is_replay=_is_replayed(intent))

    def retrieve(self, payment_intent_id: str) -> StripeResponse:
        """The PaymentIntent as it is now."""
        try:
            return StripeResponse(intent=found_intent(self.client.v1.payment_intents.retrieve(payment_intent_id)))
        except stripe.StripeError as error:
            return _response_of(error)

    def cancel(self, payment_intent_id: str, reason: CancelReason) -> StripeResponse:
        """Cancel it, unless it is too late: then what comes back is what it is. Idempotent by its own states."""
        try:
            intent = self.client.v1.payment_intents.cancel(payment_intent_id, {"cancellation_reason": reason.value})
        except stripe.StripeError as error:
            response = _response_of(error)
            refused = response.failure and response.failure.kind is ResponseKind.UNEXPECTED_STATE
            return self.retrieve(payment_intent_id) if refused else response
        return StripeResponse(intent=found_intent(intent))

    # ------------------------------------------------------------ lookup

    def find_payment_intents(self, request: FrozenRequest, *, now: int) -> list[FoundIntent]:
        """Every PaymentIntent of the order.

        Search knows the metadata but lags; the list is immediate but knows no metadata. So search answers for what is
        older than its lag, and the list, read page by page, for what is younger.

        Raises:
            LookupInconclusive: there is more than is read in one go, or in time.
            stripe.StripeError: Stripe gave no answer.
        """
        since = max(request.placed_at, now - SEARCH_LAG_SECONDS) - _LIST_MARGIN_SECONDS
        ids = {intent.id for intent in self._searched(request.order_id)}
        ids |= {intent.id for intent in self._listed(request.order_id, since)}
        # The search index may be behind in what it shows of a status; the object itself is not.
        return [found_intent(self._retrieved_in_time(each)) for each in sorted(ids)]

    def _retrieved_in_time(self, payment_intent_id: str) -> stripe.PaymentIntent:
        if not self.has_time():
            raise LookupInconclusive
        return self.client.v1.payment_intents.retrieve(payment_intent_id)

    def _searched(self, order_id: str) -> Iterator[stripe.PaymentIntent]:
        query = f"metadata['order_id']:'{order_id}'"
        page = self.client.v1.payment_intents.search({"query": query, "limit": _PAGE_SIZE})
        if page.has_more:
            raise LookupInconclusive
        yield from page.data

    def _listed(self, order_id: str, since: int) -> Iterator[stripe.PaymentIntent]:
        page = self.client.v1.payment_intents.list({"created": {"gte": since}, "limit": _PAGE_SIZE})
        for _ in range(_LIST_PAGES_MAX):
            yield from (intent for intent in page.data if _metadata(intent).get("order_id") == order_id)
            if not page.has_more:
                return
            if not self.has_time():
                break
            page = page.next_page()
        raise LookupInconclusive

    # ------------------------------------------------------------ events

    def list_events(self, *, since: int, until: int, after: str | None) -> EventPage:
        """One page of the events of PaymentIntents, charges and refunds, from `since` up to before `until`.

        Stripe keeps events for 30 days (Stripe documentation, "List all events").

        Args:
            since, until: epoch seconds.
            after: the id of the last event of the page before.
        """
        page = self.client.v1.events.list(
            {
                "types": list(_LATE_EVENTS),
                "created": {"gte": since, "lt": until},
                "limit": _PAGE_SIZE,
                **({"starting_after": after} if after else {}),
            }
        )
        parsed = [parse_event(event) for event in page.data]
        return EventPage([event for event in parsed if event], page.data[-1].id if page.has_more else None)

    def retrieve_event(self, event_id: str) -> StripeEvent | None:
        """The event as `parse_event` reads it."""
        return parse_event(self.client.v1.events.retrieve(event_id))

    def order_of(self, payment_intent_id: str) -> str | None:
        """The order that a PaymentIntent was made for; None if it is not ours. Raises NoSuchPaymentIntent."""
        try:
            return _order_id(self.client.v1.payment_intents.retrieve(payment_intent_id))
        except stripe.InvalidRequestError as error:
            if error.http_status == 404:
                raise NoSuchPaymentIntent from None
            raise


def parse_event(event: Any) -> StripeEvent | None:
    """What an event says; None if it is of another type, account or of a PaymentIntent that is not ours.

    `event` is a stripe.Event, from Stripe itself or with a signature that has been verified.
    """
    if getattr(event, "account", None) is not None:
        # Of a connected account, which is not ours to look into (Stripe documentation, "Connect webhooks").
        return None
    if event.type in _INTENT_EVENTS:
        return _payment_intent_event(event)
    made = event.data.object
    if event.type in list(ChargeEventType):
        is_dispute = event.type != ChargeEventType.REFUNDED
        return ChargeEvent(
            event.id,
            ChargeEventType(event.type),
            getattr(made, "payment_intent", None),
            _order_id(made),
            dispute_status=made.status if is_dispute else None,
        )
    if event.type in list(RefundEventType):
        return RefundEvent(
            event.id,
            RefundEventType(event.type),
            made.id,
            made.status or "none",
            order_id=_order_id(made),
            refund_id=_metadata(made).get("refund_id"),
            payment_intent_id=getattr(made, "payment_intent", None),
            failure_reason=getattr(made, "failure_reason", None),
        )
    return None


def found_intent(intent: Any) -> FoundIntent:
    """What the protocol wants to know of a PaymentIntent that the SDK shows."""
    # The SDK's objects have no attribute for what an answer leaves out.
    error = getattr(intent, "last_payment_error", None)
    metadata = _metadata(intent)
    return FoundIntent(
        payment_intent_id=intent.id,
        status=intent.status,
        amount_minor=intent.amount,
        currency=intent.currency.upper(),
        generation=_number(metadata.get("generation")) or 0,
        customer_id=metadata.get("customer_id", ""),
        placed_at=_number(metadata.get("placed_at")),
        payment_method=_id_of(getattr(intent, "payment_method", None)),
        cancellation_reason=getattr(intent, "cancellation_reason", None),
        latest_charge=_id_of(getattr(intent, "latest_charge", None)),
        error_code=getattr(error, "decline_code", None) or getattr(error, "code", None),
        advice_code=getattr(error, "advice_code", None),
        client_secret=getattr(intent, "client_secret", None),
    )


def _payment_intent_event(event: Any) -> PaymentIntentEvent | None:
    order_id = _order_id(event.data.object)
    return PaymentIntentEvent(event.id, order_id, found_intent(event.data.object)) if order_id else None


def _order_id(made: Any) -> str | None:
    """Whose it is, by its metadata; None if it is not ours, for others may use the same Stripe account."""
    order_id = _metadata(made).get("order_id", "")
    return order_id if re.match(ORDER_ID_PATTERN, order_id) else None


def _metadata(made: Any) -> dict[str, str]:
    metadata = getattr(made, "metadata", None)
    return metadata.to_dict() if metadata is not None else {}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _id_of(expandable: Any) -> str | None:
    """An id, or of an object that is sent whole its id."""
    return expandable if expandable is None or isinstance(expandable, str) else str(expandable.id)


def _is_replayed(intent: Any) -> bool:
    response = getattr(intent, "last_response", None)
    return is_replay(response.headers) if response is not None else False


def _response_of(error: stripe.StripeError) -> StripeResponse:
    failure = classify(error)
    intent = found_intent(failure.payment_intent) if failure.payment_intent is not None else None
    return StripeResponse(intent=intent, failure=failure, is_replay=is_replay(error.headers))
