"""What the gateway sends: exact bodies, keys and the API version; and what it reads of what comes back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.protocol import CancelReason, FoundIntent
from onecharge.payments.stripe_client import STRIPE_VERSION, stripe_client
from onecharge.payments.stripe_responses import LookupInconclusive, ResponseKind
from testing.builders import BOUNDS, ORDER_ID, REQUEST, T0, payment
from testing.stripe_answers import Break, StripeAnswers

INTENTS = "/v1/payment_intents"


@pytest.fixture
def stripe_api() -> Iterator[StripeAnswers]:
    with StripeAnswers() as answers:
        yield answers


@pytest.fixture
def gateway(stripe_api: StripeAnswers, monkeypatch: pytest.MonkeyPatch) -> StripeGateway:
    # The SDK pauses between its tries; a test need not.
    monkeypatch.setattr("stripe.HTTPClient.INITIAL_DELAY", 0)
    monkeypatch.setattr("stripe.HTTPClient.MAX_DELAY", 0)
    return StripeGateway(stripe_client("sk_test_x", api_base=stripe_api.url, bounds=BOUNDS))


def shown(status: str = "requires_payment_method", **changes: Any) -> dict[str, Any]:
    return {
        "id": "pi_1",
        "object": "payment_intent",
        "amount": 1099,
        "currency": "eur",
        "status": status,
        "metadata": {"order_id": ORDER_ID, "customer_id": "cus_1", "placed_at": str(T0), "generation": "2"},
        **changes,
    }


def sent(stripe_api: StripeAnswers) -> list[tuple[dict[str, str], str | None]]:
    """The form and the idempotency key of each request."""
    return [(call.form, call.key) for call in stripe_api.calls]


# ---------------------------------------------------------------- what is sent


def test_create_sends_the_frozen_request(gateway: StripeGateway, stripe_api: StripeAnswers) -> None:
    """Without confirm, cards only, and with metadata by which everything of the order is found again."""
    stripe_api.post(INTENTS, json=shown())
    gateway.create(REQUEST, 2)
    [(form, key)] = sent(stripe_api)
    assert form == {
        "amount": "1099",
        "currency": "eur",
        "allowed_payment_method_types[0]": "card",
        "metadata[order_id]": ORDER_ID,
        "metadata[customer_id]": "cus_1",
        "metadata[placed_at]": str(T0),
        "metadata[generation]": "2",
    }
    assert key == f"order:{ORDER_ID}:2"


def test_confirm_sends_the_payment_method_and_nothing_else(gateway: StripeGateway, stripe_api: StripeAnswers) -> None:
    """Under the one key of attempt and PaymentIntent."""
    stripe_api.post(f"{INTENTS}/pi_1/confirm", json=shown("succeeded"))
    gateway.confirm(payment(attempt=3))
    assert sent(stripe_api) == [({"payment_method": "pm_card_visa"}, f"order:{ORDER_ID}:3:pi_1")]


@pytest.mark.parametrize("reason", CancelReason)
def test_cancel_sends_its_reason(gateway: StripeGateway, stripe_api: StripeAnswers, reason: CancelReason) -> None:
    """By which an abandoned PaymentIntent is distinguished from a canceled order."""
    stripe_api.post(f"{INTENTS}/pi_1/cancel", json=shown("canceled", cancellation_reason=reason))
    response = gateway.cancel("pi_1", reason)
    assert sent(stripe_api)[0][0] == {"cancellation_reason": reason.value}
    assert response.intent is not None
    assert response.intent.is_canceled_by_customer is (reason is CancelReason.BY_CUSTOMER)


def test_every_request_names_the_version_of_the_api(gateway: StripeGateway, stripe_api: StripeAnswers) -> None:
    """So that an upgrade of the SDK is no silent upgrade of the API."""
    stripe_api.post(INTENTS, json=shown())
    stripe_api.get(f"{INTENTS}/pi_1", json=shown())
    gateway.create(REQUEST, 0)
    gateway.retrieve("pi_1")
    assert {call.headers["Stripe-Version"] for call in stripe_api.calls} == {STRIPE_VERSION}


def test_every_try_carries_the_same_key_and_body(gateway: StripeGateway, stripe_api: StripeAnswers) -> None:
    """The SDK's own retry included: once, for a connection that had gone stale."""
    stripe_api.post(f"{INTENTS}/pi_1/confirm", breaks=Break.BEFORE)
    stripe_api.post(f"{INTENTS}/pi_1/confirm", json=shown("succeeded"))
    assert gateway.confirm(payment()).failure is None
    first, second = sent(stripe_api)
    assert first == second


# ---------------------------------------------------------------- what comes back


def test_what_is_read_of_a_payment_intent(gateway: StripeGateway, stripe_api: StripeAnswers) -> None:
    """Whose it is and of which generation, by its metadata; expanded objects count as their ids."""
    stripe_api.get(
        f"{INTENTS}/pi_1",
        json=shown(
            "requires_action",
            payment_method={"id": "pm_1", "object": "payment_method"},
            latest_charge={"id": "ch_1", "object": "charge"},
            client_secret="pi_1_secret",
        ),
    )
    assert gateway.retrieve("pi_1").intent == FoundIntent(
        "pi_1",
        "requires_action",
        1099,
        "EUR",
        generation=2,
        customer_id="cus_1",
        placed_at=T0,
        payment_method="pm_1",
        latest_charge="ch_1",
        client_secret="pi_1_secret",
    )


