"""The customer's page in a real browser: however it is clicked, reloaded or cut off, one order, and one charge."""

import itertools
import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import stripe
from playwright.sync_api import Page, Route

from local.given_stripe import STRIPE_API_KEY
from onecharge.contract.money import CURRENCIES, as_money
from onecharge.contract.states import OrderStatus
from tests.support.browser import AXE, DECLINED, THREE_D_SECURE, VISA, Customer
from tests.support.deployed_shop import DeployedShop, eventually

CONFIG = re.compile(r"/config\.json$")
ORDERS = re.compile(r"/orders$")
PAYMENT_METHODS = re.compile(r"/v1/payment_methods$")
PAYMENTS = re.compile(r"/payments$")
PRICES = re.compile(r"/prices$")

TELL_WHAT_IS_READ = """() => {
  const { json } = Response.prototype;
  Response.prototype.json = function () { return json.call(this).finally(() => { window.statusRead = this.status; }); };
}"""
"""The page's own steps after a response was read are over before a test sees its status."""


@pytest.fixture
def new_orders(shop: DeployedShop) -> Callable[[], list[str]]:
    """The orders that were placed since the test began."""
    before = _orders(shop)
    return lambda: [order_id for order_id in _orders(shop) if order_id not in before]


def _orders(shop: DeployedShop) -> list[str]:
    rows = shop.stack.aws.client("dynamodb").scan(TableName=shop.stack.orders_table)["Items"]
    return [row["order_id"]["S"] for row in rows if row["customer_id"]["S"] == "alice"]


def assert_one_order_is_paid(shop: DeployedShop, new_orders: Callable[[], list[str]], mugs: int = 2) -> None:
    [order_id] = new_orders()
    assert shop.decided_status(order_id) == "PAID"
    assert [charge.amount_minor for charge in shop.charges(order_id)] == [1250 * mugs]


def webhooks(shop: DeployedShop, order_id: str, status: str) -> None:
    """Stripe tells what happened at the bank, until the order has this status."""

    def status_now() -> str:
        shop.stripe.deliver_webhooks()
        return str(shop.get(order_id).json()["status"])

    assert eventually(status_now, lambda now: now == status) == status


def test_a_card_pays(customer: Customer, shop: DeployedShop) -> None:
    """The basket's price is the server's, and what was shown is what is charged."""
    customer.pay(VISA)
    order_id = customer.sees("PAID")
    assert [charge.amount_minor for charge in shop.charges(order_id)] == [2500]


def test_every_currency_is_shown_as_it_is_charged(customer: Customer) -> None:
    """The browser's number of decimals is not Stripe's for a dozen currencies: 2,500.00 HUF was shown as 250,000."""
    show = "async (each) => { const { money } = await import('./view.js'); return each.map((c) => money(250_000, c)); }"
    shown = customer.page.evaluate(show, sorted(CURRENCIES))
    charged = [as_money(250_000, each) for each in sorted(CURRENCIES)]
    assert [re.sub(r"[^\d.,]", "", each) for each in shown] == [each.split()[0] for each in charged]


def test_a_card_that_is_typed_outlives_a_changed_quantity(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """Whatever the basket is meanwhile, an empty one too: the amount that is shown last is charged."""
    customer.choose(2)
    customer.type_card(VISA)
    for mugs in (0, 5, 3):
        customer.choose(mugs)
    customer.page.get_by_role("button", name="Pay €37.50").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders, mugs=3)


def test_a_quantity_that_is_changed_while_stripe_reads_the_card_orders_nothing(
    customer: Customer, new_orders: Callable[[], list[str]]
) -> None:
    """The customer has agreed to an amount, and the page shows another one by now."""
    waiting: list[Route] = []
    customer.page.route(PAYMENT_METHODS, lambda route: waiting.append(route))
    customer.pay(VISA)
    customer.until(lambda: waiting)
    customer.choose(3)
    waiting[0].continue_()
    customer.page.get_by_text("nothing was ordered").wait_for()
    customer.page.get_by_role("button", name="Pay €37.50").wait_for()
    assert new_orders() == []


def test_a_product_can_have_any_name(customer: Customer) -> None:
    """Also one that every JavaScript object has as a property."""
    names = ("constructor", "__proto__", "toString")
    prices = [{"sku": each, "currency": "EUR", "unit_amount": 100} for each in names]
    customer.page.route(PRICES, partial(answer, status=200, body={"prices": prices}))
    customer.page.reload()
    customer.page.get_by_text("Choose something").wait_for()
    for number, name in enumerate(names, start=1):
        customer.page.get_by_label(name, exact=True).fill("1")
        customer.page.get_by_text(f"Total €{number}.00").wait_for()
    customer.page.reload()
    customer.page.get_by_text("Total €3.00").wait_for()


def test_after_a_decline_another_card_pays_the_same_order(customer: Customer, shop: DeployedShop) -> None:
    """In words, and without a second order."""
    customer.pay(DECLINED)
    order_id = customer.sees("PAYMENT_DECLINED")
    assert "declined" in customer.page.locator("#decline").inner_text()
    customer.type_card(VISA)
    customer.page.get_by_role("button", name="with this card").click()
    assert customer.sees("PAID") == order_id
    assert len(shop.charges(order_id)) == 1


