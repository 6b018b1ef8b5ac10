"""Who may do what: on every route of the API, whatever API Gateway says of the caller, or forgets to say."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from local.issuer import REFUND_SCOPE
from onecharge.orders.schema import StoredOrder
from onecharge.runtime.http_api import Route
from orders_api.app import ROUTES
from tests.support.harness import load_intrinsics, load_template
from tests.support.orders_api import Client, order

UNKNOWN = "ord_" + "0" * 32
ABOUT_AN_ORDER = [route for route in ROUTES if "{order_id}" in route.path]
FOR_CUSTOMERS = [route for route in ABOUT_AN_ORDER if route.scope is None]
FOR_STAFF = [route for route in ROUTES if route.scope]
BODIES: Mapping[str, Any] = {
    "place_order": order(),
    "pay_again": {"payment_method": "pm_card_mastercard"},
    "refund_order": {"amount": 100},
}
"""A body that would be accepted, for each route that takes one."""


def request(client: Client, route: Route, order_id: str = UNKNOWN) -> dict[str, Any]:
    """A request that is in order, of this customer, whose token allows what the route needs."""
    event = client.event("pay_again")
    path = route.path.replace("{order_id}", order_id)
    event["rawPath"], event["requestContext"]["http"] = path, {"method": route.method, "path": path}
    event["body"] = json.dumps(BODIES.get(route.name, {}))
    claims_in(event)["scope"] = route.scope or ""
    return event


def claims_in(event: dict[str, Any]) -> dict[str, Any]:
    claims: dict[str, Any] = event["requestContext"]["authorizer"]["jwt"]["claims"]
    return claims


STATUSES = {"pay_again": "PAYMENT_DECLINED", "refund_order": "PAID"}
"""The status in which an order is moved by the route, so that nothing but the caller refuses the request."""


def ready(client: Client, route: Route, customer: str = "cus_1") -> str:
    """The id of a customer's order that the route would change, or show."""
    client.customer = customer
    order_id = client.placed()
    client.set_status(order_id, STATUSES.get(route.name, "REQUIRES_ACTION"))
    return order_id


# ---------------------------------------------------------------- nobody


Change = Callable[[dict[str, Any]], object]
"""Changes the context of a request, which API Gateway writes."""

NOBODY: dict[str, Change] = {
    "no authorizer": lambda context: context.pop("authorizer"),
    "an authorizer that is null": lambda context: context.update(authorizer=None),
    "no claims": lambda context: context.update(authorizer={"jwt": {"claims": {}, "scopes": ["any"]}}),
    "claims that are null": lambda context: context.update(authorizer={"jwt": {"claims": None}}),
    "IAM": lambda context: context.update(authorizer={"iam": {"userArn": "arn:aws:iam::1:user/u"}}),
    "a Lambda authorizer": lambda context: context.update(authorizer={"lambda": {"sub": "cus_1"}}),
    "REST API's": lambda context: context.update(authorizer={"claims": {"sub": "cus_1"}}),
}


def answers(client: Client, routes: Sequence[Route], changes: Mapping[str, Change]) -> dict[str, tuple[int, str]]:
    """The status and the kind of problem with which each route answers each changed request, before it reads or
    writes anything."""
    given = {}
    for route in routes:
        order_id = ready(client, route)
        before = client.stored()
        for name, change in changes.items():
            event = request(client, route, order_id)
            # A header is the client's own text, whatever it says.
            event["headers"] |= {"authorization": "Bearer e30.eyJzdWIiOiJjdXNfMSJ9.", "x-customer-id": "cus_1"}
            change(event["requestContext"])
            client.requested = []
            status, problem, headers = client.send(event)
            assert headers["Content-Type"] == "application/problem+json"
            given[f"{route.name}: {name}"] = status, problem["type"].rpartition(":")[2]
            assert client.requested == []
        assert client.stored() == before
    return given


def test_nobody_is_served_without_claims(client: Client) -> None:
    """401 and an alarm, before anything is read: a route without its authorizer is not an open one."""
    given = answers(client, ROUTES, NOBODY)
    assert [each for each, answer in given.items() if answer != (401, "unauthenticated")] == []
    assert client.counted["Unauthenticated"] == client.counted["Alarm"] == len(given) == len(ROUTES) * len(NOBODY)


def claim(name: str, value: Any) -> Change:
    return lambda context: context["authorizer"]["jwt"]["claims"].update({name: value})


def test_a_subject_that_is_no_customer_is_refused(client: Client) -> None:
    """403, before anything is read."""
    subjects = (None, "", "a b", "[a b]", "é", "a" * 256, "cus_1\n", 7, ["cus_1"])
    given = answers(client, ROUTES, {repr(sub): claim("sub", sub) for sub in subjects})
    assert [each for each, answer in given.items() if answer != (403, "forbidden")] == []


