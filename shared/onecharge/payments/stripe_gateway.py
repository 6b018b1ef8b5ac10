"""Stripe's PaymentIntents and refunds, as the protocols need them: a request returns one, or why there is none.

create ─► confirm                  a fresh order: two requests
retrieve, cancel                   everything else
find_payment_intents               an old order without a PaymentIntent: search and list
find_refunds ─► create_refund      a fresh refund: three requests

This module knows Stripe's API; what its objects mean is decided in charge_rules.py and refund_rules.py. Source: Stripe
API reference, "PaymentIntents", "Idempotent requests", "Search", "Create a refund", "List all refunds".
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import stripe

from onecharge.payments.after_charge import EARLY_FRAUD_WARNING, REVIEW, AfterCharge, Disputes
from onecharge.payments.charge_rules import (
    GROUPED_TERMS,
    CancelReason,
    FrozenRequest,
    Payment,
    StripeIntent,
)
from onecharge.payments.refund_rules import FrozenRefund, StripeRefund
from onecharge.payments.stripe_objects import fingerprint_of, metadata_of, read_intent, read_refund
from onecharge.payments.stripe_responses import (
    Failure,
    LookupInconclusive,
    ResponseKind,
    classify,
    is_replay,
    is_replayed,
)
from onecharge.payments.time_bounds import SEARCH_LAG_SECONDS
from onecharge.runtime.parallel import Parallel, one_after_another

if TYPE_CHECKING:
    from stripe import RequestOptions
    from stripe.params import (
        PaymentIntentConfirmParams,
        PaymentIntentCreateParams,
        PaymentIntentListParams,
        RefundCreateParams,
    )

_PAGE_SIZE = 100
_PAGES_MAX = 20
"""Of a PaymentIntent's refunds or disputes, or an order's charges."""
_LIST_PAGES_MAX = 1000
"""Of one part of a lookup's window. It bounds an operator's lookup; a worker's time ends long before."""
WINDOW_PARTS = 4
"""A window that is more than one page is listed in so many parts, by time, at once. With 200 ms a page they are 20
requests a second for as long as a lookup takes; Stripe allows 25 of one kind by default, and what it refuses makes the
lookup inconclusive."""
_LIST_MARGIN_SECONDS = 3600
"""Clocks differ by less than this: the list begins so much earlier."""

type Part = tuple[int, int | None]
"""Of a lookup's window: from one time up to, not including, the other, in epoch seconds; without end if it is None."""


@dataclass(frozen=True)
class StripeResponse[Found: (StripeIntent, StripeRefund)]:
    """A PaymentIntent or a refund, or why there is none."""

    found: Found | None = None
    failure: Failure | None = None
    is_replay: bool = False
    """The stored response of an earlier request: it proves the object's id, not its current status."""


