"""A customer in a real browser: Chromium, driven by Playwright, that reaches nothing but this machine."""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from local.project_files import PROJECT
from local.stack import Stack
from tests.support.deployed_shop import PATIENCE_SECONDS

VISA = "4242424242424242"
DECLINED = "4000000000000002"
THREE_D_SECURE = "4000000000003220"
_UNPACKED = PROJECT / ".venv/opt/browser"
"""What `make test` unpacks where there is no Chromium: the program, and the libraries and fonts that it needs."""
AXE = _UNPACKED / "node_modules/axe-core/axe.min.js"
_OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    # Stripe.js comes from the stand-in: a request to any other host is a mistake, and fails.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def chromium() -> Path | None:
    """The program: one on PATH, or the unpacked one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    unpacked = _UNPACKED / "chromium"
    return Path(found) if found else unpacked if unpacked.exists() else None


@contextmanager
def running_browser(program: Path) -> Iterator[Browser]:
    """A browser without a window, for as long as the block lasts."""
    parts = {"LD_LIBRARY_PATH": str(_UNPACKED / "al2023/lib"), "FONTCONFIG_PATH": str(_UNPACKED / "fonts")}
    unpacked = parts if program.is_relative_to(_UNPACKED) else {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_OPTIONS, env={**os.environ, **unpacked})
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def browser_of_a_test() -> Iterator[Browser]:
    """A browser without a window; without a Chromium the test is skipped, but in CI one has to be there."""
    program = chromium()
    if program is None and not os.environ.get("CI"):
        pytest.skip("there is no Chromium on PATH, and npm could not bring one: install chromium, and run this again")
    assert program, "in CI the tests in a browser have to run"
    with running_browser(program) as running:
        yield running


class Customer:
    """Somebody who uses the page: what they see, and what they click. `page` is the tab that they look at."""

    def __init__(self, browser: Browser, stack: Stack, name: str = "alice") -> None:
        self.stack, self.name = stack, name
        self.context = browser.new_context()
        self.context.set_default_timeout(PATIENCE_SECONDS * 1000)
        self.context.clock.install()
        self.errors: list[str] = []
        self.page = self.new_tab()

    def second_tab(self) -> "Customer":
        """The same customer in another tab of the same browser, signed in there."""
        other = copy(self)
        other.page = self.new_tab()
        other.sign_in()
        return other

    def new_tab(self) -> Page:
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda line: self.errors.append(line.text) if "Content Security" in line.text else None)
        return page

    def press(self, name: str | re.Pattern[str]) -> None:
        """Press the button or follow the link of this name."""
        self.page.get_by_role("button", name=name).or_(self.page.get_by_role("link", name=name)).click()

    def sign_in(self, name: str = "") -> None:
        """By the issuer's page, as everybody does. A sign-in is for one tab."""
        self.page.goto(self.stack.page_url)
        self.press("Sign in")
        self.page.get_by_role("link", name=name or self.name).click()
        self.page.get_by_role("heading", name="Your basket").wait_for()

    def choose(self, quantity: int, product: str = "Mug") -> None:
        """Put so many of the product into the basket."""
        self.page.get_by_label(product, exact=True).select_option(str(quantity))

    def in_basket(self) -> list[str]:
        """The lines of the basket, without their amounts."""
        return [line.split("\n")[0] for line in self.page.locator(".lines li").all_inner_texts()]

    def type_card(self, number: str = VISA) -> None:
        form = self.page.frame_locator("#card iframe")
        form.get_by_label("Card number").fill(number)
        form.get_by_label("Expiry").fill("12/34")
        form.get_by_label("CVC").fill("123")

    def pay(self, number: str = VISA, *, mugs: int = 2) -> None:
        """From the basket to the click."""
        self.choose(mugs)
        self.type_card(number)
        self.press(re.compile("^Pay"))

    def sees(self, status: str) -> str:
        """Wait until the page shows this status of the order; returns the order's id."""
        self.page.locator(f"#status[data-status={status}]").wait_for()
        return self.page.url.rpartition("/")[2]

    def reads(self, text: str) -> None:
        """Wait until the page says this. Its own pauses end immediately: the browser's clock is set forward."""
        said = self.page.get_by_text(text).first

        def see() -> bool:
            self.context.clock.fast_forward(1000)
            return said.is_visible()

        self.until(see, f"the page does not say {text!r}")

    def challenge(self, answer: str) -> None:
        """Answer the bank's question: complete, fail or close."""
        self.press("Confirm with your bank")
        self.page.frame_locator("dialog iframe").locator(f"#{answer}").click()
        self.page.locator("dialog").wait_for(state="detached")

    def until(self, see: Callable[[], object], otherwise: str = "") -> None:
        """Wait until this is so. Meanwhile the browser's requests are handled, which a sleep would not do."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not see():
            assert time.monotonic() < deadline, otherwise
            self.page.wait_for_timeout(100)

    def violations(self) -> list[str]:
        """What the screen has against the rules of accessibility (axe-core): the rule, and where it is broken."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run({ iframes: false }).then((results) => results.violations)")
        return [f"{each['id']}: {node['html']}" for each in found for node in each["nodes"]]