def test_3d_secure_is_completed(customer: Customer, shop: DeployedShop) -> None:
    """The page asks the server, not Stripe.js, whether the order is paid."""
    customer.pay(THREE_D_SECURE)
    order_id = customer.sees("REQUIRES_ACTION")
    customer.challenge("complete")
    customer.page.get_by_text("Your bank has confirmed").wait_for()
    assert customer.page.locator("#notice").inner_text() == ""
    customer.sees("REQUIRES_ACTION")
    webhooks(shop, order_id, "PAID")
    customer.sees("PAID")
    assert len(shop.charges(order_id)) == 1


def test_an_answer_that_is_lost_once_the_bank_has_confirmed_is_asked_for_again(
    customer: Customer, shop: DeployedShop
) -> None:
    """The page reads the payment when it shows the order, when the customer confirms, and twice after it: no more."""
    reads = itertools.count(1)
    customer.page.route("**/payment", lambda route: route.abort() if next(reads) == 3 else route.fallback())
    customer.pay(THREE_D_SECURE)
    order_id = customer.sees("REQUIRES_ACTION")
    customer.challenge("complete")
    customer.page.get_by_text("Your bank has confirmed").wait_for()
    assert next(reads) == 5
    webhooks(shop, order_id, "PAID")


def test_a_failed_3d_secure_is_a_decline(customer: Customer, shop: DeployedShop) -> None:
    customer.pay(THREE_D_SECURE)
    order_id = customer.sees("REQUIRES_ACTION")
    customer.challenge("fail")
    webhooks(shop, order_id, "PAYMENT_DECLINED")
    customer.sees("PAYMENT_DECLINED")
    assert shop.charges(order_id) == []


def test_a_3d_secure_that_was_closed_is_finished_later(customer: Customer, shop: DeployedShop) -> None:
    """By the order's address, also after a reload."""
    customer.pay(THREE_D_SECURE)
    order_id = customer.sees("REQUIRES_ACTION")
    customer.challenge("close")
    customer.is_told("not confirmed this payment yet")
    customer.page.reload()
    customer.sees("REQUIRES_ACTION")
    customer.challenge("complete")
    customer.page.get_by_text("Your bank has confirmed").wait_for()
    customer.page.route("**/payment", lambda route: route.abort(), times=1)
    customer.page.reload()  # The event is late: the page asks Stripe, until it is answered.
    customer.page.get_by_text("Your bank has confirmed").wait_for()
    assert not customer.page.get_by_role("button", name="Cancel").is_visible()
    webhooks(shop, order_id, "PAID")
    customer.sees("PAID")


def test_a_double_click_is_one_order(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    customer.choose(2)
    customer.type_card(VISA)
    customer.page.locator("#card-form button").dblclick()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)


def test_a_reload_before_the_answer_finds_the_order(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """The request has been executed, and the page never saw the 202."""
    lose_answer(customer.page)
    customer.pay(VISA)
    customer.until(new_orders)
    customer.page.reload()
    customer.page.get_by_role("button", name="Send it again").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)


def test_a_request_that_never_left_is_sent_after_a_reload(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """Whether it was executed cannot be known: the same request under the same key settles it, with any basket."""
    customer.page.route(ORDERS, lambda route: route.abort())
    customer.pay(VISA)
    customer.is_told("cannot be reached")
    assert new_orders() == []
    customer.page.unroute_all()
    customer.page.reload()
    customer.choose(0)
    customer.page.get_by_role("button", name="Send it again").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)


def test_a_lost_connection_is_told_and_survived(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """The page says that the order is safe, and goes on when the connection is back."""
    customer.page.route(re.compile(r"/orders/ord_"), lambda route: route.abort())
    customer.pay(VISA)
    customer.page.get_by_text("Your order is safe").wait_for()
    customer.page.unroute_all()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)


def test_back_to_the_basket_does_not_order_again(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """The same basket shows the order that it became; ordering the same once more has to be said."""
    customer.pay(VISA)
    customer.sees("PAID")
    customer.page.go_back()
    customer.choose(2)
    customer.page.get_by_role("link", name="Show this order").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)
    customer.page.go_back()
    customer.page.get_by_role("button", name="Order the same once more").click()
    customer.type_card(VISA)
    customer.page.locator("#card-form button").click()
    customer.sees("PAID")
    assert len(new_orders()) == 2


def test_what_is_ordered_has_left_the_basket(customer: Customer, shop: DeployedShop) -> None:
    """Before it is paid, too: the order has it, and the next order charges what was chosen since, and nothing else."""
    customer.pay(DECLINED)
    customer.sees("PAYMENT_DECLINED")
    customer.page.get_by_role("link", name="Back to the shop").click()
    customer.page.get_by_text("Choose something").wait_for()
    assert customer.in_basket() == []
    assert charged_for_a_postcard(customer, shop) == [199]


def test_an_answer_that_was_lost_takes_the_order_out_of_the_basket_once_it_comes(
    customer: Customer, shop: DeployedShop
) -> None:
    """What was added meanwhile stays, and is all that the next order charges."""
    customer.page.route(ORDERS, execute_and_lose)
    customer.pay(VISA)
    customer.is_told("cannot be reached")
    customer.page.unroute_all()
    customer.page.get_by_label("Postcard", exact=True).fill("1")
    customer.page.get_by_role("button", name="Send it again").click()
    customer.sees("PAID")
    customer.page.get_by_role("link", name="Back to the shop").click()
    customer.page.get_by_text("Total €1.99").wait_for()
    assert charged_for_a_postcard(customer, shop) == [199]