def test_an_id_token_is_no_access_token(client: Client) -> None:
    """403, before anything is read: an ID token is for the page that signs its customer in, and is shown to others."""
    given = answers(client, ROUTES, {repr(use): claim("token_use", use) for use in ("id", "refresh", "", 7)})
    assert [each for each, answer in given.items() if answer != (403, "forbidden")] == []
    event = request(client, ROUTES[0])
    claim("token_use", "access")(event["requestContext"])
    assert client.send(event)[0] == 202


SUBJECTS = (
    "auth0|65f1a2b3c4d5e6f708192a3b",
    "google-oauth2|107691503500061507151",
    "11f0c2a4-6a1e-4d0b-9f4b-6f0a3f0e8f10",
    "urn:example:user:1",
    "bob@example.com",
    "a/b+c=",
    'quote"back\\slash',
    "~" * 255,
)


def test_the_subjects_of_usual_issuers_are_customers(client: Client) -> None:
    """From the request to the event that is charged."""
    for sub in SUBJECTS:
        client.customer = sub
        assert client.post(order())[0] == 202
        [stored] = [item for item in client.stored() if item["customer_id"]["S"] == sub]
        assert StoredOrder.from_item(stored).placed_event().data.customer_id == sub
        assert len(client.get("/orders")[1]["orders"]) == 1


# ---------------------------------------------------------------- another customer


def test_another_customers_order_is_as_if_it_were_not_there(client: Client) -> None:
    """The 404 of an unknown id: the same response, after the same requests to DynamoDB; nothing changes."""
    for route in FOR_CUSTOMERS:
        order_id = ready(client, route)
        before = client.stored()
        client.customer = "cus_2"
        seen = []
        for each in (order_id, UNKNOWN):
            client.requested = []
            seen.append((client.send(request(client, route, each)), client.requested))
        assert seen[0] == seen[1]
        (status, *_), requested = seen[0]
        assert (status, len(requested)) == (404, 1), route.name
        assert client.stored() == before


def test_another_customers_broken_order_is_not_there_either(client: Client) -> None:
    """One that nobody can read: 500 for its customer alone."""
    for route in FOR_CUSTOMERS:
        order_id = ready(client, route)
        client.set_attributes(order_id, attempt=101, amount_minor="many")
        statuses = []
        for client.customer in ("cus_1", "cus_2"):
            statuses.append(client.send(request(client, route, order_id))[0])
        assert statuses == [500, 404], route.name


def test_whoever_may_is_served(client: Client) -> None:
    """The requests above are refused for their caller alone."""
    for route in ABOUT_AN_ORDER:
        order_id = ready(client, route)
        status, shown, _ = client.send(request(client, route, order_id))
        assert (status in (200, 202), shown["order_id"]) == (True, order_id), route.name


def test_nothing_that_is_sent_names_the_customer(client: Client) -> None:
    """Refused, or ignored: never served for the customer that a body or a query names."""
    for route in [route for route in ROUTES if route.scope is None]:
        for body, query in (({"customer_id": "cus_2"}, {}), ({}, {"customer_id": "cus_2"})):
            order_id = ready(client, route, "cus_2")
            client.customer = "cus_1"
            event = request(client, route, order_id)
            event["body"] = json.dumps({**BODIES.get(route.name, {}), **body})
            event["rawQueryString"], event["queryStringParameters"] = urlencode(query), query
            status, shown, _ = client.send(event)
            theirs = [item for item in client.stored() if item["customer_id"]["S"] == "cus_2"]
            listed = {each["order_id"] for each in shown.get("orders", [])}
            assert status in (400, 404) or route.name in ("place_order", "list_orders", "list_prices"), route.name
            assert listed.isdisjoint(item["order_id"]["S"] for item in theirs)
            statuses = {item["order_id"]["S"]: item["status"]["S"] for item in theirs}
            assert statuses[order_id] == STATUSES.get(route.name, "REQUIRES_ACTION")


def test_a_cursor_of_another_customer_shows_nothing_of_theirs(client: Client) -> None:
    """It only says where a page begins."""
    for _ in range(3):
        client.placed()
    cursor = client.get("/orders", limit="1")[1]["next_cursor"]
    client.customer = "cus_2"
    status, shown, _ = client.get("/orders", limit="1", cursor=cursor)
    assert (status, shown["orders"]) == (200, [])


# ---------------------------------------------------------------- the staff


def test_a_token_without_the_scope_is_refused(client: Client) -> None:
    """403, of one's own order, too, before anything is read; API Gateway's word for it is not enough."""
    scopes = (None, "", "openid", "onecharge", "onecharge/refund2")

    def with_scope(scope: str | None) -> Change:
        def change(context: dict[str, Any]) -> None:
            context["authorizer"]["jwt"]["scopes"] = [REFUND_SCOPE]
            claim("scope", scope)(context)

        return change

    given = answers(client, FOR_STAFF, {repr(scope): with_scope(scope) for scope in scopes})
    assert [each for each, answer in given.items() if answer != (403, "forbidden")] == []


