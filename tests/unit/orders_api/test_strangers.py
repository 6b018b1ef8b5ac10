"""Who may do what: on every route of the API, whatever API Gateway says of the caller, or forgets to say."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from onecharge.orders.schema import StoredOrder
from orders_api.http import STAFF_SCOPE
from tests.support.harness import load_intrinsics, load_template
from tests.support.openapi import OPERATIONS
from tests.support.orders_api import MOVED_FROM, ROUTES, UNKNOWN, Client, claims_in, order

ABOUT_AN_ORDER = [name for name, route in ROUTES.items() if "{order_id}" in route.path]
FOR_CUSTOMERS = [name for name in ABOUT_AN_ORDER if not ROUTES[name].scope]


def ready(client: Client, name: str) -> str:
    """The id of an order that the route would change, or show."""
    return client.placed(MOVED_FROM.get(name, "REQUIRES_ACTION"))


Change = Callable[[dict[str, Any]], object]
"""Changes the context of a request, which API Gateway writes."""


def claim(name: str, value: Any) -> Change:
    return lambda context: context["authorizer"]["jwt"]["claims"].update({name: value})


def without(scope: str | None) -> Change:
    """API Gateway's word for the scope is not enough."""
    return lambda context: context["authorizer"]["jwt"].update(scopes=[STAFF_SCOPE]) or claim("scope", scope)(context)


NOBODY, NO_CUSTOMER = (401, "unauthenticated"), (403, "forbidden")
STRANGERS: dict[str, tuple[Change, tuple[int, str]]] = {
    "no authorizer": (lambda context: context.pop("authorizer"), NOBODY),
    "no claims": (lambda context: context.update(authorizer={"jwt": {"claims": {}, "scopes": ["any"]}}), NOBODY),
    "claims that are null": (lambda context: context.update(authorizer={"jwt": {"claims": None}}), NOBODY),
    "a Lambda authorizer": (lambda context: context.update(authorizer={"lambda": {"sub": "cus_1"}}), NOBODY),
    "REST API's": (lambda context: context.update(authorizer={"claims": {"sub": "cus_1"}}), NOBODY),
    **{
        f"sub {value!r}": (claim("sub", value), NO_CUSTOMER)
        for value in (None, "", "a b", "[a b]", "é", "a" * 256, "cus_1\n", 7, ["cus_1"])
    },
    **{f"token_use {value!r}": (claim("token_use", value), NO_CUSTOMER) for value in ("id", "refresh", "", 7)},
}
NO_STAFF = {f"scope {scope!r}": (without(scope), NO_CUSTOMER) for scope in (None, "openid", "onecharge/refund2")}


@pytest.mark.parametrize("name", ROUTES)
def test_a_stranger_is_refused(client: Client, name: str) -> None:
    """On every route, before anything is read: 401 and an alarm without claims, since a route without its authorizer
    is not an open one; 403 with a token of no customer, or an ID token, which a page shows to others."""
    order_id = ready(client, name)
    before = client.stored()
    for who, (change, expected) in (STRANGERS | (NO_STAFF if ROUTES[name].scope else {})).items():
        event = client.event(name, order_id)
        # A header is the client's own text, whatever it says.
        event["headers"] |= {"authorization": "Bearer e30.eyJzdWIiOiJjdXNfMSJ9.", "x-customer-id": "cus_1"}
        change(event["requestContext"])
        client.requested, client.counted = [], client.counted.__class__()
        answer = client.send(event)
        assert (answer.in_brief, client.requested) == (expected, []), who
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert client.counted["Alarm"] == client.counted["Refused.401"] == (expected == NOBODY), who
    assert client.stored() == before
    event = client.event(name, order_id)
    claim("token_use", "access")(event["requestContext"])
    assert client.send(event).status in (200, 202)


@pytest.mark.parametrize("sub", ["auth0|65f1:b@c.example", 'a/b+c="back\\slash', "~" * 255])
def test_the_subjects_of_usual_issuers_are_customers(client: Client, sub: str) -> None:
    """From the request to the event that is charged."""
    client.customer = sub
    assert client.post(order()).status == 202
    [stored] = client.stored()
    assert StoredOrder.from_item(stored).placed_event().data.customer_id == sub
    assert len(client.ask("list_orders").body["orders"]) == 1


# ---------------------------------------------------------------- another customer


@pytest.mark.parametrize("name", FOR_CUSTOMERS)
def test_another_customers_order_is_as_if_it_were_not_there(client: Client, name: str) -> None:
    """The 404 of an unknown id: the same response, after the same request to DynamoDB; nothing changes. Even of one
    that nobody can read: 500, with an alarm, for its customer alone."""
    order_id = ready(client, name)
    before = client.stored()
    client.customer = "cus_2"
    for is_broken in (False, True):
        client.requested = []
        theirs, unknown = client.ask(name, order_id), client.ask(name, UNKNOWN)
        assert (theirs, theirs.in_brief) == (unknown, (404, "not-found"))
        assert len(client.requested) == 2
        if not is_broken:
            assert client.stored() == before
            client.set(order_id, attempt=101, amount_minor="many")
    client.customer = "cus_1"
    assert client.ask(name, order_id).in_brief == (500, "internal")
    assert client.counted["Alarm"] == 1


