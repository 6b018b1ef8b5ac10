"""Stripe, as the charge protocol sees it: a request goes out under a key, one of the protocol's answers comes back.

This module knows what Stripe's statuses and error codes look like; what they mean for the order is decided in
protocol.py. Source: Stripe documentation, "Error handling", "Idempotent requests", "PaymentIntents API".
"""

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

import requests
import stripe
from requests.adapters import HTTPAdapter

from onecharge.aws import BATCH_SIZE
from onecharge.events import ORDER_ID_PATTERN
from onecharge.payments.protocol import AUTHENTICATION_REQUIRED, Answer, FoundIntent, FrozenRequest, Reply, reply_for
from onecharge.payments.time_bounds import (
    ABSENCE_GRACE_SECONDS,
    CLOCK_DIFFERENCE_SECONDS,
    SEARCH_LAG_SECONDS,
    STRIPE_RETRIES,
    TimeBounds,
)

if TYPE_CHECKING:
    from stripe.params import PaymentIntentCreateParams

_LIST_PAGES_MAX = 20
_PAGE_SIZE = 100
_TELLING_EVENTS = ("payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled")
_WEBHOOK_EVENTS = (*_TELLING_EVENTS, "payment_intent.requires_action")


class LookInconclusive(Exception):
    """Stripe showed too much, or too little, to prove that a charge is absent."""


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
        base_addresses={"api": api_base},
        max_network_retries=STRIPE_RETRIES,
        http_client=stripe.RequestsClient(
            timeout=(bounds.stripe_connect_timeout_seconds, bounds.stripe_read_timeout_seconds),
            session=session,
        ),
    )


AttemptKey = tuple[str, int]
"""Order id and attempt."""


@dataclass(frozen=True)
class Told:
    """A PaymentIntent of ours that an event told of, as it was then."""

    event_id: str
    order_id: str
    attempt: int
    intent: FoundIntent


class Aftermath(StrEnum):
    """What may befall a charge after it was made, by the type of Stripe's event."""

    REFUNDED = "charge.refunded"
    DISPUTED = "charge.dispute.created"


@dataclass(frozen=True)
class ToldOfCharge:
    """Something has befallen a charge, of ours or not."""

    event_id: str
    what: Aftermath
    payment_intent_id: str | None
    """None for a charge that was made without one, and so is not ours."""
    whose: AttemptKey | None
    """What its own metadata say: those of a charge repeat its PaymentIntent's, a dispute has none of them."""


@dataclass(frozen=True)
class Page:
    """Events, newest first; `next` is the id of the last one if there are more."""

    told: list[Told]
    next: str | None


