"""docs/survival.html in a browser, opened as a file: it says who paid what."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from lab.survival.page import PAGE
from lab.survival.recording import OURS
from lab.survival.results import RESULTS, Results
from tests.support.browser import AXE, browser_of_a_test

RESULTS_SHOWN = Results.of_json(RESULTS.read_text())


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browser_of_a_test() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Afterwards the page has had no error."""
    context = browser.new_context()
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(PAGE.as_uri())
    yield opened
    context.close()
    assert errors == []


def paid(page: Page) -> list[str]:
    """What the meters say: the design's, then ours."""
    return page.locator(".meter strong").all_inner_texts()


def test_every_failure_opens_and_says_who_paid_what(page: Page) -> None:
    """At the end of its schedule the customer has paid twice or nothing, as the cell says, and once with ours."""
    for fault, row in RESULTS_SHOWN.cells.items():
        for design, cell in row.items():
            if not (cell.double or cell.lost):
                continue
            page.locator(f"#cell-{fault}-{design}").click()
            assert paid(page) == ["0.00", "0.00"]
            page.get_by_role("button", name="End", exact=True).click()
            theirs, ours = paid(page)
            assert ours == "42.00", (fault, design)
            assert (theirs == "0.00" and cell.lost) or (float(theirs) >= 84 and cell.double), (fault, design, theirs)
            second = page.get_by_role("button", name="Second charge", exact=True)
            assert second.count() == (float(theirs) >= 84)
            if second.count():
                second.click()
                assert paid(page)[0] == "84.00"


def test_a_cell_without_failures_shows_one_charge(page: Page) -> None:
    """It claims no failure."""
    page.locator(f"#cell-crash-{OURS}").click()
    page.get_by_role("button", name="End", exact=True).click()
    assert paid(page) == ["42.00"]
    assert "None of 10,000 orders is charged twice" in page.locator("#run").inner_text()


def test_a_schedule_is_stepped_by_keyboard(page: Page) -> None:
    """Each key changes the step, the step's line of code is marked, and Escape returns to the cell."""
    page.goto(f"{PAGE.as_uri()}#crash/get-put")
    current = page.locator("#steps-get-put [aria-current=step]")
    assert "Message m1 is sent" in current.inner_text()
    while "Calls Stripe: create." not in current.inner_text():
        page.keyboard.press("ArrowRight")
    assert "payment_intents.create" in page.locator("pre .now").first.inner_text()
    page.keyboard.press("Home")
    assert "Message m1 is sent" in current.inner_text()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "cell-crash-get-put"


@pytest.mark.parametrize("width", [1280, 375])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(page: Page, scheme: str, width: int) -> None:
    """By axe-core's rules, with an open schedule; and nothing is wider than the window."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 800})
    page.locator("#cell-crash-powertools").click()
    page.evaluate(AXE.read_text())
    violations = page.evaluate("axe.run({ iframes: false }).then((results) => results.violations)")
    assert [(each["id"], each["nodes"][0]["html"]) for each in violations] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
