"""The shop's client of Stripe shows what Stripe's SDK shows over HTTP: one engine is behind both."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import stripe

from onecharge.payments.stripe_client import stripe_client
from stripe_standin.server import running_standin
from tests.shop.builders import PATIENT
from tests.shop.dynamodb import NoFaults
from tests.shop.stripe import ShopStripe, client_of

PAYS, DECLINED, REQUIRES_ACTION = "pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required"
NOW = int(time.time())


@pytest.fixture(params=["in process", "stand-in"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Each client."""
    if request.param == "in process":
        yield client_of(ShopStripe(NoFaults(NOW)))
        return
    with running_standin() as standin:
        yield stripe_client("sk_test_x", api_base=standin.base_url, bounds=PATIENT)


def created(client: Any, key: str = "order:1", **changes: Any) -> Any:
    parameters = {
        "amount": 1099,
        "currency": "eur",
        "allowed_payment_method_types": ["card"],
        "metadata": {"order_id": "ord_1"},
        **changes,
    }
    return client.v1.payment_intents.create(parameters, {"idempotency_key": key})


def confirmed(client: Any, intent_id: str, card: str, key: str, **more: Any) -> Any:
    return client.v1.payment_intents.confirm(intent_id, {"payment_method": card, **more}, {"idempotency_key": key})


def refused(client: Any, intent_id: str, card: str, key: str, **more: Any) -> stripe.StripeError:
    with pytest.raises(stripe.StripeError) as error:
        confirmed(client, intent_id, card, key, **more)
    return error.value


def details(error: stripe.StripeError) -> Any:
    assert error.error is not None
    return error.error


def test_no_money_moves_before_the_confirm(client: Any) -> None:
    """It is requires_payment_method after the create, and succeeded after the confirm."""
    intent = created(client)
    assert (intent.status, intent.latest_charge, intent.payment_method) == ("requires_payment_method", None, None)
    assert intent.client_secret.startswith(intent.id)
    assert intent.metadata.to_dict() == {"order_id": "ord_1"}
    paid = confirmed(client, intent.id, PAYS, "a")
    assert (paid.id, paid.status, paid.amount, paid.currency) == (intent.id, "succeeded", 1099, "eur")
    assert paid.latest_charge
    assert client.v1.payment_intents.retrieve(intent.id).latest_charge == paid.latest_charge


def test_a_replay_has_the_header_in_any_case(client: Any) -> None:
    """It has the body of the first response, not the current status."""
    first, again = created(client), created(client)
    assert "idempotent-replayed" not in first.last_response.headers
    assert again.last_response.headers["idempotent-replayed"] == "true"
    assert again.last_response.headers["Idempotent-Replayed"] == "true"
    confirmed(client, first.id, PAYS, "a")
    assert created(client).status == "requires_payment_method"
    assert client.v1.payment_intents.retrieve(first.id).status == "succeeded"


def test_a_replayed_error_has_the_header(client: Any) -> None:
    """The exception has it among its headers."""
    intent = created(client)
    first, again = (refused(client, intent.id, DECLINED, "a") for _ in range(2))
    assert "idempotent-replayed" not in (first.headers or {})
    assert (again.headers or {})["idempotent-replayed"] == (again.headers or {})["Idempotent-Replayed"] == "true"
    assert details(first).code == details(again).code == "card_declined"


def test_a_key_is_for_one_request(client: Any) -> None:
    """With other parameters, or for another PaymentIntent, it is refused, and nothing is executed."""
    first, second = created(client, "shared"), created(client)
    with pytest.raises(stripe.IdempotencyError):
        created(client, "shared", amount=1)
    confirmed(client, first.id, PAYS, "a")
    assert isinstance(refused(client, second.id, PAYS, "a"), stripe.IdempotencyError)
    assert client.v1.payment_intents.retrieve(second.id).status == "requires_payment_method"