@pytest.mark.parametrize(
    "claims",
    [{"scope": f"openid {REFUND_SCOPE}"}, {"scp": f"[openid {REFUND_SCOPE}]"}, {"scp": REFUND_SCOPE}],
    ids=str,
)
def test_the_staff_refunds_any_customers_order(client: Client, claims: dict[str, str]) -> None:
    """With the scope in either claim that issuers use; the log says who did."""
    order_id = client.paid()
    [route] = FOR_STAFF
    event = request(client, replace(route, scope=None), order_id)
    claims_in(event).update({"sub": "staff_7", **claims})
    assert client.send(event)[0] == 202
    assert client.log.lines[-1]["requested_by"] == "staff_7"


def test_the_staff_reads_any_customers_order(client: Client) -> None:
    """With its refunds and its customer, and the log says who did; without the scope it is another customer's."""
    order_id = client.paid()
    client.to(f"{order_id}/refunds", {"amount": 500})
    [route] = [route for route in ROUTES if route.name == "get_order"]
    event = request(client, route, order_id)
    claims_in(event).update({"sub": "staff_7", "scope": f"openid {REFUND_SCOPE}"})
    status, shown, _ = client.send(event)
    assert (status, shown["order_id"], shown["refunds"][0]["amount"]) == (200, order_id, 500)
    assert shown["customer_id"] == "cus_1"
    assert (client.log.lines[-1]["order_id"], client.log.lines[-1]["read_by"]) == (order_id, "staff_7")
    claims_in(event)["scope"] = "openid"
    assert client.send(event)[0] == 404


def test_the_staff_reads_and_refunds_and_does_nothing_else(client: Client) -> None:
    """On every other route, their scope is nothing: an order is its customer's."""
    for route in [route for route in FOR_CUSTOMERS if route.name != "get_order"]:
        event = request(client, route, ready(client, route))
        claims_in(event).update({"sub": "staff_7", "scope": REFUND_SCOPE})
        assert client.send(event)[0] == 404, route.name


# ---------------------------------------------------------------- the template


def test_every_route_asks_for_a_token() -> None:
    """Each of the API's routes is behind the default authorizer, and asks for the scope that the function checks."""
    resources = load_template()["Resources"]
    authorization = resources["OrdersApi"]["Properties"]["Auth"]
    assert authorization["DefaultAuthorizer"] in authorization["Authorizers"]
    scopes = {}
    for event in resources["OrdersApiFunction"]["Properties"]["Events"].values():
        properties = event["Properties"]
        auth = properties.get("Auth", {})
        assert auth.keys() <= {"AuthorizationScopes"}
        scopes[f"{properties['Method']} {properties['Path']}"] = auth.get("AuthorizationScopes", [])
    assert scopes == {f"{route.method} {route.path}": [route.scope] if route.scope else [] for route in ROUTES}


def test_only_stripes_webhook_is_open() -> None:
    """Whatever function a route is of: without an authorizer it would be for everybody."""
    open_routes = [
        event["Properties"]["Path"]
        for resource in load_template()["Resources"].values()
        for event in resource["Properties"].get("Events", {}).values()
        if event["Type"] in {"HttpApi", "Api"} and "Authorizer" in event["Properties"].get("Auth", {})
    ]
    expected = list[str]()
    expected += ["/stripe/events"]
    assert open_routes == expected


def test_the_stack_is_not_deployed_open() -> None:
    """Without an issuer of one's own it has a user pool; an issuer's tokens have to name an audience."""
    template = load_intrinsics()
    auth = template["Resources"]["OrdersApi"]["Properties"]["Auth"]
    jwt = auth["Authorizers"][auth["DefaultAuthorizer"]]["JwtConfiguration"]
    assert template["Conditions"]["HasUserPool"] == {"Equals": [{"Ref": "JwtIssuer"}, ""]}
    condition, pool, own = jwt["issuer"]["If"]
    assert (condition, "cognito-idp" in pool["Sub"], own) == ("HasUserPool", True, {"Ref": "JwtIssuer"})
    assert jwt["audience"]["If"][1:] == [
        [{"Ref": "CustomersClient"}, {"Ref": "MachinesClient"}],
        {"Ref": "JwtAudience"},
    ]
    assert not re.fullmatch(template["Parameters"]["JwtAudience"]["AllowedPattern"], "")
    assert template["Resources"]["OrdersApi"]["Properties"]["FailOnWarnings"] == {"If": ["HasUserPool", False, True]}
    is_closed = {name: profile["IsSignUpClosed"] for name, profile in template["Mappings"]["Profile"].items()}
    assert is_closed == {"live": True, "sandbox": False, "local": False}


def test_a_customer_of_the_user_pool_refunds_nothing() -> None:
    """The client of the customers' page cannot ask for the staff's scope, and has no secret to lose."""
    resources = load_intrinsics()["Resources"]
    customers, machines = (resources[name]["Properties"] for name in ("CustomersClient", "MachinesClient"))
    assert (customers["AllowedOAuthFlows"], customers["AllowedOAuthScopes"]) == (["code"], ["openid"])
    assert "GenerateSecret" not in customers
    assert machines["AllowedOAuthFlows"] == ["client_credentials"]
    assert machines["AllowedOAuthScopes"] == ["onecharge/orders", "onecharge/refund"]