@dataclass(frozen=True)
class StripeGateway:
    """Charges and looks, through one StripeClient."""

    client: stripe.StripeClient

    def charge(self, request: FrozenRequest, idempotency_key: str) -> Reply:
        """Send the frozen request under the key; sent again under the same key, it charges no second time."""
        parameters = cast("PaymentIntentCreateParams", json.loads(request.parameters_json))
        try:
            intent = self.client.v1.payment_intents.create(parameters, {"idempotency_key": idempotency_key})
        except stripe.StripeError as error:
            return _reply_for_error(request, error)
        return reply_for(request, _found(intent))

    def confirm(self, request: FrozenRequest, payment_intent_id: str) -> Reply:
        """Confirm a PaymentIntent of ours that never was; Stripe allows no second success of the same one."""
        payment_method = json.loads(request.parameters_json)["payment_method"]
        try:
            intent = self.client.v1.payment_intents.confirm(
                payment_intent_id,
                {"payment_method": payment_method},
                {"idempotency_key": f"confirm:{payment_intent_id}"},
            )
        except stripe.StripeError as error:
            return _reply_for_error(request, error)
        return reply_for(request, _found(intent))

    def look(self, request: FrozenRequest, *, placed_at: int, appears_until: int, now: int) -> list[FoundIntent]:
        """Every PaymentIntent of this order and attempt.

        Search knows the metadata but lags; the list is immediate but knows no metadata. So search answers for what is
        older than its lag, and the list, read page by page, for what is younger and can be ours at all: once
        `appears_until` is longer ago than that, no list is needed.

        Raises:
            LookInconclusive: the list is longer than is read in one go.
            stripe.StripeError: Stripe gave no answer.
        """
        # A PaymentIntent may appear, and search only then begin to lag, as late as the grace time after it was created.
        unseen_since = now - SEARCH_LAG_SECONDS - ABSENCE_GRACE_SECONDS
        since = max(placed_at, unseen_since) - CLOCK_DIFFERENCE_SECONDS
        until = min(appears_until, now) + CLOCK_DIFFERENCE_SECONDS
        ids = {intent.id for intent in self._searched(request)}
        if since <= until:
            ids |= {intent.id for intent in self._listed(request, since, until)}
        # What search tells of a status may be old; the object itself is not.
        return [_found(self.client.v1.payment_intents.retrieve(found)) for found in sorted(ids)]

    def retrieve(self, payment_intent_id: str) -> FoundIntent | None:
        """The PaymentIntent as it is now; None if this Stripe account has none of that id."""
        intent = self._retrieved(payment_intent_id)
        return _found(intent) if intent is not None else None

    def whose(self, payment_intent_id: str) -> AttemptKey | None:
        """The order and attempt that a PaymentIntent was made for; None if it is not ours."""
        intent = self._retrieved(payment_intent_id)
        return _whose(intent) if intent is not None else None

    def cancel(self, payment_intent_id: str) -> FoundIntent:
        """See to it that nobody can confirm it any more; returns what it is then, which may be that it succeeded."""
        try:
            return _found(self.client.v1.payment_intents.cancel(payment_intent_id))
        except stripe.InvalidRequestError:
            # Its status allows no canceling: it has succeeded, or is canceled already.
            return _found(self.client.v1.payment_intents.retrieve(payment_intent_id))

    def told(self, *, since: int, until: int, after: str | None) -> Page:
        """One page of what events told of our PaymentIntents, from `since` up to before `until`, epoch seconds.

        Stripe keeps events for 30 days (Stripe documentation, "List all events").
        """
        page = self.client.v1.events.list(
            {
                "types": list(_TELLING_EVENTS),
                "created": {"gte": since, "lt": until},
                "limit": _PAGE_SIZE,
                **({"starting_after": after} if after else {}),
            }
        )
        return Page(
            told=[told for event in page.data if (told := _told(event)) is not None],
            next=page.data[-1].id if page.has_more else None,
        )

    def _retrieved(self, payment_intent_id: str) -> stripe.PaymentIntent | None:
        try:
            return self.client.v1.payment_intents.retrieve(payment_intent_id)
        except stripe.InvalidRequestError as error:
            if error.http_status == 404:
                return None
            raise

    def _searched(self, request: FrozenRequest) -> Iterator[stripe.PaymentIntent]:
        query = f"metadata['order_id']:'{request.order_id}' AND metadata['attempt']:'{request.attempt}'"
        page = self.client.v1.payment_intents.search({"query": query, "limit": _PAGE_SIZE})
        yield from page.data

    def _listed(self, request: FrozenRequest, since: int, until: int) -> Iterator[stripe.PaymentIntent]:
        wanted = {"order_id": request.order_id, "attempt": str(request.attempt)}
        page = self.client.v1.payment_intents.list({"created": {"gte": since, "lte": until}, "limit": _PAGE_SIZE})
        for _ in range(_LIST_PAGES_MAX):
            yield from (intent for intent in page.data if wanted.items() <= intent.metadata.to_dict().items())
            if not page.has_more:
                return
            page = page.next_page()
        raise LookInconclusive