def test_a_client_secret_is_in_no_representation(gateway: StripeGateway, stripe_api: StripeAnswers) -> None:
    """It is neither stored nor logged, whatever is printed."""
    stripe_api.get(f"{INTENTS}/pi_1", json=shown("requires_action", client_secret="pi_1_secret_x"))
    assert "secret_x" not in repr(gateway.retrieve("pi_1"))


def test_what_an_answer_leaves_out_is_none(gateway: StripeGateway, stripe_api: StripeAnswers) -> None:
    """The SDK's objects have no attribute for it. Metadata that are not ours are no reason to fail."""
    minimal = {name: value for name, value in shown("succeeded").items() if name != "metadata"}
    stripe_api.get(f"{INTENTS}/pi_1", json=minimal)
    stripe_api.get(f"{INTENTS}/pi_1", json=shown("succeeded", metadata={"placed_at": "x", "generation": "-1"}))
    nothing = FoundIntent("pi_1", "succeeded", 1099, "EUR")
    assert [gateway.retrieve("pi_1").intent for _ in range(2)] == [nothing, nothing]


@pytest.mark.parametrize("status", ["succeeded", "processing", "canceled"])
def test_a_cancel_that_comes_too_late_says_what_it_is(
    gateway: StripeGateway, stripe_api: StripeAnswers, status: str
) -> None:
    """Stripe has decided the race."""
    refusal = {"error": {"type": "invalid_request_error", "code": "payment_intent_unexpected_state", "message": "…"}}
    stripe_api.post(f"{INTENTS}/pi_1/cancel", status=400, json=refusal)
    stripe_api.get(f"{INTENTS}/pi_1", json=shown(status))
    response = gateway.cancel("pi_1", CancelReason.ABANDONED)
    assert response.failure is None
    assert response.intent is not None
    assert response.intent.status == status


def test_a_cancel_without_an_answer_is_none(gateway: StripeGateway, stripe_api: StripeAnswers) -> None:
    """Nobody takes it for canceled."""
    stripe_api.post(f"{INTENTS}/pi_1/cancel", status=503, json={"error": {"type": "api_error"}})
    response = gateway.cancel("pi_1", CancelReason.BY_CUSTOMER)
    assert response.intent is None
    assert response.failure is not None
    assert response.failure.kind is ResponseKind.RETRYABLE


# ---------------------------------------------------------------- a list that is not sorted to the second


@dataclass
class Listed:
    """Stripe's list of PaymentIntents: filtered by time, in the order that the test gives."""

    intents: list[dict[str, Any]]
    ignores_the_filter: bool = False

    def list(self, given: Mapping[str, Any]) -> Any:
        created, after = given["created"], given.get("starting_after")
        shown = [
            SimpleNamespace(**each, metadata=SimpleNamespace(to_dict=lambda each=each: {"order_id": each["of"]}))
            for each in self.intents
            if self.ignores_the_filter or created["gte"] <= each["created"] < created.get("lt", float("inf"))
        ]
        rest = shown[[each.id for each in shown].index(after) + 1 :] if after else shown
        return SimpleNamespace(data=rest[: given["limit"]], has_more=len(rest) > given["limit"], url=INTENTS)

    def search(self, given: Mapping[str, Any]) -> Any:
        return SimpleNamespace(data=[], has_more=False, url=f"{INTENTS}/search")

    def retrieve(self, payment_intent_id: str) -> Any:
        return SimpleNamespace(id=payment_intent_id, status="succeeded", amount=1099, currency="eur")


def found_in(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids that a lookup finds, with pages of three."""
    client: Any = SimpleNamespace(v1=SimpleNamespace(payment_intents=listed))
    monkeypatch.setattr("onecharge.payments.charges.gateway._PAGE_SIZE", 3)
    found = StripeGateway(client).find_payment_intents(REQUEST, now=T0 + 60)
    return [each.payment_intent_id for each in found]


@pytest.mark.parametrize("younger_by", [0, 1, 2, 30])
@pytest.mark.parametrize("place", range(9))
def test_a_lookup_does_not_rest_on_the_order_of_the_list(
    place: int, younger_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the order's PaymentIntent is listed: also behind one that is older, at the edge of a page."""
    others = [{"id": f"pi_{number}", "created": T0 + 40 - number, "of": "another"} for number in range(8)]
    before = T0 + 40 - max(0, place - 1)
    own = {"id": "pi_own", "created": before + younger_by, "of": ORDER_ID}
    assert found_in(Listed([*others[:place], own, *others[place:]]), monkeypatch) == ["pi_own"]


def test_a_list_of_another_time_than_was_asked_for_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no parts: nothing of it proves that there is no PaymentIntent."""
    ancient = [{"id": f"pi_{number}", "created": T0 - 10**6, "of": "another"} for number in range(8)]
    with pytest.raises(LookupInconclusive):
        found_in(Listed(ancient, ignores_the_filter=True), monkeypatch)


def test_a_create_that_is_answered_with_other_metadata_creates_nothing(
    gateway: StripeGateway, stripe_api: StripeAnswers
) -> None:
    """No order is paid by what is another's."""
    other = shown("succeeded", id="pi_9", metadata={"order_id": "ord_" + "b" * 32, "generation": "0"})
    stripe_api.post(INTENTS, json=other)
    response = gateway.create(REQUEST, 0)
    assert response.intent is None
    assert response.failure is not None
    assert response.failure.kind is ResponseKind.WRONG_METADATA
