"""The requests that the gateway sends, with their bodies and keys, and what it reads from the responses."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import pytest
from responses import RequestsMock

from onecharge.payments.charge_rules import CancelReason, StripeIntent
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.stripe_responses import LookupInconclusive, ResponseKind
from tests.shop.builders import (
    BOUNDS,
    INTENTS,
    ORDER_ID,
    REQUEST,
    STRIPE_API,
    T0,
    payment,
    stripe_error,
    stripe_intent,
)


@pytest.fixture
def gateway() -> StripeGateway:
    return StripeGateway(stripe_client("sk_test_x", api_base=STRIPE_API, bounds=BOUNDS))


def sent(http: RequestsMock) -> list[tuple[dict[str, str], str | None]]:
    """The form and the idempotency key of each request."""
    requests = [call.request for call in http.calls]
    return [(dict(parse_qsl(str(each.body))), each.headers.get("Idempotency-Key")) for each in requests]


# ---------------------------------------------------------------- what is sent


def test_create_sends_the_frozen_request(gateway: StripeGateway, http: RequestsMock) -> None:
    """Without confirm, for cards only, with metadata by which every object of the order can be found."""
    http.post(INTENTS, json=stripe_intent())
    gateway.create(REQUEST, 2)
    form = {
        "amount": "1099",
        "currency": "eur",
        "allowed_payment_method_types[0]": "card",
        "metadata[order_id]": ORDER_ID,
        "metadata[customer_id]": "cus_1",
        "metadata[placed_at]": str(T0),
        "metadata[generation]": "2",
    }
    assert sent(http) == [(form, f"order:{ORDER_ID}:2")]


def test_confirm_sends_the_payment_method_and_that_a_page_handles_3d_secure(
    gateway: StripeGateway, http: RequestsMock
) -> None:
    """Its key is the only one of attempt and PaymentIntent."""
    http.post(f"{INTENTS}/pi_1/confirm", json=stripe_intent("succeeded"))
    gateway.confirm(payment(attempt=3))
    form = {"payment_method": "pm_card_visa", "use_stripe_sdk": "true"}
    assert sent(http) == [(form, f"order:{ORDER_ID}:3:pi_1")]


@pytest.mark.parametrize("reason", CancelReason)
def test_cancel_sends_its_reason(gateway: StripeGateway, http: RequestsMock, reason: CancelReason) -> None:
    """It distinguishes an abandoned PaymentIntent from a canceled order."""
    http.post(f"{INTENTS}/pi_1/cancel", json=stripe_intent("canceled", cancellation_reason=reason))
    response = gateway.cancel("pi_1", reason)
    assert sent(http)[0][0] == {"cancellation_reason": reason.value}
    assert response.found is not None
    assert response.found.is_canceled_by_customer is (reason is CancelReason.BY_CUSTOMER)


# ---------------------------------------------------------------- what comes back


def test_a_payment_intent_names_its_order_and_generation(gateway: StripeGateway, http: RequestsMock) -> None:
    """The metadata have both; an expanded object counts as its id."""
    expanded: dict[str, Any] = {
        "payment_method": {"id": "pm_1", "object": "payment_method"},
        "latest_charge": {"id": "ch_1", "object": "charge"},
        "client_secret": "pi_1_secret",
        "metadata": {**stripe_intent()["metadata"], "generation": "2"},
    }
    http.get(f"{INTENTS}/pi_1", json=stripe_intent("requires_action", **expanded))
    assert gateway.retrieve("pi_1").found == StripeIntent(
        "pi_1",
        "requires_action",
        1099,
        "EUR",
        generation=2,
        order_id=ORDER_ID,
        customer_id="cus_1",
        placed_at=T0,
        payment_method="pm_1",
        latest_charge="ch_1",
        client_secret="pi_1_secret",
    )


def test_a_client_secret_is_in_no_representation(gateway: StripeGateway, http: RequestsMock) -> None:
    """Printing or logging a response does not reveal it."""
    http.get(f"{INTENTS}/pi_1", json=stripe_intent("requires_action", client_secret="pi_1_secret_x"))
    assert "secret_x" not in repr(gateway.retrieve("pi_1"))


@pytest.mark.parametrize("changes", [{"metadata": None}, {"metadata": {"placed_at": "x", "generation": "-1"}}])
def test_missing_and_foreign_metadata_are_ignored(
    gateway: StripeGateway, http: RequestsMock, changes: dict[str, Any]
) -> None:
    """The SDK's objects have no attribute for what a response leaves out."""
    body = {name: value for name, value in stripe_intent("succeeded", **changes).items() if value is not None}
    http.get(f"{INTENTS}/pi_1", json=body)
    assert gateway.retrieve("pi_1").found == StripeIntent("pi_1", "succeeded", 1099, "EUR")


@pytest.mark.parametrize("status", ["succeeded", "processing", "canceled"])
def test_a_cancel_that_comes_too_late_returns_the_status(
    gateway: StripeGateway, http: RequestsMock, status: str
) -> None:
    """Stripe has decided the race."""
    refusal = stripe_error(code="payment_intent_unexpected_state")
    http.post(f"{INTENTS}/pi_1/cancel", status=400, json=refusal)
    http.get(f"{INTENTS}/pi_1", json=stripe_intent(status))
    response = gateway.cancel("pi_1", CancelReason.ABANDONED)
    assert response.failure is None
    assert response.found is not None
    assert response.found.status == status