def test_another_card_pays_after_a_decline(client: Any) -> None:
    """The same PaymentIntent succeeds, and last_payment_error is null."""
    intent = created(client)
    error = refused(client, intent.id, DECLINED, "a")
    assert isinstance(error, stripe.CardError)
    assert (error.http_status, details(error).code, details(error).decline_code) == (
        402,
        "card_declined",
        "generic_decline",
    )
    shown = details(error).payment_intent
    assert (shown.id, shown.status) == (intent.id, "requires_payment_method")
    assert shown.last_payment_error.decline_code == "generic_decline"
    paid = confirmed(client, intent.id, PAYS, "b")
    assert (paid.id, paid.status, paid.last_payment_error) == (intent.id, "succeeded", None)


def test_a_decline_names_its_payment_method_and_its_charge(client: Any) -> None:
    """They distinguish two declines of one PaymentIntent."""
    intent = created(client)
    declines = [details(refused(client, intent.id, DECLINED, key)).payment_intent for key in ("a", "b")]
    assert all(decline.last_payment_error.payment_method.id.startswith("pm_") for decline in declines)
    first, second = (decline.latest_charge for decline in declines)
    assert first != second
    assert [decline.last_payment_error.charge for decline in declines] == [first, second]
    assert confirmed(client, intent.id, PAYS, "c").latest_charge not in (None, first, second)


def test_a_succeeded_payment_intent_cannot_be_confirmed_again(client: Any) -> None:
    """The error contains the PaymentIntent and is stored under the key."""
    intent = created(client)
    paid = confirmed(client, intent.id, PAYS, "a")
    errors = [refused(client, intent.id, PAYS, "b") for _ in range(2)]
    for error in errors:
        assert (error.http_status, details(error).code) == (400, "payment_intent_unexpected_state")
        shown = details(error).payment_intent
        assert (shown.id, shown.status, shown.latest_charge) == (intent.id, "succeeded", paid.latest_charge)
    assert (errors[1].headers or {})["idempotent-replayed"] == "true"


@pytest.mark.parametrize("reason", ["requested_by_customer", "abandoned"])
def test_a_canceled_payment_intent_can_never_charge(client: Any, reason: str) -> None:
    """It can be neither confirmed nor canceled again, and keeps its reason."""
    intent = created(client)
    assert intent.cancellation_reason is None
    canceled = client.v1.payment_intents.cancel(intent.id, {"cancellation_reason": reason})
    assert (canceled.status, canceled.cancellation_reason) == ("canceled", reason)
    error = refused(client, intent.id, PAYS, "a")
    assert (error.http_status, details(error).code) == (400, "payment_intent_unexpected_state")
    assert details(error).payment_intent.status == "canceled"
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.payment_intents.cancel(intent.id, {}, {"idempotency_key": "again"})
    assert client.v1.payment_intents.retrieve(intent.id).cancellation_reason == reason


def test_a_succeeded_payment_intent_cannot_be_canceled(client: Any) -> None:
    """Stripe decides the race between confirm and cancel. The error contains the PaymentIntent."""
    intent = created(client)
    confirmed(client, intent.id, PAYS, "a")
    with pytest.raises(stripe.InvalidRequestError) as error:
        client.v1.payment_intents.cancel(intent.id, {"cancellation_reason": "abandoned"})
    assert details(error.value).code == "payment_intent_unexpected_state"
    assert details(error.value).payment_intent.status == "succeeded"


def test_requires_action_can_be_confirmed_with_another_card(client: Any) -> None:
    """Off session, its confirm is declined with authentication_required."""
    intent = created(client)
    waiting = confirmed(client, intent.id, REQUIRES_ACTION, "a")
    assert (waiting.status, waiting.latest_charge) == ("requires_action", None)
    assert confirmed(client, intent.id, PAYS, "b").status == "succeeded"
    other = created(client, "order:2")
    error = refused(client, other.id, REQUIRES_ACTION, "c", off_session=True)
    assert (error.http_status, details(error).code) == (402, "authentication_required")
    assert details(error).payment_intent.status == "requires_payment_method"