@dataclass(frozen=True)
class StripeGateway:
    """Requests through one StripeClient, and so of one account.

    What one account shows proves nothing about another: a lookup and the POST after it use the same client.
    """

    client: stripe.StripeClient
    parallel: Parallel = one_after_another
    """Lists the parts of a lookup's window in parallel."""
    terms_version: int = 1
    """Of the orders that this deployment claims first. From GROUPED_TERMS on a lookup lists an order's charges, too."""

    # ------------------------------------------------------------ one PaymentIntent

    def create(self, request: FrozenRequest, generation: int) -> StripeResponse[StripeIntent]:
        """Create the generation's PaymentIntent, without `confirm`: no money moves. Idempotent by its key.

        Changing these parameters makes Stripe answer idempotency_error for keys in flight: the next generation and a
        lookup then follow (docs/protocol.md, rule 2).
        """
        metadata = {
            "order_id": request.order_id,
            "customer_id": request.customer_id,
            "placed_at": str(request.placed_at),
            "generation": str(generation),
        }
        parameters: PaymentIntentCreateParams = {
            "amount": request.amount_minor,
            "currency": request.currency.lower(),
            # No redirect, so no return_url. `payment_method_types` is refused from version 2026-09-30.endive on.
            "allowed_payment_method_types": ["card"],
            "metadata": metadata,
        }
        if request.terms_version >= GROUPED_TERMS:
            parameters |= grouped_terms(request.order_id)  # type: ignore[typeddict-item]  # Each is one of them.
        options: RequestOptions = {"idempotency_key": request.create_key(generation)}
        try:
            intent = self.client.v1.payment_intents.create(parameters, options)
        except stripe.StripeError as error:
            return _as_failed(error)
        if not metadata.items() <= metadata_of(intent).items():
            return StripeResponse(failure=Failure(ResponseKind.OTHER_OBJECT))
        return StripeResponse(found=read_intent(intent), is_replay=is_replayed(intent))

    def confirm(self, payment: Payment) -> StripeResponse[StripeIntent]:
        """Confirm the row's PaymentIntent with the attempt's payment method. Idempotent by the attempt's one key."""
        # 3-D Secure is handled by Stripe.js in the page (handleNextAction), even if a return_url is added one day.
        parameters: PaymentIntentConfirmParams = {"payment_method": payment.payment_method, "use_stripe_sdk": True}
        options: RequestOptions = {"idempotency_key": payment.confirm_key}
        try:
            intent = self.client.v1.payment_intents.confirm(str(payment.payment_intent_id), parameters, options)
        except stripe.StripeError as error:
            return _as_failed(error, payment.payment_intent_id)
        return _as_shown(payment.payment_intent_id, intent)

    def retrieve(self, payment_intent_id: str) -> StripeResponse[StripeIntent]:
        """The PaymentIntent as it is now, with its latest charge: an update clears the PaymentIntent's last error."""
        try:
            intent = self.client.v1.payment_intents.retrieve(payment_intent_id, {"expand": ["latest_charge"]})
        except stripe.StripeError as error:
            return _as_failed(error, payment_intent_id)
        return _as_shown(payment_intent_id, intent)

    def cancel(self, payment_intent_id: str, reason: CancelReason) -> StripeResponse[StripeIntent]:
        """Cancel it; returns its final status, which may be `succeeded` if it is too late. Idempotent."""
        try:
            intent = self.client.v1.payment_intents.cancel(payment_intent_id, {"cancellation_reason": reason.value})
        except stripe.StripeError as error:
            response = _as_failed(error, payment_intent_id)
            refused = response.failure and response.failure.kind is ResponseKind.UNEXPECTED_STATE
            return self.retrieve(payment_intent_id) if refused else response
        return _as_shown(payment_intent_id, intent)

    def card_of(self, payment_method: str) -> str | None:
        """The fingerprint of its card, by which two PaymentMethods are known as the same. Raises stripe.StripeError."""
        return fingerprint_of(self.client.v1.payment_methods.retrieve(payment_method))

    # ------------------------------------------------------------ lookup

    def find_payment_intents(
        self,
        request: FrozenRequest,
        *,
        now: int,
        is_time_known: bool = True,
        has_time: Callable[[], bool] = lambda: True,
    ) -> list[StripeIntent]:
        """Every PaymentIntent of the order.

        Search can query metadata, but is eventually consistent; the list is immediate, but cannot filter by metadata.
        So search finds what is older than its lag, and the list what is younger: in parts, each page by page, for as
        long as there is time. A lookup that has not read all of it has found nothing out. An account without search (as
        in India) is listed from the order's time on.

        Stripe says not to rely on search where consistency is strict. So what has charged, or has tried to, is found
        beside it, at any age: by the list of the order's charges, which is immediate.

        Args:
            now: epoch seconds.
            is_time_known: whether all of the order's PaymentIntents are younger than `placed_at`. One that was lost and
                placed again may have older ones.
            has_time: whether there is time for one more request.

        Raises:
            LookupInconclusive: there is more than was read, or too little time to read it; or only a list could say it,
                and there is no known start time to list from.
            stripe.StripeError: Stripe did not answer, or refused.
        """
        # Not from `placed_at` on: that is our clock's, and new if the order was lost and placed again.
        since = now - SEARCH_LAG_SECONDS
        try:
            ids = {intent.id for intent in self._searched(request.order_id)}
        except (stripe.InvalidRequestError, stripe.PermissionError):
            if not is_time_known:
                raise LookupInconclusive from None
            ids, since = set(), request.placed_at
        ids |= set(self._listed(request.order_id, since - _LIST_MARGIN_SECONDS, has_time))
        if self.terms_version >= GROUPED_TERMS:
            ids |= set(self._charged(request.order_id, has_time))
        # The search index may show an older status: the object itself is current. Other programs of the account may
        # group charges of theirs by our order's id.
        found = (read_intent(self._retrieved(each, has_time)) for each in sorted(ids))
        return [intent for intent in found if intent.order_id == request.order_id]

    def _retrieved(self, payment_intent_id: str, has_time: Callable[[], bool]) -> stripe.PaymentIntent:
        if not has_time():
            raise LookupInconclusive
        return self.client.v1.payment_intents.retrieve(payment_intent_id)

    def _searched(self, order_id: str) -> Iterator[stripe.PaymentIntent]:
        query = f"metadata['order_id']:'{order_id}'"
        page = self.client.v1.payment_intents.search({"query": query, "limit": _PAGE_SIZE})
        if page.has_more:
            raise LookupInconclusive
        yield from page.data

    def _charged(self, order_id: str, has_time: Callable[[], bool]) -> Iterator[str]:
        """The ids of the order's PaymentIntents that have a charge, which may have failed."""
        if not has_time():
            raise LookupInconclusive
        for charge in _all_of(self.client.v1.charges.list, transfer_group=order_id):
            if charge.payment_intent:
                yield str(charge.payment_intent)

    def _listed(self, order_id: str, since: int, has_time: Callable[[], bool]) -> list[str]:
        """The ids of the order's PaymentIntents that were created since then, in epoch seconds.

        Reads the newest page first; it is usually the only one. If not, its times say only where to cut the window:
        Stripe sorts by time, but nothing rests on it. The newest part has no end, so that each second is in a part.
        """
        parameters: PaymentIntentListParams = {"created": {"gte": since}, "limit": _PAGE_SIZE}
        page = self.client.v1.payment_intents.list(parameters)
        newest = _ids_of(order_id, page.data)
        if not page.has_more:
            return newest
        parts = parts_of(since, max((each.created for each in page.data), default=0) + 1, WINDOW_PARTS)
        if not parts:
            raise LookupInconclusive
        begin_of_newest, _ = parts.pop()
        ids = self.parallel(partial(self._listed_part, order_id, has_time), [*parts, (begin_of_newest, None)])
        return [*newest, *chain.from_iterable(ids)]

    def _listed_part(self, order_id: str, has_time: Callable[[], bool], part: Part) -> list[str]:
        """Of the PaymentIntents of a part, page by page."""
        since, until = part
        ids: list[str] = []
        parameters: PaymentIntentListParams = {"created": {"gte": since}, "limit": _PAGE_SIZE}
        if until is not None:
            parameters["created"] = {"gte": since, "lt": until}
        for _ in range(_LIST_PAGES_MAX):
            if not has_time():
                break
            page = self.client.v1.payment_intents.list(parameters)
            ids += _ids_of(order_id, page.data)
            if not page.has_more:
                return ids
            if not page.data:
                break
            parameters["starting_after"] = page.data[-1].id
        raise LookupInconclusive

    # ------------------------------------------------------------ what happened after the charge

    def charged_at(self, intent: StripeIntent) -> int:
        """When the PaymentIntent, which succeeded, was charged; epoch seconds. Raises stripe.StripeError."""
        return int(self.client.v1.charges.retrieve(str(intent.latest_charge)).created)

    def after_charge(self, intent: StripeIntent, before_each: Callable[[], None] = lambda: None) -> AfterCharge:
        """What followed the charge of a PaymentIntent that succeeded. Raises as below.

        Args:
            before_each: called before each of its three steps; it may raise, if there is too little time.
        """
        before_each()
        refunded = self.amount_refunded(intent.payment_intent_id)
        before_each()
        disputes = self.disputes(intent.payment_intent_id)
        before_each()
        try:
            return AfterCharge(refunded, disputes, self.fraud_suspicion(intent))
        except stripe.PermissionError as error:
            if classify(error).kind is not ResponseKind.ACCOUNT:
                raise
            # No charge and no event waits for this right.
            return AfterCharge(refunded, disputes, REVIEW if intent.review else None, is_fraud_known=False)

    def amount_refunded(self, payment_intent_id: str) -> int:
        """The amount refunded so far in minor units, by us or by hand, without refunds that failed.

        Raises:
            LookupInconclusive: there are more refunds than are read.
            stripe.StripeError: Stripe did not answer, or refused.
        """
        refunds = map(read_refund, list_refunds(self.client, payment_intent_id))
        return sum(each.amount_minor for each in refunds if not each.has_failed)

    def disputes(self, payment_intent_id: str) -> Disputes:
        """All disputes of a PaymentIntent. Raises as `amount_refunded`."""
        return {
            each.id: each.status for each in _all_of(self.client.v1.disputes.list, payment_intent=payment_intent_id)
        }

    def fraud_suspicion(self, intent: StripeIntent) -> str | None:
        """Why a PaymentIntent, as Stripe shows it now, may be fraud; or None. Raises stripe.StripeError.

        Only `approved` ends the suspicion of a review: after another `closed_reason` the money is refunded or disputed,
        and its event may come later.
        """
        v1 = self.client.v1
        if v1.radar.early_fraud_warnings.list({"payment_intent": intent.payment_intent_id, "limit": 1}).data:
            return EARLY_FRAUD_WARNING
        return REVIEW if intent.review and v1.reviews.retrieve(intent.review).closed_reason != "approved" else None

    # ------------------------------------------------------------ refunds

    def create_refund(self, request: FrozenRefund, key_number: int = 0) -> StripeResponse[StripeRefund]:
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


