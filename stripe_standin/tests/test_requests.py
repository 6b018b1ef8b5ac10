"""HTTP requests: API keys, versions, arrays, accounts, rate limits, unknown parameters."""

import base64
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
import requests
import stripe

from stripe_standin.account import API_VERSION
from stripe_standin.admin import AdminError
from stripe_standin.tests.standin_account import Account

DAY = 24 * 3600
CREATE = {"amount": "1099", "currency": "eur", "allowed_payment_method_types[]": "card"}


def post(account: Account, path: str, data: Any = None, **headers: str) -> requests.Response:
    sent = {"Authorization": "Bearer sk_test_x", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return requests.post(f"{account.base_url}/v1/{path}", data=data or {}, headers=sent, timeout=60)


def test_a_response_names_its_request_version_and_time(account: Account) -> None:
    """The requested version, or the account's default; a replay also names the original request. The Date is by
    the stand-in's clock."""
    first = post(account, "payment_intents", CREATE, Idempotency_Key="key-1").headers
    replay = post(account, "payment_intents", CREATE, Idempotency_Key="key-1").headers
    assert first["Stripe-Version"] == API_VERSION
    assert first["Original-Request"] == first["Request-Id"] == replay["Original-Request"]
    assert replay["Request-Id"] != first["Request-Id"]
    account.admin.advance_clock(DAY)
    later, at = (parsedate_to_datetime(each["Date"]) for each in (post(account, "refunds").headers, first))
    assert (later - at).total_seconds() >= DAY
    assert (replay["Idempotent-Replayed"], replay["Idempotency-Key"]) == ("true", "key-1")
    assert "Idempotent-Replayed" not in first
    older = post(account, "payment_intents", CREATE, Stripe_Version="2025-09-30.clover").headers
    assert older["Stripe-Version"] == "2025-09-30.clover"


def test_an_invalid_version_is_refused(account: Account) -> None:
    """400, and nothing is created."""
    response = post(account, "payment_intents", CREATE, Stripe_Version="latest")
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert account.admin.ledger().payment_intents == ()


@pytest.mark.parametrize("api_key", ["sk_test_x", "rk_test_x"])
def test_basic_authentication_is_accepted(account: Account, api_key: str) -> None:
    """`curl -u sk_test_x:`, for secret and restricted keys."""
    basic = base64.b64encode(f"{api_key}:".encode()).decode()
    assert post(account, "payment_intents", CREATE, Authorization=f"Basic {basic}").status_code == 200


@pytest.mark.parametrize("authorization", ["Basic !", "Bearer sk_live_x", "Digest x", ""])
def test_invalid_api_keys_are_refused(account: Account, authorization: str) -> None:
    """401, also for live keys and other schemes."""
    assert post(account, "payment_intents", CREATE, Authorization=authorization).status_code == 401


def test_arrays_without_indexes_keep_all_values(account: Account) -> None:
    """`types[]=a&types[]=b` filters by both."""
    account.pay()
    query = "types[]=payment_intent.created&types[]=charge.succeeded"
    response = requests.get(
        f"{account.base_url}/v1/events?{query}", headers={"Authorization": "Bearer sk_test_x"}, timeout=60
    )
    assert [each["type"] for each in response.json()["data"]] == ["charge.succeeded", "payment_intent.created"]


def test_unknown_parameters_are_refused(account: Account) -> None:
    """400 parameter_unknown, on every endpoint."""
    intent = account.pay()
    refund = account.client.v1.refunds.create({"payment_intent": intent.id})
    method = account.payment_method()
    dispute = account.admin.open_dispute(account.pay().id)
    event = account.admin.events()[0]["id"]
    posts = ["payment_intents", f"payment_intents/{intent.id}/confirm", f"payment_intents/{intent.id}/cancel"]
    posts += ["payment_methods", "refunds"]
    gets = ["payment_intents", f"payment_intents/{intent.id}", "refunds", "charges", "events"]
    gets += ["disputes", f"refunds/{refund.id}", f"charges/{intent.latest_charge}", f"disputes/{dispute}"]
    gets += [f"payment_methods/{method}", f"events/{event}"]
    headers = {"Authorization": "Bearer sk_test_x"}
    responses = {path: post(account, path, {"color": "red"}) for path in posts}
    for path in gets:
        responses[f"GET {path}"] = requests.get(f"{account.base_url}/v1/{path}?color=red", headers=headers, timeout=60)
    codes = {path: (response.status_code, response.json()["error"].get("code")) for path, response in responses.items()}
    assert set(codes.values()) == {(400, "parameter_unknown")}, codes


def test_accounts_are_isolated(account: Account) -> None:
    """With another account's API key: 404 for every id, empty lists, and separate idempotency keys."""
    intent = account.create("key-1")
    account.admin.assign_api_key("sk_test_other", "acct_other")
    mine, account.client = account.client, account.client_with("sk_test_other")
    assert account.confirm_fails(intent.id).http_status == 404
    with pytest.raises(stripe.InvalidRequestError) as missing:
        account.retrieve(intent.id)
    assert (missing.value.http_status, missing.value.code) == (404, "resource_missing")
    assert account.client.v1.payment_intents.list().data == []
    assert account.create("key-1").id != intent.id
    account.client = mine
    assert account.retrieve(intent.id).id == intent.id


def test_an_api_key_can_be_reassigned(account: Account) -> None:
    """To another account, to none (401), and back: a wrong or expired secret for a while."""
    intent = account.create()
    account.admin.assign_api_key("sk_test_x", "acct_other")
    assert account.confirm_fails(intent.id).http_status == 404
    account.admin.assign_api_key("sk_test_x", None)
    assert isinstance(account.confirm_fails(intent.id), stripe.AuthenticationError)
    account.admin.assign_api_key("sk_test_x")
    assert account.confirm(intent.id).status == "succeeded"


def test_idempotency_keys_can_be_deleted(account: Account) -> None:
    """One, or all: then the same request creates another PaymentIntent."""
    first, second = account.create("key-1"), account.create("key-2")
    assert account.admin.delete_keys("key-1") == 1
    assert account.create("key-1").id != first.id
    assert account.create("key-2").id == second.id
    assert account.admin.delete_keys() == 2
    assert account.create("key-2").id != second.id


def test_an_unknown_setting_is_refused(account: Account) -> None:
    """A typing error in a test fails: unknown settings, unknown faults, disputes of nothing."""
    with pytest.raises(AdminError):
        account.admin.settings(latency=1)
    with pytest.raises(AdminError):
        account.admin.open_dispute(account.create().id)
    response = requests.post(f"{account.base_url}/_standin/faults", json={"rules": [{"kind": "bad_luck"}]}, timeout=60)
    assert response.status_code == 400


def test_another_host_is_refused(account: Account) -> None:
    """A site whose name resolves to this machine is of the stand-in's own origin then: it reads and sends nothing."""
    for path in ("_standin/ledger", "v1/events", "stripe.js"):
        for host, status in {"localhost:1": 200, "172.17.0.1:1": 200, "rebound.example:1": 403, "": 403}.items():
            headers = {"Authorization": "Bearer sk_test_x", "Host": host}
            assert requests.get(f"{account.base_url}/{path}", headers=headers, timeout=60).status_code == status, host


def test_a_page_of_another_origin_does_not_reach_the_admin_api(account: Account) -> None:
    """A form, or text without CORS, is sent without asking first. The stand-in's own pages have its address."""
    intent = account.pay(payment_method="pm_card_threeDSecure2Required")
    for origin, status in {"https://a.example": 403, "null": 403, account.base_url: 200}.items():
        url = f"{account.base_url}/_standin/payment_intents/{intent.id}/authenticate"
        answer = requests.post(url, "{}", headers={"Origin": origin, "Content-Type": "text/plain"}, timeout=60)
        assert (answer.status_code, account.charges) == (status, status == 200), origin
