"""The customer's page in a real browser: however it is clicked, reloaded or cut off, one order, and one charge.

Two of these tests are in the gate; the others run at night. Without a Chromium they are skipped, but not in CI.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, Route

from local.stack import Stack
from onecharge.contract.states import OrderStatus
from tests.support.browser import AXE, DECLINED, THREE_D_SECURE, VISA, Customer, browser_of_a_test
from tests.support.deployed_shop import DeployedShop

CONFIG = re.compile(r"/config\.json$")
ORDERS = re.compile(r"/orders$")
PAYMENTS = re.compile(r"/payments$")
PAYMENT_METHODS = re.compile(r"/v1/payment_methods$")
PRICES = re.compile(r"/prices$")
PAY = re.compile("^Pay")
SEND_AGAIN = "Send it again"

Charges = Callable[[], dict[str, list[int]]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Playwright leaves its event loop running in this thread: it ends before another module's tests begin."""
    with browser_of_a_test() as running:
        yield running


@pytest.fixture
def customer(stack: Stack, browser: Browser) -> Iterator[Customer]:
    """Signed in, with an empty basket and nothing remembered. Afterwards the page has had no error."""
    customer = Customer(browser, stack)
    customer.sign_in()
    yield customer
    stack.stripe.clear_faults()
    customer.context.close()
    assert customer.errors == []


@pytest.fixture
def shop(stack: Stack) -> DeployedShop:
    """The same customer's orders through the API, and Stripe's ledger."""
    return DeployedShop(stack, "alice")


@pytest.fixture
def new_charges(shop: DeployedShop) -> Callable[[], dict[str, list[int]]]:
    """The orders that the customer has placed since the test began, each with the amounts that it was charged."""

    def orders() -> list[str]:
        rows = shop.stack.aws.client("dynamodb").scan(TableName=shop.stack.orders_table)["Items"]
        return [row["order_id"]["S"] for row in rows if row["customer_id"]["S"] == "alice"]

    before = orders()
    return lambda: {
        order_id: [charge.amount_minor for charge in shop.charges(order_id)]
        for order_id in orders()
        if order_id not in before
    }


def execute_and_lose(route: Route) -> None:
    """A connection that breaks off after the request is executed."""
    if route.request.method == "POST":
        route.fetch()
    route.abort()


def answer(route: Route, status: int, body: dict[str, Any]) -> None:
    """Answer in the API's place, to the page alone."""
    if route.request.method == "OPTIONS":
        return route.continue_()
    route.fulfill(status=status, json=body, headers={"Access-Control-Allow-Origin": "*"})


def changed(**values: str) -> Callable[[Route], None]:
    """The configuration with other values."""
    return lambda route: route.fulfill(json=route.fetch().json() | values)


