"""What holds for every request: API keys, accounts, versions, parameters; lists, pages, filters and expansion."""

from typing import Any

import pytest

from stripe_standin.account import API_VERSION
from stripe_standin.server import api_key_of, parse_form
from stripe_standin.tests.support import ASKS, CREATE, Stripe, short
from stripe_standin.webhook_endpoints import EVENT_TYPES

CARD = {"type": "card", "card[number]": "4000000000003220", "card[exp_month]": "12", "card[exp_year]": "2034"}
PAGE, SECRET = "pk_test_page", {"client_secret": "{secret}"}


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer sk_test_x", 200),
        ("Basic c2tfdGVzdF94Og==", 200),
        ("Bearer rk_test_x", 200),
        ("Basic !", 401),
        ("Bearer sk_live_x", 401),
        ("Digest x", 401),
        ("", 401),
    ],
)
def test_a_key_of_test_mode_is_needed(stripe: Stripe, authorization: str, status: int) -> None:
    """As a bearer, or as the user name: `curl -u sk_test_x:`."""
    assert stripe.get("events", api_key=api_key_of(authorization) or "").status == status


@pytest.mark.parametrize(
    ("method", "path", "given", "answer"),
    [
        ("POST", "payment_methods", CARD, (200, None)),
        ("POST", "payment_methods", {**CARD, "card[number]": "4000000000000000"}, (402, "incorrect_number")),
        ("GET", "payment_intents/{id}", SECRET, (200, "requires_action")),
        ("GET", "payment_intents/{id}", {"client_secret": "{id}"}, (404, "resource_missing")),
        ("GET", "payment_intents/{id}", {}, (404, "resource_missing")),
        ("POST", "payment_intents/{id}/challenge", {**SECRET, "succeed": "true"}, (200, "succeeded")),
        ("POST", "payment_intents/{id}/challenge", {"succeed": "true"}, (404, "resource_missing")),
        *((method, path, {}, (401, "secret_key_required")) for method, path in (
            ("GET", "payment_intents"), ("POST", "payment_intents"), ("POST", "payment_intents/{id}/confirm"),
            ("POST", "payment_intents/{id}/cancel"), ("POST", "refunds"), ("GET", "events"),
        )),
    ],
)  # fmt: skip
def test_a_publishable_key_sends_only_what_a_page_needs(
    stripe: Stripe, method: str, path: str, given: dict[str, str], answer: tuple[int, str | None]
) -> None:
    """Anyone can read one, and ids are in many places: a PaymentIntent needs its client secret."""
    intent = stripe.paid(ASKS)
    names = {"id": intent, "secret": stripe.intent(intent).client_secret}
    sent = {name: value.format(**names) for name, value in given.items()}
    request = stripe.request(method, path.format(**names), sent, api_key=PAGE)
    assert short(stripe.engine.respond(request)) == answer


def test_a_typed_card_is_the_test_card_of_its_number(stripe: Stripe) -> None:
    """The PaymentMethod shows the last four digits. A server may not send numbers."""
    made = stripe.post("payment_methods", CARD, api_key=PAGE).body
    assert (made["card"]["last4"], CARD["card[number]"] in str(made)) == ("3220", False)
    assert short(stripe.confirm(stripe.created(), made["id"])) == (200, "requires_action")
    assert stripe.post("payment_methods", CARD).status == 400


@pytest.mark.parametrize(
    ("account", "answer"),
    [("acct_standin", (200, None)), ("acct_other", (403, "account_invalid")), ("acct_none", (403, "account_invalid"))],
)
def test_a_key_has_access_to_its_own_account(stripe: Stripe, account: str, answer: tuple[int, str | None]) -> None:
    """The header Stripe-Account may name it. There is no Connect."""
    stripe.engine.assign_key("sk_test_other", "acct_other")
    assert short(stripe.get("events", account=account)) == answer