def test_a_tab_that_still_shows_the_basket_does_not_order_it_again(customer: Customer, shop: DeployedShop) -> None:
    """Another tab has ordered the mugs: a postcard that is added here is a basket of its own."""
    customer.choose(2)
    other = customer.second_tab()
    customer.type_card(VISA)
    customer.page.locator("#card-form button").click()
    customer.sees("PAID")
    assert customer.in_basket(other) == ["2 × Mug"]
    assert charged_for_a_postcard(customer, shop, other) == [199]


def test_a_tab_that_shows_more_than_is_left_in_the_basket_does_not_order_it_again(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """Another tab has ordered the mugs: this one's button is of a basket that has them still."""
    customer.choose(2)
    other = customer.second_tab()
    other.get_by_label("Postcard", exact=True).fill("1")
    for tab in (customer.page, other):
        customer.type_card(VISA, tab)
    customer.page.get_by_role("button", name="Pay €25.00").click()
    customer.sees("PAID")
    other.get_by_role("button", name="Pay €26.99").click()
    other.get_by_text("nothing was ordered").wait_for()
    assert customer.in_basket(other) == ["1 × Postcard"]
    assert_one_order_is_paid(shop, new_orders)
    other.get_by_role("button", name="Pay €1.99").click()
    customer.sees("PAID", other)


def test_a_basket_that_is_changed_while_another_tab_orders_is_not_ordered(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """Its button waits for the other tab's answer; the customer sees another amount by then."""
    customer.choose(2)
    other = customer.second_tab()
    other.get_by_label("Postcard", exact=True).fill("1")
    customer.type_card(VISA)
    customer.type_card(VISA, other)
    held: list[Route] = []
    customer.page.route(
        ORDERS, lambda route: held.append(route) if route.request.method == "POST" else route.continue_()
    )
    customer.page.get_by_role("button", name="Pay €25.00").click()
    customer.until(lambda: held)
    with other.expect_response(PAYMENT_METHODS):
        other.get_by_role("button", name="Pay €26.99").click()
    other.get_by_label("Postcard", exact=True).fill("2")
    other.get_by_text("Total €28.98").wait_for()
    held[0].continue_()
    customer.sees("PAID")
    other.get_by_text("nothing was ordered").wait_for()
    assert_one_order_is_paid(shop, new_orders)


def charged_for_a_postcard(customer: Customer, shop: DeployedShop, page: Page | None = None) -> list[int]:
    """What is charged for the order of a basket to which the customer adds a postcard."""
    tab = page or customer.page
    tab.get_by_label("Postcard", exact=True).fill("1")
    tab.get_by_role("button", name=re.compile("^Pay")).wait_for()
    customer.type_card(VISA, tab)
    tab.get_by_role("button", name=re.compile("^Pay")).click()
    return [charge.amount_minor for charge in shop.charges(customer.sees("PAID", tab))]


def test_a_quantity_that_cannot_be_ordered_is_said_beside_its_field(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """It is not changed to one that can; and nothing is ordered before the customer has corrected it."""
    mug, pay = customer.page.get_by_label("Mug", exact=True), customer.page.get_by_role("button", name="Pay")
    said = customer.page.locator("li", has=mug).get_by_role("alert")
    customer.choose(2)
    customer.type_card(VISA)
    for wrong in ("100", "-1", "1.5"):
        mug.fill(wrong)
        customer.page.get_by_text("Correct the quantity").wait_for()
        assert (said.inner_text(), mug.input_value()) == ("Order a whole number from 0 to 99.", wrong)
        assert not pay.is_visible()
        assert not customer.page.get_by_text("Total").is_visible()
    mug.fill("99")
    customer.page.get_by_role("button", name="One less: Mug").click()
    customer.page.get_by_role("button", name="Pay €1,225.00").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders, mugs=98)


def test_an_order_says_what_was_bought(customer: Customer) -> None:
    """At the prices that it was bought at."""
    customer.page.get_by_label("Postcard", exact=True).fill("3")
    customer.pay(VISA)
    customer.sees("PAID")
    assert customer.page.locator(".lines li").all_inner_texts() == ["2 × Mug\n€25.00", "3 × Postcard\n€5.97"]


def test_whoever_has_not_signed_in_sees_what_is_sold(customer: Customer) -> None:
    """With its prices where the shop has put them beside the page; else by its name."""
    customer.page.get_by_role("button", name="Sign out").click()
    mug = customer.page.get_by_role("listitem").filter(has_text="Mug")
    mug.get_by_text("€12.50").wait_for()
    customer.page.route(re.compile(r"/prices\.json$"), lambda route: route.fulfill(status=404))
    customer.page.reload()
    mug.wait_for()
    assert "€" not in customer.page.locator("main").inner_text()


@pytest.mark.parametrize(("key", "cards"), [("pk_test_local", 1), ("pk_live_1", 0)])
def test_test_cards_are_shown_in_test_mode_alone(key: str, cards: int, customer: Customer) -> None:
    """Before the sign-in, and beside the basket."""
    customer.page.route(CONFIG, partial(changed, values={"publishable_key": key}))
    customer.page.reload()
    customer.page.get_by_text("Choose something").wait_for()
    assert customer.page.get_by_text("4242 4242 4242 4242").count() == cards
    customer.page.get_by_role("button", name="Sign out").click()
    customer.page.get_by_role("button", name="Sign in").wait_for()
    assert customer.page.get_by_text("4242 4242 4242 4242").count() == cards


def test_each_screen_names_its_tab(customer: Customer) -> None:
    """So does the history of the browser."""
    titles = [customer.page.title()]
    customer.pay(VISA)
    customer.sees("PAID")
    titles.append(customer.page.title())
    customer.page.get_by_role("link", name="Your orders").click()
    customer.page.get_by_role("heading", name="Your orders").wait_for()
    titles.append(customer.page.title())
    assert titles[1:] == ["Your order of €25.00 · Onecharge", "Your orders · Onecharge"]
    assert titles[0] not in titles[1:]


def test_two_tabs_place_one_order(customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]) -> None:
    """The second click finds what the first has stored, and sends the same."""
    customer.choose(2)
    other = customer.second_tab()
    customer.choose(2, other)
    for tab in (customer.page, other):
        customer.type_card(VISA, tab)
    for tab in (customer.page, other):
        tab.locator("#card-form button").click()
    assert customer.sees("PAID") == customer.sees("PAID", other)
    assert_one_order_is_paid(shop, new_orders)


def test_a_form_with_another_card_sends_the_open_request_as_it_was(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """One key has one body: the second tab's card is not read while the first tab's request is not settled."""
    customer.choose(2)
    other = customer.second_tab()
    customer.type_card(VISA)
    customer.type_card(DECLINED, other)
    customer.page.route(ORDERS, lambda route: route.abort())
    customer.page.locator("#card-form button").click()
    customer.is_told("cannot be reached")
    other.locator("#card-form button").click()
    customer.sees("PAID", other)
    assert_one_order_is_paid(shop, new_orders)


def test_an_open_order_is_settled_before_another_basket_is_ordered(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """Also in a tab that showed the form of another basket before: the first order may have been executed."""
    customer.choose(2)
    other = customer.second_tab()
    customer.choose(3, other)
    for tab in (customer.page, other):
        customer.type_card(VISA, tab)
    customer.page.route(ORDERS, execute_and_lose)
    customer.page.locator("#card-form button").click()
    customer.is_told("cannot be reached")
    other.locator("#card-form button").click()
    other.get_by_role("button", name="Send it again").click()
    customer.sees("PAID", other)
    assert_one_order_is_paid(shop, new_orders)


def test_storage_that_is_cleared_during_the_request_does_not_order_twice(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """The request is executed, its answer is lost, and the browser has forgotten the key: the page has not."""
    customer.page.route(ORDERS, execute_and_lose)
    customer.pay(VISA)
    customer.until(new_orders)
    customer.page.evaluate("localStorage.clear()")
    customer.is_told("cannot be reached")
    customer.page.unroute_all()
    customer.page.get_by_role("button", name="Send it again").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)


def test_a_form_that_was_left_sends_nothing_and_blocks_nothing(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """Stripe's form never answers once it is closed: the next one orders, in any tab."""
    waiting: list[Route] = []
    customer.context.route(PAYMENT_METHODS, lambda route: waiting.append(route))
    customer.pay(VISA)
    customer.until(lambda: waiting)
    customer.page.get_by_role("link", name="Your orders").click()
    customer.page.get_by_role("heading", name="Your orders").wait_for()
    customer.context.unroute(PAYMENT_METHODS)
    other = customer.second_tab()
    customer.type_card(VISA, other)
    other.locator("#card-form button").click()
    customer.sees("PAID", other)
    assert_one_order_is_paid(shop, new_orders)


def go_back(page: Page, steps: int) -> None:
    """Choose a page from the browser's history: a script that goes back may not live long enough to return."""
    browser = page.context.new_cdp_session(page)
    history = browser.send("Page.getNavigationHistory")
    entry = history["entries"][history["currentIndex"] - steps]
    browser.send("Page.navigateToHistoryEntry", {"entryId": entry["id"]})


def test_going_back_shows_nothing_of_the_customer_before(customer: Customer, shop: DeployedShop) -> None:
    """A browser keeps a page that was left, with the card that was typed: it comes back as the present customer's."""
    customer.choose(2)
    customer.type_card(VISA)
    customer.page.goto(f"{shop.stack.jwt_issuer}/jwks.json")
    customer.page.goto(shop.stack.page_url)
    customer.page.get_by_role("button", name="Sign out").click()
    customer.sign_in_again("bob")
    customer.page.get_by_text("Choose something").wait_for()
    customer.page.evaluate("isLeft = true")
    go_back(customer.page, 4)
    customer.page.wait_for_function("typeof isLeft == 'undefined'")
    customer.page.get_by_role("button", name="Sign out bob").wait_for()
    assert customer.page.locator("#card-form").count() == 0


@pytest.mark.parametrize("step", ["before the click", "after the click", "while it is charged"])
def test_a_closed_tab_loses_nothing(
    step: str, customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """Whoever comes back finds the basket as it was, and from the click on the order."""
    if step == "after the click":
        lose_answer(customer.page)
    customer.choose(2)
    customer.type_card(VISA)
    if step != "before the click":
        customer.page.locator("#card-form button").click()
        customer.until(new_orders)
    if step == "while it is charged":
        customer.page.locator("#status").wait_for()
    customer.page.close()
    customer.page = customer.second_tab()
    if step == "before the click":
        assert customer.in_basket() == ["2 × Mug"]
        assert new_orders() == []
        return
    if step == "while it is charged":
        customer.page.get_by_role("link", name="Your orders").click()
        customer.page.locator("td a").first.click()
    else:
        customer.page.get_by_role("button", name="Send it again").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)


def test_an_expired_sign_in_keeps_the_order(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    customer.page.route(ORDERS, lambda route: answer(route, 401, {"message": "Unauthorized"}))
    customer.pay(VISA)
    customer.page.get_by_text("has expired").wait_for()
    customer.page.unroute_all()
    customer.sign_in_again()
    customer.page.get_by_role("button", name="Send it again").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)


def test_a_token_that_has_expired_asks_for_a_sign_in(customer: Customer) -> None:
    """Also where the gateway's 401 lacks the header of CORS, as here: the page is told that nothing came back."""
    issuer = customer.stack.issuer
    token = issuer.signed({**issuer.claims("alice"), "exp": 1_000_000_000})
    customer.page.evaluate("(token) => sessionStorage.setItem('shop:token', token)", token)
    customer.page.reload()
    customer.page.get_by_text("has expired").wait_for()
    customer.sign_in_again()
    customer.page.get_by_role("heading", name="Your basket").wait_for()


def test_an_id_that_is_no_name_is_not_shown(customer: Customer) -> None:
    """The subject of a Cognito token is a UUID, which fills a phone's header and tells its customer nothing."""
    issuer = customer.stack.issuer
    token = issuer.signed(issuer.claims("3f1c2b7a-9d1e-4c55-8a76-0b8f6a6f2c11"))
    customer.page.evaluate("(token) => sessionStorage.setItem('shop:token', token)", token)
    customer.page.reload()
    customer.page.get_by_role("button", name="Sign out", exact=True).wait_for()


def test_a_clock_that_is_fast_does_not_end_the_sign_in(customer: Customer) -> None:
    """Whether a token has expired is the API's to say: by this clock it never was valid, and Sign in led to Sign in."""
    customer.page.add_init_script("const { now } = Date; Date.now = () => now() + 2 * 3_600_000; 0")
    customer.page.reload()
    customer.page.get_by_role("heading", name="Your basket").wait_for()


def test_an_issuers_sign_out_ends_its_session_as_well(customer: Customer) -> None:
    """Else the next customer of this browser presses Sign in, and is the one before."""
    end = f"{customer.stack.page_url}style.css?signed-out"
    customer.page.route(CONFIG, partial(changed, values={"sign_out_url": end}))
    customer.page.reload()
    customer.page.get_by_role("button", name="Sign out").click()
    customer.page.wait_for_url(end)
    customer.page.goto(customer.stack.page_url)
    customer.page.get_by_role("button", name="Sign in").wait_for()


def test_an_address_of_somebody_else_says_nothing_in_the_shops_name(customer: Customer) -> None:
    """The issuer's words are shown only for the sign-in that this tab began; and the page goes on."""
    for query in ("error=x&error_description=Call+0900", "code=x"):
        customer.page.goto(f"{customer.stack.page_url}?{query}&state=guessed")
        customer.page.get_by_role("heading", name="Your basket").wait_for()
        assert "Call" not in customer.page.locator("body").inner_text()


def test_a_sign_in_that_fails_can_be_tried_again(customer: Customer) -> None:
    """The issuer's reason is shown, and the button is there."""
    customer.page.get_by_role("button", name="Sign out").click()
    customer.page.route(re.compile("/authorize"), lambda route: refuse(route, customer.stack.page_url))
    customer.page.get_by_role("button", name="Sign in").click()
    customer.page.get_by_text("You are not a customer.").wait_for()
    customer.page.unroute_all()
    customer.sign_in_again()
    customer.page.get_by_role("heading", name="Your basket").wait_for()


def test_a_wrong_configuration_is_named(customer: Customer) -> None:
    """In place of what the browser says about it, or of an empty shop."""
    wrong = [("api", "nonsense"), ("api", "http://127.0.0.1:1/"), ("stripe_js", "https://"), ("authorize_url", "x")]
    for name, value in [*wrong, ("currency", "eur"), ("publishable_key", "sk_test_1"), ("client_id", "")]:
        customer.page.route(CONFIG, partial(changed, values={name: value}))
        customer.page.reload()
        customer.page.get_by_text(f"config.json has no valid {name}: this shop is not set up yet.").wait_for()


def test_a_shop_without_prices_says_so(customer: Customer) -> None:
    customer.page.route(CONFIG, partial(changed, values={"currency": "SEK"}))
    customer.page.reload()
    customer.page.get_by_text("Nothing is sold in SEK").wait_for()


def test_a_token_that_names_no_customer_is_said(customer: Customer) -> None:
    """Some issuers give an opaque token unless an audience is named: Sign in led to Sign in, without a word."""
    customer.page.get_by_role("button", name="Sign out").click()
    customer.page.route(re.compile("/token$"), partial(answer, status=200, body={"access_token": "opaque"}))
    customer.sign_in_again()
    customer.page.get_by_text("gave no access token").wait_for()


def test_an_old_browser_is_told_to_be_updated(customer: Customer) -> None:
    customer.page.add_init_script("delete AbortSignal.timeout; 0")
    customer.page.reload()
    customer.page.get_by_text("too old for this page").wait_for()


def test_a_late_answer_does_not_take_the_screen(customer: Customer) -> None:
    """An order that is not there is said only where it was asked for."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        if route.request.method == "OPTIONS":
            return route.continue_()
        held.append(route)

    customer.page.route(re.compile("/orders/ord_"), hold)
    customer.page.goto(f"{customer.stack.page_url}#/orders/ord_{'0' * 32}")
    customer.until(lambda: held)
    customer.page.goto(f"{customer.stack.page_url}#/orders")
    customer.page.get_by_role("heading", name="Your orders").wait_for()
    customer.page.evaluate(TELL_WHAT_IS_READ)
    answer(held[0], 404, {"type": "urn:onecharge:problem:not-found", "detail": "There is no such order."})
    customer.page.wait_for_function("window.statusRead === 404")
    assert customer.page.get_by_role("heading", name="Your orders").is_visible()


def test_a_price_that_changed_is_shown_before_it_is_charged(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """The API refuses the old total. The customer sees the new one, and agrees with the card they have typed."""
    customer.page.route(PRICES, at_half_price, times=1)
    customer.page.reload()
    customer.pay(VISA)
    customer.page.get_by_text("The price has changed").wait_for()
    assert new_orders() == []
    customer.page.get_by_role("button", name="Pay €25.00").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)


def test_a_lost_answer_and_then_another_price_is_still_one_order(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """The basket has the same key at every price, and the request that was sent keeps its own."""
    lose_answer(customer.page)
    customer.pay(VISA)
    customer.until(new_orders)
    customer.page.route(PRICES, at_half_price)
    customer.page.reload()
    customer.page.get_by_text("Total €12.50").wait_for()
    customer.page.get_by_role("button", name="Send it again").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)


def test_an_order_that_arrived_after_its_refusal_is_found(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """The API has the key with an earlier body (422): this one is sent again, and its order is shown."""

    def execute_and_refuse(route: Route) -> None:
        route.fetch()
        answer(route, 409, {"type": "urn:onecharge:problem:amount-differs", "detail": "It costs another amount."})

    customer.page.route(ORDERS, execute_and_refuse, times=1)
    customer.choose(2)
    customer.type_card(VISA)
    customer.page.route(PRICES, at_half_price)
    customer.page.locator("#card-form button").click()
    customer.page.get_by_role("button", name="Pay €12.50").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)


def test_another_card_whose_answer_got_lost_is_one_attempt(customer: Customer, shop: DeployedShop) -> None:
    """Until it is known what became of the second card, no third one is asked for."""
    customer.pay(DECLINED)
    order_id = customer.sees("PAYMENT_DECLINED")
    customer.page.route(PAYMENTS, lambda route: route.abort())
    customer.type_card(VISA)
    customer.page.get_by_role("button", name="with this card").click()
    customer.is_told("cannot be reached")
    assert customer.page.locator("#card-form").count() == 0
    customer.page.unroute_all()
    customer.page.reload()
    customer.page.get_by_role("button", name="Send it again").click()
    customer.sees("PAID")
    assert len(shop.charges(order_id)) == 1


def test_another_customer_of_the_browser_has_their_own(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """Neither the basket nor an order that is not settled is another customer's to see or to send."""
    customer.page.route(ORDERS, lambda route: route.abort())
    customer.pay(VISA)
    customer.is_told("cannot be reached")
    customer.page.unroute_all()
    customer.page.get_by_role("button", name="Sign out").click()
    customer.sign_in_again("bob")
    customer.page.get_by_text("Choose something").wait_for()
    assert customer.page.locator("#unanswered").count() == 0
    customer.page.get_by_role("button", name="Sign out").click()
    customer.sign_in_again("alice")
    customer.page.get_by_role("button", name="Send it again").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)


@pytest.mark.parametrize("when", ["always", "at the click"])
def test_without_storage_nothing_is_sent(when: str, customer: Customer, new_orders: Callable[[], list[str]]) -> None:
    """A browser that cannot remember the key could order twice, so it orders nothing, and says why."""
    full = "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }; 0"
    customer.choose(2)
    customer.type_card(VISA)
    if when == "always":
        customer.page.evaluate(
            "Object.keys(localStorage).filter((n) => n.includes('order')).forEach((n) => localStorage.removeItem(n))"
        )
        customer.page.add_init_script(full)
        customer.page.reload()
    else:
        customer.page.evaluate(full)
        customer.page.locator("#card-form button").click()
    customer.page.get_by_text("cannot remember your order").wait_for()
    assert new_orders() == []


def test_a_cancellation_while_it_is_charged_ends_as_stripe_decides(customer: Customer, shop: DeployedShop) -> None:
    """Canceled and not charged, or paid and charged once: never both."""
    shop.stripe.settings(latency_seconds=1)
    try:
        customer.pay(VISA)
        order_id = customer.sees("PENDING")
        customer.page.get_by_role("button", name="Cancel this order").click()
        status = shop.decided_status(order_id)
    finally:
        shop.stripe.settings(latency_seconds=0)
    customer.sees(status)
    # The charge could still follow what the order says: what Stripe has decided is final.
    intents = eventually(lambda: intents_of(shop, order_id), lambda found: found in (["canceled"], ["succeeded"]))
    assert (status, intents, len(shop.charges(order_id))) in (("CANCELED", ["canceled"], 0), ("PAID", ["succeeded"], 1))


def test_an_order_whose_3d_secure_expired_is_ordered_again(
    customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """Once it is CANCELED, not before: it fills the basket again, and the next order has another key."""
    customer.pay(THREE_D_SECURE)
    order_id = customer.sees("REQUIRES_ACTION")
    again = customer.page.get_by_role("button", name="Order again")
    client = stripe.StripeClient(STRIPE_API_KEY, base_addresses={"api": shop.stack.stripe_api_base})
    [intent] = [each for each in shop.stripe.ledger().payment_intents if each["metadata"].get("order_id") == order_id]
    assert not again.is_visible()
    client.v1.payment_intents.cancel(intent["id"], {"cancellation_reason": "abandoned"})
    webhooks(shop, order_id, "CANCELED")
    customer.sees("CANCELED")
    customer.page.get_by_text("was not confirmed in time").wait_for()
    again.click()
    customer.type_card(VISA)
    customer.page.get_by_role("button", name=re.compile("^Pay")).click()
    paid = customer.sees("PAID")
    assert sorted(new_orders()) == sorted([order_id, paid])
    assert len(shop.charges(paid)) == 1


def test_an_order_that_cannot_be_charged_says_so(customer: Customer, shop: DeployedShop) -> None:
    """The same order would be refused again: nothing is offered."""
    order_id = shop.placed("pm_card_visa", "PAID")
    shown = {**shop.get(order_id).json(), "status": "CANCELED", "cancel_reason": "not_chargeable"}
    customer.page.route(re.compile(f"/orders/{order_id}$"), partial(answer, status=200, body=shown))
    customer.page.goto(f"{shop.stack.page_url}#/orders/{order_id}")
    customer.page.get_by_text("This amount cannot be charged").wait_for()
    assert customer.page.locator("#actions button").count() == 0


def test_another_customers_order_is_not_shown(customer: Customer, shop: DeployedShop) -> None:
    """As one that does not exist."""
    order_id = DeployedShop(shop.stack, "bob").placed("pm_card_visa", "PAID")
    customer.page.goto(f"{shop.stack.page_url}#/orders/{order_id}")
    customer.page.get_by_text("There is no such order of yours").wait_for()
    assert order_id not in customer.page.locator("main").inner_text()


def test_the_staff_sees_whose_order_it_is(customer: Customer, shop: DeployedShop) -> None:
    """As that customer's, without the buttons that are the customer's alone; their own order stays theirs."""
    order_id = shop.placed("pm_card_chargeDeclined", "PAYMENT_DECLINED")
    customer.page.get_by_role("button", name="Sign out").click()
    customer.sign_in_again("staff")
    customer.page.get_by_role("button", name="Sign out staff").wait_for()
    customer.page.goto(f"{shop.stack.page_url}#/orders/{order_id}")
    customer.page.get_by_role("heading", name="Order of alice").wait_for()
    customer.page.locator("#status").get_by_text("declined").wait_for()
    main = customer.page.locator("main")
    assert (main.get_by_role("button").count(), main.locator("#card-form").count()) == (0, 0)
    assert "Your order" not in main.inner_text()
    own = DeployedShop(shop.stack, "staff").placed("pm_card_chargeDeclined", "PAYMENT_DECLINED")
    customer.page.goto(f"{shop.stack.page_url}#/orders/{own}")
    customer.page.get_by_role("heading", name="Your order").wait_for()
    customer.page.get_by_role("button", name="Cancel this order").wait_for()


def test_a_card_that_is_incomplete_or_has_expired_is_not_sent(
    customer: Customer, new_orders: Callable[[], list[str]]
) -> None:
    """It is said beside the form, until the customer tries again."""
    form = customer.page.locator("#card-form")
    customer.pay("4242")
    form.get_by_text("incomplete").wait_for()
    customer.type_card(VISA, expiry="01/20")
    form.get_by_role("button").click()
    form.get_by_text("in the past").wait_for()
    assert new_orders() == []


@pytest.mark.parametrize("is_down", [False, True])
def test_a_card_that_stripe_could_not_take_is_sent_again(
    is_down: bool, customer: Customer, shop: DeployedShop, new_orders: Callable[[], list[str]]
) -> None:
    """Before an order is sent: the connection to Stripe fails, or Stripe is down."""
    error = {"error": {"type": "api_error", "message": "Stripe is unavailable."}}
    path = "**/v1/payment_methods"
    customer.page.route(path, lambda route: route.fulfill(status=503, json=error) if is_down else route.abort())
    customer.pay(VISA)
    form = customer.page.locator("#card-form")
    form.get_by_text("Nothing is lost: try again").wait_for()
    customer.page.unroute(path)
    form.get_by_role("button").click()
    customer.sees("PAID")
    assert_one_order_is_paid(shop, new_orders)


def test_the_card_number_stays_in_stripes_frame(customer: Customer) -> None:
    """Neither the page nor its storage nor a request to our API ever holds it."""
    sent: list[str] = []
    customer.page.on("request", lambda request: sent.append(f"{request.url} {request.post_data or ''}"))
    customer.pay(VISA)
    customer.sees("PAID")
    stored = customer.page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}]) + document.body.innerHTML"
    )
    ours = [each for each in sent if each.startswith((customer.stack.api_url, customer.stack.page_url))]
    assert ours
    assert VISA not in "".join([*ours, stored])


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("config.json", "not set up yet"),
        ("stripe.js", "could not be loaded"),
        ("prices", "cannot be reached"),
    ],
)
def test_what_is_missing_is_said_in_plain_words(broken: str, said: str, customer: Customer) -> None:
    """A page without its configuration, without Stripe.js, or without its API."""
    customer.page.route(re.compile(f"/{re.escape(broken)}$"), lambda route: route.abort())
    customer.page.reload()
    if broken == "stripe.js":
        customer.choose(2)
    customer.is_told(said)