def told_by(event: Any) -> Told | ToldOfCharge | None:
    """What a webhook's event tells; None if it is of another type, or of a PaymentIntent that is not ours.

    `event` is a stripe.Event whose signature has been verified.
    """
    if event.type in _WEBHOOK_EVENTS:
        return _told(event)
    if event.type in list(Aftermath):
        charge_or_dispute = event.data.object
        return ToldOfCharge(
            event.id,
            Aftermath(event.type),
            getattr(charge_or_dispute, "payment_intent", None),
            _whose(charge_or_dispute),
        )
    return None


def _told(event: Any) -> Told | None:
    whose = _whose(event.data.object)
    return Told(event.id, *whose, _found(event.data.object)) if whose else None


def _whose(made: Any) -> AttemptKey | None:
    """Whose it is, by its metadata; None if it is not ours, for others may use the same Stripe account."""
    metadata = getattr(made, "metadata", None)
    ours = metadata.to_dict() if metadata is not None else {}
    order_id, attempt = ours.get("order_id", ""), ours.get("attempt", "")
    if not (re.match(ORDER_ID_PATTERN, order_id) and attempt.isdecimal()):
        return None
    return order_id, int(attempt)


def _found(intent: stripe.PaymentIntent) -> FoundIntent:
    # The SDK's objects have no attribute for what an answer leaves out.
    failure = getattr(intent, "last_payment_error", None)
    return FoundIntent(
        payment_intent_id=intent.id,
        status=intent.status,
        amount_minor=intent.amount,
        currency=intent.currency.upper(),
        was_declined=failure is not None,
        decline_code=_decline_code(failure),
        client_secret=getattr(intent, "client_secret", None),
    )


def _decline_code(failure: object) -> str | None:
    """Why the issuer said no; Stripe's error code where there is no decline code, as for an expired card."""
    return getattr(failure, "decline_code", None) or getattr(failure, "code", None)


def _reply_for_error(request: FrozenRequest, error: stripe.StripeError) -> Reply:
    reply = reply_for_error(error)
    return _reply_for_card_error(request, error.error) if reply.answer is Answer.DECLINED else reply


def reply_for_error(error: stripe.StripeError) -> Reply:
    """Which of the protocol's answers an error is; what is not recognised is never taken for a decline."""
    # A 409 arrives with `error.code` None; the code stands in the body alone.
    details: Any = error.error
    code = getattr(details, "code", None) or error.code
    match error.http_status:
        case None | 408 | 424:
            return Reply(Answer.NO_ANSWER)
        case 402 if getattr(details, "type", None) == "card_error":
            return Reply(Answer.DECLINED, code=_decline_code(details))
        case 402:
            return Reply(Answer.SERVER_ERROR)
        case 409:
            return Reply(Answer.KEY_IN_USE)
        case 429:
            return Reply(Answer.RATE_LIMITED)
        case 503:
            return Reply(Answer.UNAVAILABLE)
        case 401 | 403:
            return Reply(Answer.BAD_API_KEY)
        case 400 if isinstance(error, stripe.IdempotencyError):
            return Reply(Answer.OTHER_REQUEST)
        case int() as status if status >= 500:
            return Reply(Answer.SERVER_ERROR)
        case int() as status if status < 400:
            # An answer that broke off: it says that there was one, and not which.
            return Reply(Answer.NO_ANSWER)
        case _ if getattr(details, "type", None) is None:
            # No answer of Stripe's, whatever answered: a proxy, or a wrong address.
            return Reply(Answer.NO_ANSWER)
        case _:
            return Reply(Answer.REFUSED, code=code)


def _reply_for_card_error(request: FrozenRequest, details: Any) -> Reply:
    intent = getattr(details, "payment_intent", None)
    found = _found(intent) if intent is not None else None
    if found and (found.amount_minor, found.currency) != (request.amount_minor, request.currency):
        return Reply(Answer.OTHER_AMOUNT, found.payment_intent_id)
    code, payment_intent_id = _decline_code(details), found.payment_intent_id if found else None
    if code == AUTHENTICATION_REQUIRED:
        return Reply(Answer.REQUIRES_ACTION, payment_intent_id, code, found.client_secret if found else None)
    return Reply(Answer.DECLINED, payment_intent_id, code)