def test_accounts_are_isolated(stripe: Stripe) -> None:
    """Another account sees no object and no key of this one; a key may change accounts, or expire."""
    intent = stripe.post("payment_intents", CREATE, "a").body["id"]
    stripe.engine.assign_key("sk_test_other", "acct_other")
    assert stripe.get(f"payment_intents/{intent}", api_key="sk_test_other").status == 404
    assert stripe.get("payment_intents", api_key="sk_test_other").body["data"] == []
    assert stripe.post("payment_intents", CREATE, "a", api_key="sk_test_other").body["id"] != intent
    stripe.engine.assign_key("sk_test_other", None)
    assert short(stripe.get("events", api_key="sk_test_other")) == (401, "api_key_expired")
    stripe.engine.assign_key("sk_test_other", "acct_standin")
    assert stripe.get(f"payment_intents/{intent}", api_key="sk_test_other").status == 200


def test_a_response_names_its_request_version_and_time(stripe: Stripe) -> None:
    """The version of the request, or the account's; the time by the stand-in's clock; a replay its first request."""
    first, second = (stripe.engine.identify(stripe.request("POST", "payment_intents", CREATE, "a")) for _ in range(2))
    stripe.engine.respond(first[0])
    assert (first[1]["Date"], first[1]["Stripe-Version"]) == ("Fri, 15 Jan 2027 08:00:00 GMT", API_VERSION)
    assert stripe.engine.respond(second[0]).headers["Original-Request"] == first[1]["Request-Id"]
    assert second[1]["Request-Id"] != first[1]["Request-Id"]
    older = stripe.request("GET", "events", version="2025-09-30.clover")
    assert stripe.engine.identify(older)[1]["Stripe-Version"] == "2025-09-30.clover"


_READ = "payment_intents payment_intents/{id} charges events refunds disputes balance_transactions webhook_endpoints"
_SENT = (
    "payment_intents payment_intents/{id}/confirm payment_intents/{id}/cancel payment_intents/{id}/challenge refunds "
    "payment_methods webhook_endpoints"
)


@pytest.mark.parametrize(
    "path", [*(f"GET {each}" for each in _READ.split()), *(f"POST {each}" for each in _SENT.split())]
)
def test_an_unknown_parameter_is_refused(stripe: Stripe, path: str) -> None:
    """A typing error is not ignored; an unknown path is a 404."""
    method, where = path.format(id=stripe.paid()).split()
    request = stripe.request(method, where, {"color": "red"})
    assert short(stripe.engine.respond(request)) == (400, "parameter_unknown")
    assert stripe.get("customers").status == 404


# ------------------------------------------------------------------------ lists


@pytest.mark.parametrize(
    ("given", "numbers", "has_more"),
    [
        ({}, [4, 3, 2, 1, 0], False),
        ({"limit": "2"}, [4, 3], True),
        ({"limit": "5"}, [4, 3, 2, 1, 0], False),
        ({"starting_after": "1"}, [0], False),
        ({"starting_after": "4", "limit": "2"}, [3, 2], True),
        ({"created[gte]": "2"}, [4, 3, 2], False),
        ({"created[gt]": "2", "created[lte]": "3"}, [3], False),
        ({"created[lt]": "1"}, [0], False),
        ({"created": "3"}, [3], False),
    ],
)
def test_a_list_is_newest_first_in_pages(
    stripe: Stripe, given: dict[str, str], numbers: list[int], has_more: bool
) -> None:
    """Filtered by time of creation, with a cursor."""
    ids, start = [], int(stripe.time)
    for _ in range(5):
        ids.append(stripe.created())
        stripe.time += 1
    sent = {name: ids[int(value)] if name == "starting_after" else value for name, value in given.items()}
    sent |= {name: str(start + int(value)) for name, value in given.items() if name.startswith("created")}
    page = stripe.get("payment_intents", sent).body
    assert ([ids.index(each["id"]) for each in page["data"]], page["has_more"]) == (numbers, has_more)