def test_an_unknown_payment_method_is_refused(client: Any) -> None:
    """Nothing is charged. Stripe does not document whether the key stores this error, and no code depends on it."""
    intent = created(client)
    error = refused(client, intent.id, "pm_unknown", "a")
    assert isinstance(error, stripe.InvalidRequestError)
    assert (error.http_status, error.code, error.param) == (400, "resource_missing", "payment_method")
    assert confirmed(client, intent.id, PAYS, "b").status == "succeeded"


def test_an_unknown_payment_intent_is_a_404(client: Any) -> None:
    """Retrieve and confirm both say so."""
    with pytest.raises(stripe.InvalidRequestError) as error:
        client.v1.payment_intents.retrieve("pi_unknown")
    assert (error.value.http_status, error.value.code) == (404, "resource_missing")
    assert refused(client, "pi_unknown", PAYS, "a").http_status == 404


def test_a_list_is_immediate_and_paged(client: Any) -> None:
    """Newest first; it filters by creation time."""
    intents = [created(client, f"order:{number}") for number in range(6)]
    ids, first_at = [intent.id for intent in intents], intents[0].created
    page = client.v1.payment_intents.list({"limit": 2})
    assert (page.has_more, [intent.id for intent in page.data]) == (True, ids[:3:-1])
    after = client.v1.payment_intents.list({"starting_after": ids[3]})
    assert [intent.id for intent in after.data] == ids[2::-1]
    recent = {"gte": first_at, "lte": first_at + 3600}
    assert len(client.v1.payment_intents.list({"created": recent}).data) == 6
    assert client.v1.payment_intents.list({"created": {"lt": first_at}}).data == []


@pytest.mark.parametrize("client", ["stand-in"], indirect=True)
def test_the_sdk_pages_through_lists(client: Any) -> None:
    """Each object is read once."""
    ids = [created(client, f"o:{n}").id for n in range(3)]
    assert [each.id for each in client.v1.payment_intents.list({"limit": 2}).auto_paging_iter()] == ids[::-1]


def test_events_are_listed_by_type(client: Any) -> None:
    """Newest first, page by page, each with the PaymentIntent at that time."""
    intent = created(client)
    refused(client, intent.id, DECLINED, "a")
    confirmed(client, intent.id, PAYS, "b")
    types = ["payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.created"]
    page = client.v1.events.list({"types": types, "limit": 2})
    rest = client.v1.events.list({"types": types, "limit": 2, "starting_after": page.data[-1].id})
    assert [event.type for event in (*page.data, *rest.data)] == types
    [failed] = client.v1.events.list({"types": ["payment_intent.payment_failed"]}).data
    assert (failed.data.object.id, failed.data.object.status) == (intent.id, "requires_payment_method")


def test_a_refund_is_retrieved_and_listed(client: Any) -> None:
    """A retrieve needs its id, a list its PaymentIntent."""
    intent = created(client)
    confirmed(client, intent.id, PAYS, "a")
    refund = client.v1.refunds.create({"payment_intent": intent.id, "amount": 99}, {"idempotency_key": "refund"})
    assert client.v1.refunds.retrieve(refund.id).amount == 99
    [listed] = client.v1.refunds.list({"payment_intent": intent.id}).data
    assert (listed.id, listed.status, listed.charge) == (
        refund.id,
        "succeeded",
        client.v1.payment_intents.retrieve(intent.id).latest_charge,
    )


def test_an_event_is_retrieved_by_its_id(client: Any) -> None:
    """It is the same as in the list. An unknown id is an error."""
    client.v1.payment_intents.cancel(client.v1.payment_intents.create({"amount": 1099, "currency": "eur"}).id)
    listed = client.v1.events.list({"types": ["payment_intent.canceled"]}).data[0]
    kept = client.v1.events.retrieve(listed.id)
    assert (kept.id, kept.type, kept.data.object.id) == (listed.id, listed.type, listed.data.object.id)
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.events.retrieve("evt_unknown")
