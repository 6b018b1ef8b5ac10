"""Stripe in memory, behind the SDK's client: PaymentIntents, refunds and events, in the SDK's objects."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import stripe

VISA, DECLINED, THREE_D_SECURE = "pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required"


def no_answer() -> stripe.StripeError:
    """Stripe is down."""
    return stripe.APIConnectionError("in memory")


def wrong_key() -> stripe.StripeError:
    """The key is of no account."""
    return stripe.AuthenticationError(
        "in memory", http_status=401, json_body={"error": {"type": "invalid_request_error"}}
    )


def _refusal(status: int, code: str, **error: Any) -> stripe.StripeError:
    body = {"error": {"type": "invalid_request_error", "code": code, **error}}
    return stripe.InvalidRequestError("in memory", None, code, http_status=status, json_body=body)


@dataclass
class FakeStripe:
    """PaymentIntents, refunds and events as the SDK shows them; `clock` gives the time in epoch seconds."""

    clock: Callable[[], int]
    intents: dict[str, dict[str, Any]] = field(default_factory=dict)
    refunds: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Each request: its operation, and the PaymentIntent's id if it has one."""
    failing: dict[str, Callable[[], Exception]] = field(default_factory=dict)
    """What an operation, a PaymentIntent's id, or everything ("") is answered with instead."""
    before: Callable[[str], None] = lambda _: None
    """Called with each operation before it is executed."""
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def charges(self) -> list[str]:
        return [each["id"] for each in self.intents.values() if each["status"] == "succeeded"]

    def asked_for(self, operation: str) -> int:
        return sum(each.split()[0] == operation for each in self.asked)

    def client(self) -> Any:
        """A `stripe.StripeClient` over it."""
        payment_intents = SimpleNamespace(
            create=self._create,
            confirm=self._confirm,
            retrieve=lambda intent_id: self._reach("retrieve", intent_id),
            cancel=self._cancel,
            search=lambda given: self._found("search", given["query"]),
            list=lambda given: self._found("list", ""),
        )
        events = SimpleNamespace(list=self._list_events, retrieve=self._retrieve_event)
        refunds = SimpleNamespace(list=self._list_refunds)
        return SimpleNamespace(v1=SimpleNamespace(payment_intents=payment_intents, events=events, refunds=refunds))

    def becomes(self, intent_id: str, status: str, **changes: Any) -> dict[str, Any]:
        """The PaymentIntent has this status from now on; returns the event."""
        intent = self.intents[intent_id]
        intent |= {"status": status, **changes}
        kind = {"requires_payment_method": "payment_failed"}.get(status, status)
        return self.emits(f"payment_intent.{kind}", intent)

    def emits(self, type_: str, thing: Mapping[str, Any]) -> dict[str, Any]:
        """Stripe makes an event, and keeps it."""
        event = {
            "id": f"evt_{len(self.events)}",
            "object": "event",
            "type": type_,
            "created": self.clock(),
            "data": {"object": dict(thing)},
        }
        self.events.append(event)
        return event

    def refund(self, intent_id: str, amount: int, **metadata: str) -> dict[str, Any]:
        """Refund so much of the PaymentIntent, by hand if there is no metadata; returns the event of its charge."""
        refund = {
            "id": f"re_{len(self.refunds)}",
            "object": "refund",
            "status": "succeeded",
            "amount": amount,
            "currency": "eur",
            "payment_intent": intent_id,
            "metadata": metadata,
            "created": self.clock(),
        }
        self.refunds.append(refund)
        charge = {
            "id": "ch_1",
            "object": "charge",
            "payment_intent": intent_id,
            "amount_refunded": self._amount_refunded(intent_id),
            "metadata": self.intents[intent_id]["metadata"],
        }
        return self.emits("charge.refunded", charge)

    def refund_fails(self, refund_id: str) -> dict[str, Any]:
        """The bank returns the refund; returns the event."""
        [refund] = [each for each in self.refunds if each["id"] == refund_id]
        refund |= {"status": "failed", "failure_reason": "lost_or_stolen_card"}
        return self.emits("refund.failed", refund)

    def _amount_refunded(self, intent_id: str) -> int:
        live = [each for each in self.refunds if each["status"] not in ("failed", "canceled")]
        return sum(each["amount"] for each in live if each["payment_intent"] == intent_id)

    # ------------------------------------------------------------ requests

    def _reach(self, operation: str, intent_id: str = "") -> Any:
        self.asked.append(f"{operation} {intent_id}".strip())
        self.before(operation)
        for name in ("", operation, intent_id):
            if name in self.failing:
                raise self.failing[name]()
        if intent_id and intent_id not in self.intents:
            raise _refusal(404, "resource_missing", param="intent")
        return self._shown(intent_id) if intent_id else None

    def _shown(self, intent_id: str) -> Any:
        return stripe.PaymentIntent.construct_from(self.intents[intent_id], None)

    def _create(self, given: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        self._reach("create")
        key = options["idempotency_key"]
        if key not in self.keys:
            self.keys[key] = intent_id = f"pi_{len(self.intents)}"
            self.intents[intent_id] = {
                "id": intent_id,
                "object": "payment_intent",
                "amount": given["amount"],
                "currency": given["currency"],
                "metadata": dict(given["metadata"]),
                "status": "requires_payment_method",
                "client_secret": f"{intent_id}_secret_x",
                "payment_method": None,
                "latest_charge": None,
                "last_payment_error": None,
                "cancellation_reason": None,
            }
        return self._shown(self.keys[key])

    def _confirm(self, intent_id: str, given: Mapping[str, Any], _: Mapping[str, Any]) -> Any:
        self._reach("confirm", intent_id)
        intent, card = self.intents[intent_id], given["payment_method"]
        if intent["status"] in ("succeeded", "canceled"):
            raise _refusal(400, "payment_intent_unexpected_state", payment_intent=intent)
        if card == DECLINED:
            charge = f"ch_{len(self.asked)}"
            error = {"type": "card_error", "code": "card_declined", "decline_code": "generic_decline"}
            self.becomes(intent_id, "requires_payment_method", last_payment_error=error, latest_charge=charge)
            body = {"error": {**error, "payment_intent": dict(intent)}}
            raise stripe.CardError("in memory", None, "card_declined", http_status=402, json_body=body)
        self.becomes(intent_id, "requires_action" if card == THREE_D_SECURE else "succeeded", payment_method=card)
        return self._shown(intent_id)

    def _cancel(self, intent_id: str, given: Mapping[str, Any]) -> Any:
        self._reach("cancel", intent_id)
        if self.intents[intent_id]["status"] in ("succeeded", "canceled", "processing"):
            raise _refusal(400, "payment_intent_unexpected_state", payment_intent=self.intents[intent_id])
        self.becomes(intent_id, "canceled", cancellation_reason=given["cancellation_reason"])
        return self._shown(intent_id)

    def _found(self, operation: str, query: str) -> Any:
        self._reach(operation)
        found = [self._shown(each) for each, of in self.intents.items() if of["metadata"].get("order_id", "-") in query]
        url = "/v1/payment_intents" + ("/search" if operation == "search" else "")
        return SimpleNamespace(data=found, has_more=False, url=url)

    def _list_events(self, given: Mapping[str, Any]) -> Any:
        self._reach("events")
        from_, to = given["created"]["gte"], given["created"]["lt"]
        ours = [e for e in reversed(self.events) if e["type"] in given["types"] and from_ <= e["created"] < to]
        ids = [each["id"] for each in ours]
        ours = ours[ids.index(given["starting_after"]) + 1 if "starting_after" in given else 0 :]
        page = ours[: given["limit"]]
        data = [stripe.Event.construct_from(each, None) for each in page]
        return SimpleNamespace(data=data, has_more=len(ours) > len(page), url="/v1/events")

    def _retrieve_event(self, event_id: str) -> Any:
        self._reach("event")
        found = [each for each in self.events if each["id"] == event_id]
        if not found:
            raise _refusal(404, "resource_missing", param="id")
        return stripe.Event.construct_from(found[0], None)

    def _list_refunds(self, given: Mapping[str, Any]) -> Any:
        self._reach("refunds")
        made = [each for each in reversed(self.refunds) if each["payment_intent"] == given["payment_intent"]]
        data = [stripe.Refund.construct_from(each, None) for each in made]
        return SimpleNamespace(data=data, has_more=False, url="/v1/refunds")