@pytest.mark.parametrize(
    ("query", "listed"),
    [
        ("type=charge.succeeded", ["charge.succeeded"]),
        ("type=charge.*", ["charge.succeeded"]),
        ("type=payment_intent.*", ["payment_intent.succeeded", "payment_intent.created"]),
        ("types[]=payment_intent.created&types[]=charge.succeeded", ["charge.succeeded", "payment_intent.created"]),
        ("types[]=charge.*", []),
        ("", ["payment_intent.succeeded", "charge.succeeded", "payment_intent.created"]),
        ("type=charge.succeeded&types[]=charge.succeeded", None),
        ("&".join(["types[]=charge.failed"] * 21), None),
        ("limit=101", None),
        ("limit=0", None),
    ],
)
def test_events_are_listed_by_type_or_types(stripe: Stripe, query: str, listed: list[str] | None) -> None:
    """A type may have a wildcard, types may not. Both together, 21 types, and pages of 0 or 101 events are refused."""
    stripe.paid()
    answer = stripe.get("events", parse_form(query))
    assert ([each["type"] for each in answer.body["data"]] if answer.status == 200 else None) == listed


@pytest.mark.parametrize("path", ["charges", "refunds", "disputes"])
def test_what_belongs_to_a_payment_intent_is_listed_by_it(stripe: Stripe, path: str) -> None:
    """An event is retrieved by its id, too."""
    intents = [stripe.paid(), stripe.paid(), stripe.paid()]
    for intent in intents[:2]:
        stripe.disputed(intent)
    stripe.post("refunds", {"payment_intent": intents[2]})
    found = [stripe.get(path, {"payment_intent": intent}).body["data"] for intent in intents]
    assert {each["payment_intent"] for each in found[2]} <= {intents[2]}
    assert [len(each) for each in found] == {"charges": [1, 1, 1], "refunds": [0, 0, 1], "disputes": [1, 1, 0]}[path]
    event = stripe.account.events[0]
    assert stripe.get(f"events/{event['id']}").body == event
    assert stripe.get("events/evt_unknown").status == 404


def test_ids_are_expanded_to_objects(stripe: Stripe) -> None:
    """Through several levels, and in lists; other fields cannot be expanded."""
    path = f"payment_intents/{stripe.paid()}"
    charge = stripe.get(path, {"expand[0]": "latest_charge.payment_method"}).body["latest_charge"]
    assert (charge["object"], charge["payment_method"]["object"]) == ("charge", "payment_method")
    [booked] = stripe.get("balance_transactions", {"expand[]": "data.source"}).body["data"]
    assert booked["source"]["object"] == "charge"
    assert [stripe.get(path, {"expand[]": each}).status for each in ("amount", "nothing")] == [400, 400]


# ------------------------------------------------------------------------ webhook endpoints


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, 200),
        ({"enabled_events[0]": "*"}, 200),
        ({"enabled_events[1]": "charge.refundet"}, 400),
        ({"enabled_events[0]": "charge.*"}, 400),
        ({"url": "shop.example"}, 400),
    ],
)
def test_a_webhook_endpoint_needs_known_events(stripe: Stripe, given: dict[str, str], status: int) -> None:
    """A typing error would be an endpoint that receives nothing."""
    wanted: dict[str, Any] = {"url": "https://shop.example/hook", "enabled_events[0]": "charge.refunded", **given}
    made = stripe.post("webhook_endpoints", wanted)
    assert made.status == status
    assert {each["type"] for each in stripe.account.events} <= EVENT_TYPES


def test_the_secret_of_an_endpoint_is_shown_once(stripe: Stripe) -> None:
    """By the create. Its API version cannot be changed; without events it is refused; a deleted one is gone."""
    wanted = {"url": "https://shop.example/hook", "enabled_events[0]": "*", "api_version": API_VERSION}
    made = stripe.post("webhook_endpoints", wanted).body
    path = f"webhook_endpoints/{made['id']}"
    assert (made["secret"][:6], made["api_version"]) == ("whsec_", API_VERSION)
    changed = stripe.post(path, {"disabled": "True", "description": "ours"}).body
    assert (changed["status"], changed["description"]) == ("disabled", "ours")
    assert all("secret" not in each for each in (changed, stripe.get(path).body))
    assert short(stripe.post(path, {"api_version": "2025-09-30.clover"})) == (400, "parameter_unknown")
    assert short(stripe.post("webhook_endpoints", {"url": "https://x.example"})) == (400, "parameter_missing")
    stripe.engine.respond(stripe.request("DELETE", path))
    assert stripe.get(path).status == 404