def test_stripes_script_that_failed_is_loaded_again(customer: Customer, shop: DeployedShop) -> None:
    """It is on every screen, also before there is a card to type: the next basket tries again."""
    customer.page.goto(f"{customer.stack.page_url}#/orders")
    script = re.compile(r"/stripe\.js$")
    with customer.page.expect_request(script):
        customer.page.reload()
    customer.page.route(script, lambda route: route.abort())
    customer.page.goto(customer.stack.page_url)
    customer.choose(1)
    customer.is_told("could not be loaded")
    customer.page.unroute(script)
    customer.pay(VISA)
    customer.sees("PAID")


def test_every_screen_keeps_the_rules_of_accessibility(customer: Customer, shop: DeployedShop) -> None:
    """axe-core's rules, on a screen of each kind, and on an order in each status."""
    assert AXE.exists() or not os.environ.get("CI")
    if not AXE.exists():
        pytest.skip("axe-core needs npm, which this machine lacks, or `make test` was not run")
    tab, seen = customer.page, {}
    seen["basket"] = customer.violations()
    customer.choose(2)
    tab.locator("#card-form").wait_for()
    seen["form"] = customer.violations()
    tab.get_by_label("Mug", exact=True).fill("100")
    tab.get_by_text("Correct the quantity").wait_for()
    seen["quantity"] = customer.violations()
    tab.goto(f"{shop.stack.page_url}#/orders")
    tab.get_by_role("heading", name="Your orders").wait_for()
    seen["orders"] = customer.violations()
    order_id = shop.placed("pm_card_chargeDeclined", "PAYMENT_DECLINED")
    tab.goto(f"{shop.stack.page_url}#/orders/{order_id}")
    customer.sees("PAYMENT_DECLINED")
    declined = tab.request.get(
        f"{shop.stack.api_url}/orders/{order_id}", headers={"Authorization": str(shop.http.headers["Authorization"])}
    ).json()
    for status in OrderStatus:
        shown = {**declined, "status": status, "amount_refunded": 1250}
        tab.route(re.compile(f"/orders/{order_id}$"), partial(answer, status=200, body=shown))
        tab.reload()
        customer.sees(status)
        if status is OrderStatus.PAYMENT_DECLINED:
            tab.locator("#card-form").wait_for()
        seen[status] = customer.violations()
    tab.get_by_role("button", name="Sign out").click()
    tab.get_by_role("button", name="Sign in").wait_for()
    seen["welcome"] = customer.violations()
    assert {screen: found for screen, found in seen.items() if found} == {}


