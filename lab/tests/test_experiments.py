"""The ten experiments of the console, in a browser on a stack of their own: one charge is onecharge's."""

from collections.abc import Iterable

import pytest
from playwright.sync_api import Page

from lab.console.breaks import BREAKS
from lab.console.experiments import EXPERIMENTS as CONSOLE
from lab.experiments import ACCOUNTS, EXPERIMENTS, OURS, press_all
from lab.recording import running_local
from tests.support.browser import browser_of_a_test
from tests.support.deployed_shop import PATIENCE_SECONDS

FINAL = ".states:not(:has-text('so far')):has(.status.paid) .ledger"
KILLED = "claimed|create|CHARGED|worker killed|lease expired|receive count 2|claimed|retrieve|finalized".split("|")


def test_each_button_that_breaks_something_is_one_of_ten_experiments_and_is_pressed() -> None:
    """A refund breaks nothing, and "surprise" presses others at random."""
    assert sorted(name for each in CONSOLE for name in each.buttons) == sorted(BREAKS.keys() - {"refund"})
    assert [each.number for each in CONSOLE] == list(range(1, 11))
    of_order = [each.number for each in BREAKS.values() if each.of_order]
    assert of_order == ["2", "7a", "7b", "8", "9a", "9b", ""]
    assert {name for buttons in EXPERIMENTS.values() for name in buttons} == BREAKS.keys() - {"surprise", "refund"}


class Visitor:
    """A person in front of the console of `make local`, who does the experiments."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        page.set_default_timeout(PATIENCE_SECONDS * 1000)

    def press(self, button: str, order_id: str | None) -> str:
        self.page.goto(f"{self.url}orders/{order_id}" if order_id else self.url)
        self.page.get_by_role("button", name=BREAKS[button].label, exact=True).click()
        said = self.page.get_by_role("status")
        assert said.get_attribute("class") == "said", said.inner_text()
        if button == "down":  # Its button leads to the list.
            row = self.page.locator("tr", has_text="Stripe is down")
            return str(row.locator("th a").get_attribute("id"))
        return self.page.url.rpartition("/")[2].partition("?")[0]

    def settle(self, orders: Iterable[str]) -> None:
        """Watch each order's page until it says that no worker retries, and each has charged."""
        for order_id in orders:
            self.page.goto(f"{self.url}orders/{order_id}")
            for nth in range(len(ACCOUNTS)):
                self.page.locator(FINAL).nth(nth).filter(has_not_text="0").wait_for()

    def charges(self, order_id: str) -> dict[str, int]:
        """As the order's page shows them, by account."""
        self.page.goto(f"{self.url}orders/{order_id}")
        ours, *usual = self.page.locator(".ledger strong").all_inner_texts()
        return {account: int(count) for account, count in zip(ACCOUNTS, [*usual, ours], strict=True)}

    def width_beyond(self, width: int) -> int:
        """How much wider the list is than a screen of this width."""
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.goto(self.url)
        self.page.get_by_text("refunded").wait_for()
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@pytest.mark.nightly
def test_a_person_who_presses_the_buttons_sees_one_charge_of_ours() -> None:
    """The order's page has the numbers of Stripe's ledger: the usual workers' charges too, two where they overlap. A
    killed worker's timeline tells it in order, and the list fits the screen with an order that is refunded.
    """
    with browser_of_a_test() as browser, running_local() as stack:
        visitor = Visitor(browser.new_page(), stack.console_url)
        orders = press_all(visitor.press, visitor.settle)
        shown = {title: visitor.charges(order_id) for title, order_id in orders.items()}
        visitor.page.goto(f"{stack.console_url}orders/{orders['A worker is killed']}")
        told = visitor.page.locator(".timeline summary").all_inner_texts()
        visitor.press("refund", orders["An order"])
        beyond = [visitor.width_beyond(width) for width in (1280, 375)]
        ledger = stack.stripe.ledger()
    assert shown == {
        title: {account: len(ledger.charges_of(order_id, account)) for account in ACCOUNTS}
        for title, order_id in orders.items()
    }
    assert {title: charges[OURS] for title, charges in shown.items()} == dict.fromkeys(EXPERIMENTS, 1)
    assert shown["Five more deliveries"]["acct_naive"] > 1
    assert shown["A worker is killed"] == {"acct_naive": 2, "acct_powertools": 2, OURS: 1}
    rest = iter(told)
    assert [each for each in KILLED if not any(each in what for what in rest)] == [], told
    assert max(beyond) <= 0
