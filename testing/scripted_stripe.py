"""The simulation's Stripe for single tests: a test says how the next requests end, and sees all that were sent.

stripe.next("confirm", NO_ANSWER, meanwhile(another_worker_charges))
stripe.io.faults["stripe_create"] = "500 before"     # stored under its key, and never executed: see MemoryStripe
"""

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

import stripe

from testing.simulation.dynamodb import Faults
from testing.simulation.stripe import Issuer, MemoryStripe, Metadata, PaymentIntent, stripe_in_memory

VISA, MASTERCARD, ASKS_FOR_ACTION = "pm_card_visa", "pm_card_mastercard", "pm_card_threeDSecure2Required"
LOST_CARD, NO_FUNDS = "pm_card_visa_chargeDeclinedLostCard", "pm_card_visa_chargeDeclinedInsufficientFunds"

Execute = Callable[[], Any]
Step = Callable[[Execute], Any]
"""Takes the place of one request: executes it or not, and returns the SDK's object or raises the SDK's error."""


def error(status: int | None, *, replay: bool = False, **details: Any) -> stripe.StripeError:
    """As the SDK raises it; without a status, there is no answer."""
    if status is None:
        return stripe.APIConnectionError("in memory")
    type_ = {402: "card_error"}.get(status, "api_error" if status >= 500 else "invalid_request_error")
    body = {"error": {"type": type_, "message": "message", **details}}
    headers = {"request-id": "req_1"} | ({"idempotent-replayed": "true"} if replay else {})
    return stripe.APIError("in memory", http_status=status, json_body=body, headers=headers)


def answer(status: int | None, *, replay: bool = False, **details: Any) -> Step:
    """Answer with this error; nothing is executed, and nothing stored under the key."""

    def step(_: Execute) -> NoReturn:
        raise error(status, replay=replay, **details)

    return step


def answer_after(status: int | None, **details: Any) -> Step:
    """Execute the request, and answer with this error; without a status, the answer is lost."""

    def step(execute: Execute) -> NoReturn:
        with suppress(stripe.StripeError):
            execute()
        raise error(status, **details)

    return step


def meanwhile(happens: Callable[[], object]) -> Step:
    """Something else happens before the request is executed."""

    def step(execute: Execute) -> Any:
        happens()
        return execute()

    return step


def afterwards(happens: Callable[[], object]) -> Step:
    """Something else happens after the request is executed, before its answer arrives."""

    def step(execute: Execute) -> Any:
        answered = execute()
        happens()
        return answered

    return step


def killed(_: Execute) -> NoReturn:
    """The worker dies before the request is sent."""
    raise KeyboardInterrupt


def killed_after(execute: Execute) -> NoReturn:
    """The worker dies before the answer arrives."""
    execute()
    raise KeyboardInterrupt


def as_usual(execute: Execute) -> Any:
    """Nothing unusual happens."""
    return execute()


def of_another_order(_: Execute) -> Any:
    """The answer has the metadata of another order."""
    metadata = Metadata(order_id="ord_" + "b" * 32, generation="0")
    return SimpleNamespace(id="pi_another", status="succeeded", amount=1, currency="eur", metadata=metadata)


NO_ANSWER, OUTAGE, WRONG_KEY = answer(None), answer(503), answer(401)
LOST = answer_after(None)
"""Stripe executes the request, and its answer is lost."""


@dataclass
class ScriptedStripe(MemoryStripe):
    """Stripe in memory, without the SDK's own retry."""

    io: Faults = field(default_factory=Faults)
    harsh: bool = True
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Each request about PaymentIntents: the operation, and its key or the id in its path."""
    steps: defaultdict[str, list[Step]] = field(default_factory=lambda: defaultdict(list))

    def client(self) -> Any:
        """A `stripe.StripeClient` over it."""
        client = stripe_in_memory(self, retries=0)
        intents = client.v1.payment_intents
        for operation in ("create", "confirm", "retrieve", "cancel", "search", "list"):
            setattr(intents, operation, partial(self._request, operation, getattr(intents, operation)))
        return client

    def _request(self, operation: str, send: Callable[..., Any], *given: Any) -> Any:
        [*_, options] = given
        key = options.get("idempotency_key") if isinstance(options, dict) else None
        self.requests.append((operation, key or (given[0] if isinstance(given[0], str) else "")))
        execute = partial(send, *given)
        return self.steps[operation].pop(0)(execute) if self.steps[operation] else execute()

    def next(self, operation: str, *steps: Step) -> None:
        """Intercept the next requests of this operation."""
        self.steps[operation] += steps

    # ------------------------------------------------------------ what was sent

    @property
    def operations(self) -> list[str]:
        return [operation for operation, _ in self.requests]

    def sent(self, operation: str) -> list[str]:
        """The keys or ids of all requests of that operation."""
        return [about for each, about in self.requests if each == operation]

    @property
    def charged(self) -> list[str]:
        """The oracle: a PaymentIntent's id for each time that money was taken."""
        return [each.id for each in self.charges]

    # ------------------------------------------------------------ what happens by itself

    def intent(self, intent_id: str) -> PaymentIntent:
        [intent] = [each for each in self.intents if each.id == intent_id]
        return intent

    def show(self, intent_id: str, status: str | None = None, **changes: Any) -> None:
        """The PaymentIntent changes by itself."""
        intent = self.intent(intent_id)
        for name, value in changes.items():
            setattr(intent, name, value)
        if status in ("succeeded", "canceled", "processing", "requires_action"):
            self.becomes(intent, status)
        elif status:
            intent.status = status

    def decline(self, intent_id: str, code: str = "lost_card", *, charge: str | None = "ch_declined") -> None:
        """A confirm of the PaymentIntent is declined; without a charge, the bank was not asked."""
        intent = self.intent(intent_id)
        intent.latest_charge = charge
        self.becomes(intent, "requires_payment_method", self._payment_error(intent, Issuer(code, code)))

    def forget_keys(self) -> None:
        """Stripe may do so when keys are 24 hours old."""
        self.keys.clear()