def intents_of(shop: DeployedShop, order_id: str) -> list[str]:
    """The status of each PaymentIntent of the order."""
    intents = shop.stripe.ledger().payment_intents
    return [str(each["status"]) for each in intents if each["metadata"].get("order_id") == order_id]


def lose_answer(page: Page) -> None:
    """The first request for an order is executed, and its answer never arrives."""
    lost: list[Route] = []

    def handle(route: Route) -> None:
        if lost or route.request.method != "POST":
            return route.continue_()
        lost.append(route)
        route.fetch()  # Neither answered nor refused.

    page.route(ORDERS, handle)


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


def changed(route: Route, values: dict[str, str]) -> None:
    """The configuration with other values."""
    response = route.fetch()
    route.fulfill(response=response, json=response.json() | values)


def refuse(route: Route, page_url: str) -> None:
    """As an issuer does (RFC 6749, 4.1.2.1): with the state that it was given."""
    state = parse_qs(urlsplit(route.request.url).query)["state"][0]
    query = urlencode({"error": "access_denied", "error_description": "You are not a customer.", "state": state})
    route.fulfill(status=302, headers={"Location": f"{page_url}?{query}"})


def at_half_price(route: Route) -> None:
    response = route.fetch()
    prices = [{**each, "unit_amount": each["unit_amount"] // 2} for each in response.json()["prices"]]
    route.fulfill(response=response, json={"prices": prices})