def grouped_terms(order_id: str) -> dict[str, str]:
    """What GROUPED_TERMS add to a create. A statement says the account's prefix, then `ORD 94FE12`.

    A prefix has ten characters at most, "* " follows, and all of it is 22 (Stripe documentation, "Statement
    descriptors"): so the suffix fits any account, and is no setting that could change under a key.
    """
    suffix = f"ORD {order_id[4:10].upper()}"
    return {"transfer_group": order_id, "description": f"Order {order_id}", "statement_descriptor_suffix": suffix}


def list_refunds(client: stripe.StripeClient, payment_intent_id: str) -> Iterator["stripe.Refund"]:
    """All refunds of a PaymentIntent that Stripe lists. Raises as `StripeGateway.amount_refunded`."""
    return _all_of(client.v1.refunds.list, payment_intent=payment_intent_id)


def _all_of(read: Callable[[Any], Any], **of: str) -> Iterator[Any]:
    """The refunds or disputes of a PaymentIntent, or an order's charges, page by page."""
    after: str | None = None
    for _ in range(_PAGES_MAX):
        parameters = {**of, "limit": _PAGE_SIZE}
        page = read(parameters if after is None else {**parameters, "starting_after": after})
        yield from page.data
        if not page.has_more:
            return
        after = page.data[-1].id
    raise LookupInconclusive


