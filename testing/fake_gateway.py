"""A fake of StripeGateway, for tests of its callers: PaymentIntents, idempotency keys and their stored responses.

The first answer to a key is stored and replayed, a failure as well as a success. A test puts steps in the way of single
requests: `stripe.next("confirm", lost)`.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from onecharge.payments.charges.gateway import StripeResponse
from onecharge.payments.charges.protocol import CancelReason, FoundIntent, FrozenRequest, Payment
from onecharge.payments.stripe_responses import Failure, ResponseKind

Execute = Callable[[], StripeResponse]
Step = Callable[[Execute], StripeResponse]
"""Intercepts one request: executes it or not, and answers."""


def refused(kind: ResponseKind, code: str | None = None, shown: FoundIntent | None = None) -> Step:
    """Answer with the failure; nothing is executed, and nothing stored."""
    return lambda _: StripeResponse(shown, Failure(kind, code, "message", "req_1"))


def executed_but(kind: ResponseKind) -> Step:
    """Execute it, and answer with the failure: the answer is lost, or Stripe rolls forward."""

    def step(execute: Execute) -> StripeResponse:
        execute()
        return StripeResponse(failure=Failure(kind))

    return step


def meanwhile(happens: Callable[[], object]) -> Step:
    """Something else happens before it is executed."""

    def step(execute: Execute) -> StripeResponse:
        happens()
        return execute()

    return step


def afterwards(happens: Callable[[], object]) -> Step:
    """Something else happens after it is executed, before its answer arrives."""

    def step(execute: Execute) -> StripeResponse:
        response = execute()
        happens()
        return response

    return step


def killed(_: Execute) -> StripeResponse:
    """The worker dies before it is sent."""
    raise KeyboardInterrupt


def killed_after(execute: Execute) -> StripeResponse:
    """The worker dies before the answer arrives."""
    execute()
    raise KeyboardInterrupt


NO_ANSWER = refused(ResponseKind.NO_ANSWER)


@dataclass
class FakeGateway:
    """The gateway's methods. `banks` says what the bank answers to a payment method: a status, or a decline code."""

    banks: dict[str, str] = field(default_factory=dict)
    intents: dict[str, FoundIntent] = field(default_factory=dict)
    orders: dict[str, str] = field(default_factory=dict)
    """Of each PaymentIntent."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Every request: the operation, and its key or the id that it is about."""
    successes: list[str] = field(default_factory=list)
    """The oracle: a PaymentIntent's id for each time that money was taken."""
    stored: dict[str, tuple[Any, StripeResponse]] = field(default_factory=dict)
    steps: defaultdict[str, list[Step]] = field(default_factory=lambda: defaultdict(list))
    lookup: Exception | None = None
    charges: int = 0

    def next(self, operation: str, *steps: Step) -> None:
        """Intercept the next requests of this operation."""
        self.steps[operation] += steps

    def store_failure(self, key: str, kind: ResponseKind = ResponseKind.RETRYABLE) -> Step:
        """Answer with a failure that is stored under the key, and replayed from now on; nothing is executed."""

        def step(_: Execute) -> StripeResponse:
            response = StripeResponse(failure=Failure(kind))
            self.stored[key] = (None, response)
            return response

        return step

    def forget_keys(self) -> None:
        """As Stripe may when they are 24 hours old."""
        self.stored.clear()

    def sent(self, operation: str) -> list[str]:
        """The keys or ids of all requests of that operation."""
        return [about for each, about in self.requests if each == operation]

    def show(self, payment_intent_id: str, **changes: Any) -> None:
        """Let the PaymentIntent change by itself."""
        self.intents[payment_intent_id] = replace(self.intents[payment_intent_id], **changes)
        if changes.get("status") == "succeeded":
            self.successes.append(payment_intent_id)

    def add(self, order_id: str, found: FoundIntent) -> None:
        """Let there be a PaymentIntent of the order, which somebody made before."""
        self.intents[found.payment_intent_id] = found
        self.orders[found.payment_intent_id] = order_id

    # ------------------------------------------------------------ the gateway

    def create(self, request: FrozenRequest, generation: int) -> StripeResponse:
        key = request.create_key(generation)

        def execute() -> StripeResponse:
            intent_id = f"pi_{len(self.intents)}"
            self.orders[intent_id] = request.order_id
            self.intents[intent_id] = FoundIntent(
                intent_id,
                "requires_payment_method",
                request.amount_minor,
                request.currency,
                generation=generation,
                customer_id=request.customer_id,
                placed_at=request.placed_at,
            )
            return StripeResponse(self.intents[intent_id])

        return self._request("create", key, lambda: self._under(key, request, execute))

    def confirm(self, payment: Payment) -> StripeResponse:
        key, method = payment.confirm_key, payment.payment_method
        return self._request(
            "confirm",
            key,
            lambda: self._under(key, method, lambda: self._confirm(str(payment.payment_intent_id), method)),
        )

    def retrieve(self, payment_intent_id: str) -> StripeResponse:
        return self._request("retrieve", payment_intent_id, lambda: self._show(payment_intent_id))

    def cancel(self, payment_intent_id: str, reason: CancelReason) -> StripeResponse:
        def execute() -> StripeResponse:
            if self.intents[payment_intent_id].is_open:
                self.show(payment_intent_id, status="canceled", cancellation_reason=reason.value)
            return self._show(payment_intent_id)

        return self._request("cancel", payment_intent_id, execute)

    def find_payment_intents(
        self, request: FrozenRequest, *, now: int, has_time: Callable[[], bool] = lambda: True
    ) -> list[FoundIntent]:
        self.requests.append(("find", request.order_id))
        if self.lookup is not None:
            raise self.lookup
        return [intent for intent_id, intent in self.intents.items() if self.orders[intent_id] == request.order_id]

    # ------------------------------------------------------------ behind it

    def _request(self, operation: str, about: str, execute: Execute) -> StripeResponse:
        self.requests.append((operation, about))
        return self.steps[operation].pop(0)(execute) if self.steps[operation] else execute()

    def _under(self, key: str, parameters: Any, execute: Execute) -> StripeResponse:
        if key not in self.stored:
            self.stored[key] = (parameters, execute())
            return self.stored[key][1]
        of, response = self.stored[key]
        if of not in (None, parameters):
            return StripeResponse(failure=Failure(ResponseKind.OTHER_PARAMETERS))
        failure = response.failure
        if failure is not None and failure.kind is ResponseKind.RETRYABLE:
            failure = replace(failure, kind=ResponseKind.STORED_FAILURE)
        return StripeResponse(response.intent, failure, is_replay=True)

    def _show(self, payment_intent_id: str) -> StripeResponse:
        if payment_intent_id not in self.intents:
            return StripeResponse(failure=Failure(ResponseKind.NOT_FOUND))
        return StripeResponse(self.intents[payment_intent_id])

    def _confirm(self, intent_id: str, method: str) -> StripeResponse:
        if not self.intents[intent_id].is_open:
            return StripeResponse(self.intents[intent_id], Failure(ResponseKind.UNEXPECTED_STATE))
        answer = self.banks.get(method, "succeeded")
        if answer in ("succeeded", "processing", "requires_action"):
            self.show(intent_id, status=answer, payment_method=method, error_code=None)
            return StripeResponse(self.intents[intent_id])
        self.charges += 1
        self.show(intent_id, status="requires_payment_method", error_code=answer, latest_charge=f"ch_{self.charges}")
        return StripeResponse(self.intents[intent_id], Failure(ResponseKind.DECLINED, code=answer))
