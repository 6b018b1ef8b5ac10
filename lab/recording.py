"""`make record`: records docs/console.webp and docs/page-3d-secure.png.

It runs `make local`, presses the console's own buttons in a browser, and takes a screenshot of each state when it is
there: whatever the pictures show has happened.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import Browser, Page, ViewportSize
from rich.console import Console

from local.processes import StartupError, free_port, running, tail
from local.project_files import PROJECT
from local.stack import Stack
from local.terminal import run_in_terminal
from tests.support.browser import THREE_D_SECURE, Customer, chromium, running_browser
from tests.support.deployed_shop import PATIENCE_SECONDS

RECORDING, PICTURE = PROJECT / "docs/console.webp", PROJECT / "docs/page-3d-secure.png"
SCREEN: ViewportSize = {"width": 1240, "height": 720}
FRAME_MS = 3000
COPIES = 5  # Messages that the console's button sends.
REFUSED, DELETED = "duplicate waits", "duplicate ignored"
_IS_IN_VIEW = "each => Math.abs(each.getBoundingClientRect().top - innerHeight / 2) < innerHeight / 2"
_CAPTION_HEIGHT = 56


@dataclass
class Recording:
    """The frames so far, and the page that they are taken of."""

    page: Page
    frames: list[Image.Image] = field(default_factory=list)

    def press(self, label: str) -> None:
        self.page.get_by_role("button", name=label, exact=True).click()
        self.page.locator(".said").wait_for()

    def take(self, caption: str, seen: str = "", number: int = 1) -> None:
        """Add a frame with this caption, once the timeline has `number` entries with the text `seen`."""
        entry = self.page.locator(".timeline summary", has_text=seen).nth(number - 1) if seen else None
        for _ in range(10):  # What the page adds meanwhile may move the entry out of sight again.
            if entry:
                entry.evaluate("each => each.closest('tr').scrollIntoView({block: 'end'})")
            png = self.page.screenshot()
            if entry is None or entry.evaluate(_IS_IN_VIEW):
                break
        screenshot = Image.open(BytesIO(png)).convert("RGB")
        frame = Image.new("RGB", (screenshot.width, screenshot.height + _CAPTION_HEIGHT), "#16202c")
        frame.paste(screenshot)
        middle = (frame.width // 2, screenshot.height + _CAPTION_HEIGHT // 2)
        ImageDraw.Draw(frame).text(middle, caption, fill="white", font=ImageFont.load_default(24), anchor="mm")
        self.frames.append(frame)


def record_console(recording: Recording, url: str) -> None:
    """A worker is killed after the charge, its message is delivered five more times, and there is one charge."""
    page = recording.page
    page.goto(url)
    recording.take("The console of `make local`. Each button places an order, and breaks something.")
    page.get_by_role("button", name="Kill the worker").focus()
    recording.take("This one kills the worker after Stripe has charged, before the result is stored.")
    recording.press("Kill the worker")
    recording.take("The order is stored and published. Stripe has charged, and has not answered yet.", "CHARGED")
    recording.take("Worker A had stored the PaymentIntent's id. It is killed: no result is stored.", "worker killed")
    recording.press("Deliver it five times at once")
    recording.take("Five more deliveries: while a lease lasts, other claims are refused.", REFUSED, COPIES - 1)
    recording.take("After the lease, the next delivery retrieves the PaymentIntent: it has succeeded.", "finalized")
    recording.take("The other duplicates find the row SUCCEEDED. They are refused, and deleted.", DELETED, COPIES - 1)
    page.goto(url)
    page.locator(".status.paid").wait_for()
    recording.take("The same messages went to two usual workers, which were killed as well.")
    page.locator(".twice").nth(1).wait_for()
    naive, powertools, ours = page.locator("td.charges").all_inner_texts()
    recording.take(f"The order was charged: get, charge, put {naive} times; Powertools {powertools}; onecharge {ours}.")


def picture_page(browser: Browser, stack: Stack) -> None:
    """A customer whose bank asks for 3-D Secure."""
    customer = Customer(browser, stack)
    customer.page.set_viewport_size({"width": 760, "height": 560})
    customer.sign_in()
    customer.pay(THREE_D_SECURE)
    customer.sees("REQUIRES_ACTION")
    customer.page.get_by_role("button", name="Confirm with your bank").click()
    customer.page.frame_locator("dialog iframe").locator("#complete").wait_for()
    customer.page.screenshot(path=PICTURE)


def warm_up(stack: Stack) -> None:
    """Start two workers, as on a stack with traffic, so that one is there while the other has the lease."""
    client = stack.aws.client("lambda")
    mappings = client.list_event_source_mappings()["EventSourceMappings"]
    queue = stack.payments_queue_url.rpartition("/")[2]
    [worker] = [each["FunctionArn"] for each in mappings if each["EventSourceArn"].endswith(f":{queue}")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: client.invoke(FunctionName=worker, Payload=b'{"Records": []}'), range(2)))


@contextmanager
def running_local() -> Iterator[Stack]:
    """`make local`, for as long as the block lasts."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        stack_json, log = Path(folder, "stack.json"), Path(folder, "local.log")
        port = str(free_port("127.0.0.1"))
        command = [sys.executable, "-m", "lab.console", "--work-dir", folder, "--port", port]
        with running(command, env=os.environ, log=log, cwd=PROJECT) as local:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while "is running" not in log.read_text():
                if local.poll() is not None or time.monotonic() > deadline:
                    raise StartupError(tail(log))
                time.sleep(0.2)
            yield Stack(**json.loads(stack_json.read_text()))


def record(console: Console) -> int:
    program = chromium()
    if program is None:
        raise StartupError("there is no Chromium on PATH: install chromium, and run this again")
    console.print("• starting the stack")
    with running_local() as stack, running_browser(program) as browser:
        console.print("• recording the console, while a worker is killed and its lease expires")
        warm_up(stack)
        context = browser.new_context(viewport=SCREEN, device_scale_factor=1.1)
        context.set_default_timeout(PATIENCE_SECONDS * 1000)
        recording = Recording(context.new_page())
        record_console(recording, stack.console_url)
        first, *others = recording.frames
        # Browsers show WebP as they show GIF, and it keeps text sharp in half the size.
        first.save(
            RECORDING,
            save_all=True,
            append_images=others,
            duration=[FRAME_MS] * len(others) + [2 * FRAME_MS],
            loop=0,
            lossless=True,
            method=6,
        )
        console.print("• taking the picture of the customer's page")
        picture_page(browser, stack)
    for path in (RECORDING, PICTURE):
        console.print(f"{path.relative_to(PROJECT)}: {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(run_in_terminal(record))