@pytest.mark.parametrize("order_id", ["nothing", "4242424242424242", "%00", "ord_'", "\x00", "\ud800", f"{UNKNOWN}0"])
def test_an_id_that_no_order_has_is_not_looked_for(
    client: Client, order_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """404 on every route, without a request to DynamoDB, and the id is not repeated."""
    for name in ABOUT_AN_ORDER:
        answer = client.ask(name, order_id)
        assert answer.in_brief == (404, "not-found"), name
        assert order_id not in client.published_by(answer.body, capsys)
    assert client.requested == []


# ---------------------------------------------------------------- the staff


@pytest.mark.parametrize("claims", [{"scope": f"openid {STAFF_SCOPE}"}, {"scp": f"[openid {STAFF_SCOPE}]"}], ids=str)
def test_the_staff_reads_and_refunds_and_does_nothing_else(client: Client, claims: dict[str, str]) -> None:
    """Any customer's order, with its refunds and its customer, and the log says who did: with the scope in either claim
    that issuers use. On every other route their scope is nothing: an order is its customer's."""
    order_id = client.placed("PAID")
    answers = {}
    for name in reversed(ABOUT_AN_ORDER):
        event = client.event(name, order_id)
        claims_in(event).update({"sub": "staff_7", "scope": "", **claims})
        answers[name] = client.send(event)
        about = {"refund_order": "requested_by", "get_order": "read_by"}.get(name, "")
        assert client.log.lines[-1].get(about) == ("staff_7" if about else None)
    assert {name: answer.status for name, answer in answers.items() if answer.status != 404} == {
        "refund_order": 202,
        "get_order": 200,
    }
    shown = answers["get_order"].body
    assert (shown["customer_id"], [each["amount"] for each in shown["refunds"]]) == ("cus_1", [100])
    assert "customer_id" not in client.shown(order_id)


# ---------------------------------------------------------------- the template


def test_every_route_asks_for_a_token() -> None:
    """Each of the API's routes but Stripe's webhook is behind the default authorizer, and asks for the scope that the
    function checks; the document describes the same routes."""
    resources = load_template()["Resources"]
    authorization = resources["OrdersApi"]["Properties"]["Auth"]
    assert authorization["DefaultAuthorizer"] in authorization["Authorizers"]
    asked = {
        f"{event['Properties']['Method']} {event['Properties']['Path']}": event["Properties"].get("Auth", {})
        for resource in resources.values()
        for event in resource["Properties"].get("Events", {}).values()
        if event["Type"] in {"HttpApi", "Api"} and "Path" in event["Properties"]
    }
    assert asked.pop("POST /stripe/events") == {"Authorizer": "NONE"}
    assert asked == {
        f"{each.method} {each.path}": {"AuthorizationScopes": [each.scope]} if each.scope else {} for each in OPERATIONS
    }


def test_the_stack_is_not_deployed_open() -> None:
    """Without an issuer of one's own it has a user pool; an issuer's tokens have to name an audience."""
    template = load_intrinsics()
    auth = template["Resources"]["OrdersApi"]["Properties"]["Auth"]
    jwt = auth["Authorizers"][auth["DefaultAuthorizer"]]["JwtConfiguration"]
    assert template["Conditions"]["HasUserPool"] == {"Equals": [{"Ref": "JwtIssuer"}, ""]}
    condition, pool, own = jwt["issuer"]["If"]
    assert (condition, "cognito-idp" in pool["Sub"], own) == ("HasUserPool", True, {"Ref": "JwtIssuer"})
    pools = [{"Ref": "CustomersClient"}, {"Ref": "MachinesClient"}]
    assert jwt["audience"]["If"][1:] == [pools, {"Ref": "JwtAudience"}]
    assert not re.fullmatch(template["Parameters"]["JwtAudience"]["AllowedPattern"], "")
    assert template["Resources"]["OrdersApi"]["Properties"]["FailOnWarnings"] == {"If": ["HasUserPool", False, True]}
    sign_up = template["Resources"]["UserPool"]["Properties"]["AdminCreateUserConfig"]
    assert sign_up == {"AllowAdminCreateUserOnly": {"If": ["IsLive", True, False]}}


def test_a_customer_of_the_user_pool_refunds_nothing() -> None:
    """The client of the customers' page cannot ask for the staff's scope, and has no secret to lose."""
    resources = load_intrinsics()["Resources"]
    customers, machines = (resources[name]["Properties"] for name in ("CustomersClient", "MachinesClient"))
    assert (customers["AllowedOAuthFlows"], customers["AllowedOAuthScopes"]) == (["code"], ["openid"])
    assert "GenerateSecret" not in customers
    assert machines["AllowedOAuthFlows"] == ["client_credentials"]
    assert machines["AllowedOAuthScopes"] == ["onecharge/orders", "onecharge/refund"]


def test_the_routes_that_ask_for_much_have_a_limit_of_their_own() -> None:
    """Of requests per second: a request for the client secret asks Stripe, whose limit charges need, and so does a
    refund; a list reads up to 50 orders, of the 1,000 units per second that the table may read."""
    settings = load_template()["Resources"]["OrdersApi"]["Properties"]["RouteSettings"]
    for route in ("GET /orders/{order_id}/payment", "POST /orders/{order_id}/refunds", "GET /orders"):
        assert settings[route]["ThrottlingRateLimit"] <= 5
        assert settings[route]["ThrottlingBurstLimit"] <= 20
