"""A customer in a real browser, on a deployed stack; skipped without a Chromium, which in CI has to be there."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from local.stack import Stack
from tests.support.browser import Customer, browser_of_a_test
from tests.support.deployed_shop import DeployedShop


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
