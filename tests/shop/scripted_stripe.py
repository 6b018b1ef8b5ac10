"""The stand-in's Stripe for single tests: a test says how requests end, sees all that were sent, and gets the events.

stripe.next("confirm", NO_ANSWER, meanwhile(another_worker_charges))
stripe.failing["pi_1"] = NO_ANSWER                   # until it is removed
endpoint.send(stripe.show("pi_0", "succeeded"))      # the event, as Stripe writes it
stripe.io.faults["stripe_create"] = "500 before"     # stored under its key, and never executed: see ShopStripe
"""

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import stripe

from onecharge.payments.stripe_events import EVENT_TYPES
from stripe_standin import attempts, payment_intents
from stripe_standin.payment_intents import PaymentIntent
from stripe_standin.payment_methods import PaymentMethod
from tests.shop.dynamodb import Io
from tests.shop.sdk import SdkObject, client_of, sdk_error
from tests.shop.stripe import ShopStripe

VISA, MASTERCARD, ASKS_FOR_ACTION = "pm_card_visa", "pm_card_mastercard", "pm_card_threeDSecure2Required"
DECLINED, LOST_CARD = "pm_card_visa_chargeDeclined", "pm_card_visa_chargeDeclinedLostCard"
NO_FUNDS = "pm_card_visa_chargeDeclinedInsufficientFunds"

Execute = Callable[[], Any]
Step = Callable[[Execute], Any]
"""Takes the place of one request: executes it or not, and returns the SDK's object or raises the SDK's error."""


def answer(status: int | None, *, replay: bool = False, **details: Any) -> Step:
    """Answer with this error; nothing is executed, and nothing stored under the key."""

    def step(_: Execute) -> NoReturn:
        raise sdk_error(status, replay=replay, **details)

    return step


def answer_after(status: int | None, **details: Any) -> Step:
    """Execute the request, and answer with this error; without a status, the answer is lost."""

    def step(execute: Execute) -> NoReturn:
        with suppress(stripe.StripeError):
            execute()
        raise sdk_error(status, **details)

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
    with suppress(stripe.StripeError):
        execute()
    raise KeyboardInterrupt


def of_another_order(_: Execute) -> Any:
    """The answer has the metadata of another order."""
    metadata = {"order_id": "ord_" + "b" * 32}
    return SdkObject({"id": "pi_another", "status": "succeeded", "amount": 1, "currency": "eur", "metadata": metadata})


NO_ANSWER, OUTAGE, WRONG_KEY = answer(None), answer(503), answer(401)
LOST = answer_after(None)
"""Stripe executes the request, and its answer is lost."""


class ScriptedStripe(ShopStripe):
    """Stripe in process, without the SDK's own retry."""

    def __init__(self, io: Io) -> None:
        super().__init__(io)
        self.requests: list[tuple[str, str]] = []
        """The operation, and its key or the id in its path."""
        self.steps: defaultdict[str, list[Step]] = defaultdict(list)
        """What takes the place of the next requests of each operation."""
        self.failing: dict[str, Step] = {}
        """What takes the place of all requests of an operation, of a PaymentIntent's id, or ("") of all."""

    def client(self) -> Any:
        """A `stripe.StripeClient` over it."""
        return client_of(self, retries=0, through=self._request)

    def _request(self, operation: str, about: str, execute: Execute) -> Any:
        self.requests.append((operation, about))
        for each in ("", operation, about):
            if each in self.failing:
                return self.failing[each](execute)
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

    def show(self, intent_id: str, status: str) -> dict[str, Any]:
        """The PaymentIntent changes by itself, also to what Stripe would not let it be; returns its event."""
        intent = self.intent(intent_id)
        if status == "succeeded" and intent not in self.charges:
            attempts.take_money(self.ours, intent, self.ours.all(PaymentMethod)[intent.payment_method or VISA])
        else:
            intent.status = status
            what = {"requires_payment_method": "payment_failed"}.get(status, status)
            payment_intents.emit_change(self.ours, intent, what)
        return self.events[-1]

    def refund_by_hand(self, intent_id: str, amount: int, **metadata: Any) -> dict[str, Any]:
        """Somebody refunds it in Stripe's Dashboard; returns the event of its charge."""
        self.refund_in_dashboard(intent_id, amount, **metadata)
        return self.webhooks[-1]

    def disputed(self, intent_id: str, status: str, number: int = 0) -> dict[str, Any]:
        """The bank opens a dispute, or decides about it; returns the event."""
        self.dispute_is(intent_id, status, number)
        return self.webhooks[-1]

    @property
    def webhooks(self) -> list[dict[str, Any]]:
        """The events that our endpoint gets."""
        return [each for each in self.events if each["type"] in EVENT_TYPES]