def at_half_price(route: Route) -> None:
    response = route.fetch()
    prices = [{**each, "unit_amount": each["unit_amount"] // 2} for each in response.json()["prices"]]
    route.fulfill(response=response, json={"prices": prices})


@contextmanager
def held(page: Page, url: re.Pattern[str]) -> Iterator[list[Route]]:
    """Hold the page's requests; when the block ends they go on, and so does every later one.

    The page gives a request up after 35 s and sends it again: on a slow machine that one must not be held as well.
    """
    waiting: list[Route] = []
    page.route(url, lambda route: route.continue_() if route.request.method == "OPTIONS" else waiting.append(route))
    yield waiting
    page.unroute(url)
    for route in waiting:
        with suppress(Error):  # The page has given it up.
            route.continue_()


def test_a_card_pays(customer: Customer, new_charges: Charges) -> None:
    """What was shown is what is charged, once; the card's number is in no request to us, and nowhere in the page."""
    sent: list[str] = []
    customer.page.on("request", lambda request: sent.append(f"{request.url} {request.post_data or ''}"))
    customer.choose(3, "Postcard")
    customer.pay(VISA)
    order_id = customer.sees("PAID")
    assert new_charges() == {order_id: [2 * 1250 + 3 * 199]}
    assert customer.page.locator(".lines li").all_inner_texts() == ["2 × Mug\n€25.00", "3 × Postcard\n€5.97"]
    held_here = "JSON.stringify([{...localStorage}, {...sessionStorage}]) + document.body.innerHTML"
    ours = [each for each in sent if each.startswith((customer.stack.api_url, customer.stack.page_url))]
    assert ours
    assert VISA not in "".join([*ours, customer.page.evaluate(held_here)])


def test_3d_secure_is_completed(customer: Customer, shop: DeployedShop, new_charges: Charges) -> None:
    """The bank's question can be closed, and answered after a reload. An order is drawn before Stripe has answered, and
    shows its outcome as soon as the event comes."""
    customer.pay(THREE_D_SECURE)
    order_id = customer.sees("REQUIRES_ACTION")
    customer.challenge("close")
    with held(customer.page, re.compile("/payment$")) as asked:
        customer.page.reload()
        customer.until(lambda: asked)
        # It may be the page before the reload that has asked.
        customer.page.locator("#status").wait_for()
    customer.challenge("complete")
    customer.reads("Your bank has confirmed")
    customer.page.route("**/payment", lambda route: route.abort(), times=1)
    customer.page.reload()  # The event is late: the page asks Stripe, until it is answered.
    customer.reads("Your bank has confirmed")
    assert not customer.page.get_by_role("button", name="Cancel").is_visible()
    shop.stripe.deliver_webhooks()
    customer.sees("PAID")
    assert new_charges() == {order_id: [2500]}


@pytest.mark.nightly
def test_after_a_decline_another_card_pays_the_same_order(customer: Customer, new_charges: Charges) -> None:
    """In words. While it is not known what became of the second card, no third one is asked for."""
    customer.pay(DECLINED)
    order_id = customer.sees("PAYMENT_DECLINED")
    assert "declined" in customer.page.locator("#decline").inner_text()
    customer.page.route(PAYMENTS, lambda route: route.abort())
    customer.type_card(VISA)
    customer.press(PAY)
    customer.reads("no answer came back")
    assert customer.page.locator("#card-form").count() == 0
    customer.page.unroute_all()
    customer.page.reload()
    customer.press(SEND_AGAIN)
    assert customer.sees("PAID") == order_id
    assert new_charges() == {order_id: [2500]}


@pytest.mark.nightly
def test_a_lost_answer_is_asked_for_again(customer: Customer, new_charges: Charges) -> None:
    """The browser forgets its storage during the request, the tab is closed, the price and the basket change, and the
    sign-in expires: the same request is sent again, and finds the order."""
    customer.page.route(ORDERS, execute_and_lose)
    customer.pay(VISA)
    customer.until(new_charges)
    customer.page.evaluate("localStorage.clear()")
    customer.reads("cannot be reached")
    customer.page.close()
    customer.page = customer.second_tab().page
    customer.page.route(PRICES, at_half_price)
    customer.page.route(ORDERS, lambda route: answer(route, 401, {"message": "Unauthorized"}), times=1)
    customer.page.reload()
    customer.choose(1, "Postcard")
    customer.press(SEND_AGAIN)
    customer.reads("has expired")
    customer.press("Sign in")
    customer.press("alice")
    customer.press(SEND_AGAIN)
    order_id = customer.sees("PAID")
    assert new_charges() == {order_id: [2500]}
    customer.press("Back to the shop")
    customer.reads("Your basket")
    assert customer.in_basket() == ["1 × Postcard"]


@pytest.mark.nightly
def test_two_tabs_place_one_order(customer: Customer, new_charges: Charges) -> None:
    """A request that never left is settled before anything else: one key has one body, whatever the other tab's card
    or basket is. A double click is one click."""
    other = customer.second_tab()
    for tab, card in ((customer, VISA), (other, DECLINED)):
        tab.choose(2)
        tab.type_card(card)
    customer.page.route(ORDERS, lambda route: route.abort())
    customer.press(PAY)
    customer.reads("cannot be reached")
    assert new_charges() == {}
    other.page.locator("#card-form button").dblclick()
    paid = other.sees("PAID")
    customer.page.unroute_all()
    customer.press(SEND_AGAIN)
    assert customer.sees("PAID") == paid
    assert new_charges() == {paid: [2500]}


@pytest.mark.nightly
def test_a_basket_that_another_tab_has_ordered_is_not_ordered_again(customer: Customer, new_charges: Charges) -> None:
    """Neither by a button that waited for the other tab's answer, nor with what is still to be seen there."""
    customer.choose(2)
    other = customer.second_tab()
    other.choose(1, "Postcard")
    customer.type_card()
    other.type_card()
    with held(customer.page, ORDERS) as ordered:
        customer.press("Pay €25.00")
        customer.until(lambda: ordered)
        other.press("Pay €26.99")
        customer.until(lambda: other.page.evaluate("navigator.locks.query().then(({ pending }) => pending.length)"))
        other.choose(5)
    paid = customer.sees("PAID")
    other.reads("nothing was ordered")
    assert other.in_basket() == ["3 × Mug", "1 × Postcard"]
    customer.press("Back to the shop")
    customer.reads("Your basket")
    customer.choose(0)
    other.press("Pay €39.49")
    other.page.get_by_role("button", name="Pay €1.99").wait_for()
    assert other.in_basket() == ["1 × Postcard"]
    assert new_charges() == {paid: [2500]}
    other.press("Pay €1.99")
    postcard = other.sees("PAID")
    assert new_charges() == {paid: [2500], postcard: [199]}


@pytest.mark.nightly
def test_what_is_charged_is_what_is_shown(customer: Customer, new_charges: Charges) -> None:
    """A card that is typed outlives a changed quantity. A price that has changed, a quantity that changes while Stripe
    reads the card, and a form that was left order nothing, and block no other one. Of an earlier try with another card
    the page says that it arrived."""
    customer.page.route(PRICES, at_half_price, times=1)
    customer.page.reload()
    customer.pay(VISA)
    customer.reads("The price has changed")
    customer.page.get_by_role("button", name="Pay €25.00").wait_for()
    customer.type_card()
    for mugs in (0, 5, 3):
        customer.choose(mugs)
    with held(customer.page, PAYMENT_METHODS) as asked:
        customer.press("Pay €37.50")
        customer.until(lambda: asked)
        customer.choose(4)
    customer.reads("nothing was ordered")
    with held(customer.page, PAYMENT_METHODS) as asked:
        customer.press("Pay €50.00")
        customer.until(lambda: asked)
        customer.press("Your orders")
        customer.page.get_by_role("heading", name="Your orders").wait_for()
    assert new_charges() == {}
    other = customer.second_tab()
    other.page.route(ORDERS, lambda route: answer(route, 422, {"type": "problem:idempotency-key-reused"}))
    other.type_card()
    other.press("Pay €50.00")
    other.reads("arrived after all")
    other.page.unroute_all()
    other.type_card()
    other.press("Pay €50.00")
    paid = other.sees("PAID")
    assert new_charges() == {paid: [5000]}


@pytest.mark.nightly
def test_the_same_basket_is_ordered_again_only_if_the_customer_says_so(
    customer: Customer, new_charges: Charges
) -> None:
    """Going back shows the order that the basket became; a canceled one, too."""
    customer.pay(THREE_D_SECURE)
    canceled = customer.sees("REQUIRES_ACTION")
    customer.press("Cancel this order")
    customer.sees("CANCELED")
    customer.press("Back to the shop")
    customer.reads("Choose something")
    customer.choose(2)
    customer.press("Show this order")
    assert customer.sees("CANCELED") == canceled
    customer.page.go_back()
    customer.press("Order the same once more")
    customer.type_card()
    customer.press(PAY)
    paid = customer.sees("PAID")
    assert new_charges() == {canceled: [], paid: [2500]}


# Chromium without a window has no back/forward cache. This is what a page hears that comes back from it.
BACK = "isLeft = true; dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))"


@pytest.mark.nightly
def test_another_customer_of_the_browser_has_their_own(customer: Customer, shop: DeployedShop) -> None:
    """Basket, open order, orders, and what the browser keeps of a page that was left. The page shows nobody another
    customer's order, though the API shows it to the staff."""
    customer.choose(2)
    customer.type_card()
    customer.page.evaluate(BACK)
    customer.page.wait_for_function("typeof isLeft == 'undefined'")
    customer.type_card()
    customer.page.route(ORDERS, lambda route: route.abort())
    customer.press(PAY)
    customer.reads("cannot be reached")
    customer.page.unroute_all()
    customer.press("Sign out")
    customer.sign_in("bob")
    customer.reads("Choose something")
    assert customer.page.locator("#unanswered").count() == 0
    order_id = shop.placed("pm_card_chargeDeclined", "PAYMENT_DECLINED")
    for name, said in (("staff", "no such order of yours"), ("alice", "Cancel this order")):
        customer.press("Sign out")
        customer.sign_in(name)
        customer.page.goto(f"{shop.stack.page_url}#/orders/{order_id}")
        customer.reads(said)
    signed_out = f"{shop.stack.page_url}style.css?signed-out"  # Of the issuer's own session as well, where it has one.
    customer.page.route(CONFIG, changed(sign_out_url=signed_out))
    customer.page.reload()
    customer.press("Sign out")
    customer.page.wait_for_url(signed_out)


FULL = "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }; 0"


@pytest.mark.nightly
def test_what_goes_wrong_is_said_in_plain_words(customer: Customer, new_charges: Charges) -> None:
    """No configuration, a browser that stores nothing, a sign-in that fails, Stripe or the API out of reach: nothing is
    ordered meanwhile, and most of it can be tried again."""
    page = customer.page

    def reload(url: re.Pattern[str], handle: Callable[[Route], object], said: str) -> None:
        page.route(url, handle)
        page.reload()
        customer.reads(said)
        page.unroute_all()

    reload(CONFIG, lambda route: route.fulfill(status=404), "not set up yet")
    reload(PRICES, lambda route: route.abort(), "cannot be reached")
    page.reload()
    customer.choose(2)
    reload(re.compile(r"/stripe\.js$"), lambda route: route.abort(), "could not be loaded")
    page.reload()
    customer.type_card("4242")
    customer.press(PAY)
    customer.reads("incomplete")
    customer.type_card()
    page.route(PAYMENT_METHODS, lambda route: route.abort())
    customer.press(PAY)
    customer.reads("Stripe cannot be reached")
    page.unroute_all()
    page.evaluate(FULL)
    customer.press(PAY)
    customer.reads("cannot remember your order")
    page.reload()
    issuer = customer.stack.issuer
    expired = issuer.signed({**issuer.claims("alice"), "exp": 1_000_000_000})
    page.evaluate("(token) => sessionStorage.setItem('shop:token', token)", expired)
    page.reload()  # Here the gateway's 401 lacks the header of CORS: the page is told that nothing came back.
    customer.reads("has expired")
    customer.press("Sign in")
    address = page.get_by_role("link", name="alice").get_attribute("href") or ""
    page.goto(re.sub("state=[^&]+", "state=guessed", address))  # Anybody can write one, with a code of their own.
    customer.reads("did not end with an access token")
    page.route(re.compile("/token$"), lambda route: answer(route, 200, {"access_token": "opaque"}))
    customer.press("Sign in")
    customer.press("alice")
    customer.reads("did not end with an access token")
    assert new_charges() == {}


@pytest.mark.nightly
def test_every_screen_keeps_the_rules_of_accessibility(customer: Customer, shop: DeployedShop) -> None:
    """axe-core's rules, on a screen of each kind, and on an order in each status. Test cards are named in test mode
    alone."""
    assert AXE.exists() or not os.environ.get("CI")
    if not AXE.exists():
        pytest.skip("axe-core needs npm, which this machine lacks, or `make test` was not run")
    tab, seen = customer.page, dict[str, list[str]]()
    customer.choose(2)
    tab.locator("#card-form").wait_for()
    assert tab.get_by_text("4242 4242 4242 4242").is_visible()
    seen["basket"] = customer.violations()
    tab.goto(f"{shop.stack.page_url}#/orders")
    tab.get_by_role("heading", name="Your orders").wait_for()
    seen["orders"] = customer.violations()
    order_id = shop.placed("pm_card_chargeDeclined", "PAYMENT_DECLINED")
    shown = {**shop.get(order_id).json(), "cancel_reason": "not_chargeable", "amount_refunded": 1250}
    tab.route(re.compile(f"/orders/{order_id}$"), lambda route: answer(route, 200, shown))
    for status in OrderStatus:
        shown["status"] = status
        tab.goto(f"{shop.stack.page_url}?{status}#/orders/{order_id}")
        customer.sees(status)
        seen[status] = customer.violations()
    assert tab.get_by_text("This amount cannot be charged").is_visible()
    assert tab.get_by_text("€12.50 has been refunded").is_visible()
    tab.route(CONFIG, changed(publishable_key="pk_live_1"))
    tab.goto(f"{shop.stack.page_url}?live")
    tab.locator("#card-form").wait_for()
    assert tab.get_by_text("4242 4242 4242 4242").count() == 0
    customer.press("Sign out")
    tab.get_by_role("listitem").filter(has_text="Mug").get_by_text("€12.50").wait_for()
    seen["welcome"] = customer.violations()
    assert {screen: found for screen, found in seen.items() if found} == {}