def test_an_unanswered_cancel_proves_nothing(gateway: StripeGateway, http: RequestsMock) -> None:
    """The PaymentIntent is not taken for canceled."""
    http.post(f"{INTENTS}/pi_1/cancel", status=503, json=stripe_error("api_error"))
    response = gateway.cancel("pi_1", CancelReason.BY_CUSTOMER)
    assert response.found is None
    assert response.failure is not None
    assert response.failure.kind is ResponseKind.RETRYABLE


def test_a_create_that_is_answered_with_other_metadata_creates_nothing(
    gateway: StripeGateway, http: RequestsMock
) -> None:
    """A PaymentIntent of another order pays for none."""
    metadata = {"order_id": "ord_" + "b" * 32, "generation": "0"}
    http.post(INTENTS, json=stripe_intent("succeeded", id="pi_9", metadata=metadata))
    response = gateway.create(REQUEST, 0)
    assert response.found is None
    assert response.failure is not None
    assert response.failure.kind is ResponseKind.OTHER_OBJECT


@pytest.mark.parametrize("status", [200, 402])
def test_an_answer_about_another_payment_intent_is_none(
    gateway: StripeGateway, http: RequestsMock, status: int
) -> None:
    """Another order's success pays for none, and another order's decline declines none."""
    other = stripe_intent("succeeded", id="pi_9")
    error = stripe_error("card_error", code="card_declined", payment_intent=other)
    for path in (f"{INTENTS}/pi_1/confirm", f"{INTENTS}/pi_1/cancel"):
        http.post(path, status=status, json=other if status == 200 else error)
    http.get(f"{INTENTS}/pi_1", status=status, json=other if status == 200 else error)
    answers = gateway.confirm(payment()), gateway.retrieve("pi_1"), gateway.cancel("pi_1", CancelReason.ABANDONED)
    assert [each.found for each in answers] == [None] * 3
    assert [each.failure and each.failure.kind for each in answers] == [ResponseKind.OTHER_OBJECT] * 3


def test_a_redirect_is_not_followed(gateway: StripeGateway, http: RequestsMock) -> None:
    """After it, a POST would be a GET: what that shows is not the answer to the confirm."""
    http.assert_all_requests_are_fired = False
    elsewhere = f"{INTENTS}/pi_1"
    http.post(f"{INTENTS}/pi_1/confirm", status=302, headers={"Location": elsewhere})
    http.get(elsewhere, json=stripe_intent("requires_payment_method"))
    response = gateway.confirm(payment())
    assert response.found is None
    assert response.failure is not None
    assert response.failure.kind is ResponseKind.NO_ANSWER


def test_an_informational_response_is_no_answer(gateway: StripeGateway, http: RequestsMock) -> None:
    """The real answer is still to come on its connection: it is closed, and the request sent again under its key."""
    http.post(f"{INTENTS}/pi_1/confirm", status=103)
    http.post(f"{INTENTS}/pi_1/confirm", json=stripe_intent("succeeded"))
    response = gateway.confirm(payment())
    assert response.found is not None
    assert response.found.status == "succeeded"
    assert len(http.calls) == 2


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
        return SimpleNamespace(data=rest[: given["limit"]], has_more=len(rest) > given["limit"])

    def search(self, given: Mapping[str, Any]) -> Any:
        return SimpleNamespace(data=[], has_more=False)

    def retrieve(self, payment_intent_id: str) -> Any:
        given = {"id": payment_intent_id, "status": "succeeded", "amount": 1099, "currency": "eur"}
        return SimpleNamespace(**given, metadata=SimpleNamespace(to_dict=lambda: {"order_id": ORDER_ID}))


def found_in(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids that a lookup finds, with pages of three."""
    client: Any = SimpleNamespace(v1=SimpleNamespace(payment_intents=listed))
    monkeypatch.setattr("onecharge.payments.stripe_gateway._PAGE_SIZE", 3)
    found = StripeGateway(client).find_payment_intents(REQUEST, now=T0 + 60)
    return [each.payment_intent_id for each in found]


@pytest.mark.parametrize("younger_by", [0, 1, 2, 30])
@pytest.mark.parametrize("place", range(9))
def test_a_lookup_does_not_rely_on_the_order_of_the_list(
    place: int, younger_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the order's PaymentIntent anywhere: also behind an older one, at the edge of a page."""
    others = [{"id": f"pi_{number}", "created": T0 + 40 - number, "of": "another"} for number in range(8)]
    before = T0 + 40 - max(0, place - 1)
    own = {"id": "pi_own", "created": before + younger_by, "of": ORDER_ID}
    assert found_in(Listed([*others[:place], own, *others[place:]]), monkeypatch) == ["pi_own"]


def test_a_list_of_another_time_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not prove that there is no PaymentIntent."""
    ancient = [{"id": f"pi_{number}", "created": T0 - 10**6, "of": "another"} for number in range(8)]
    with pytest.raises(LookupInconclusive):
        found_in(Listed(ancient, ignores_the_filter=True), monkeypatch)