def parts_of(since: int, until: int, parts: int) -> list[tuple[int, int]]:
    """The time from `since` up to, not including, `until` (epoch seconds) in at most so many parts, without gaps.

    Empty if `until` is not after `since`.
    """
    if until <= since:
        return []
    count = min(parts, until - since)
    edges = [since + (until - since) * number // count for number in range(count + 1)]
    return list(pairwise(edges))


def _ids_of(order_id: str, intents: Iterable[stripe.PaymentIntent]) -> list[str]:
    return [intent.id for intent in intents if metadata_of(intent).get("order_id") == order_id]


def _as_shown(payment_intent_id: str | None, intent: Any) -> StripeResponse[StripeIntent]:
    """The PaymentIntent that was asked for; another one would pay this order with another order's money."""
    if getattr(intent, "id", None) != payment_intent_id:
        return StripeResponse(failure=Failure(ResponseKind.OTHER_OBJECT))
    return StripeResponse(found=read_intent(intent), is_replay=is_replayed(intent))


def _as_failed(error: stripe.StripeError, payment_intent_id: str | None = None) -> StripeResponse[StripeIntent]:
    """The failure, and the PaymentIntent inside it, if it is the one that was asked for."""
    failure = classify(error)
    inside = failure.payment_intent
    if inside is None:
        return StripeResponse(failure=failure, is_replay=is_replay(error.headers))
    if payment_intent_id is not None and inside.id != payment_intent_id:
        return StripeResponse(failure=Failure(ResponseKind.OTHER_OBJECT, request_id=failure.request_id))
    return StripeResponse(found=read_intent(inside), failure=failure, is_replay=is_replay(error.headers))
