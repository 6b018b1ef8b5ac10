"""The console: each button is pressed by HTTP, and Stripe's ledger is asked afterwards."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from console.breaks import BREAKS, LocalBreaks
from console.reading import Reader
from console.web import create_app
from local.stack import Stack
from ops.connection import connect
from tests.support.deployed_shop import DeployedShop, eventually
from tests.support.stacks import own_stack

HOST = "127.0.0.1:8080"


class Page:
    """A browser with the console open."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        stack_json = folder / "stack.json"
        stack_json.write_text(stack.as_json())
        ops = connect(str(stack_json))
        breaks = LocalBreaks.of(ops, stack)
        assert breaks is not None
        app = create_app(Reader(ops, time.time()), breaks=breaks)
        self.http = TestClient(app, base_url=f"http://{HOST}")

    def send(self, name: str, **form: str) -> Any:
        return self.http.post(f"/breaks/{name}", data=form, headers={"Origin": f"http://{HOST}"})

    def press(self, name: str, **form: str) -> str:
        """Returns the order whose timeline it leads to; nothing if it leads to the list."""
        # What is refused as long as messages are under way is pressed again.
        response = eventually(lambda: self.send(name, **form), lambda response: "Not done" not in response.text)
        assert (response.status_code, "Not done" in response.text) == (200, False)
        return str(response.url.path.rpartition("/")[2])

    def timeline(self, order_id: str) -> str:
        return self.order(order_id).partition('<table class="timeline">')[2]

    def order(self, order_id: str) -> str:
        return self.http.get(f"/orders/{order_id}").text

    def figure(self, name: str) -> int:
        return int(re.findall(rf"<dt>{name}</dt><dd>(\d+)", self.http.get("/").text)[0])


@pytest.fixture
def page(stack: Stack, tmp_path: Path) -> Page:
    return Page(stack, tmp_path)


@own_stack
def test_each_button_leaves_one_charge(page: Page, shop: DeployedShop) -> None:
    """Stripe's faults, a killed worker, lost rows and keys, duplicates, late webhooks: one charge for each order."""
    placing = [each.name for each in BREAKS if not each.of_order and each.name not in ("surprise", "down")]
    placed = {name: page.press(name) for name in placing}
    for order_id in placed.values():
        assert eventually(lambda order_id=order_id: status(page, order_id), lambda status: status == "PAID") == "PAID"  # type: ignore[misc]
    first = placed["place"]
    for each in (each for each in BREAKS if each.of_order):
        assert page.press(each.name, order_id=first) == first
    wanted = "the row is SUCCEEDED"
    assert wanted in eventually(lambda: page.timeline(first), lambda shown: shown.count(wanted) >= 6)
    assert page.press("down") == ""
    assert "Stripe is down for" in page.http.get("/").text
    assert page.press("surprise", seed="7") == ""
    shop.stripe.clear_faults()
    everything = eventually(lambda: settled(page, len(placed) + 4), bool)
    assert everything
    assert (page.figure("charged twice"), page.figure("lost")) == (0, 0)
    for order_id in placed.values():
        assert len(shop.charges(order_id)) == 1


@own_stack
def test_a_killed_workers_timeline_says_what_happened(page: Page, shop: DeployedShop) -> None:
    """The claim, the stored id, the charge that no line of ours knows, the expired lease, and the next worker."""
    order_id = page.press("kill")
    assert eventually(lambda: status(page, order_id), lambda status: status == "PAID") == "PAID"
    said = [
        "claim granted",
        "id stored",
        "CHARGED",
        "worker killed",
        "lease expired",
        "receive count 2",
        "retrieve",
        "finalized",
    ]
    # The worker's lines come a moment after what it wrote.
    shown = eventually(lambda: page.timeline(order_id), lambda shown: all(each in shown for each in said))
    assert [each for each in said if each not in shown] == []
    assert sorted(said, key=shown.index) == said
    assert len(shop.charges(order_id)) == 1


@own_stack
def test_a_refund_is_seen(page: Page, shop: DeployedShop) -> None:
    """All that is left, once: the timeline says who wanted it, and Stripe has it."""
    order_id = page.press("place")
    assert eventually(lambda: status(page, order_id), lambda status: status == "PAID") == "PAID"
    page.press("refund", order_id=order_id)
    shown = eventually(lambda: page.timeline(order_id), lambda shown: "refund is SUCCEEDED" in shown)
    assert re.search(r"of [\d.]+ EUR is succeeded", shown)
    assert "by staff: a button of the console" in shown
    assert "Not done" in page.send("refund", order_id=order_id).text
    ledger = shop.stripe.ledger()
    [refund] = [each for each in ledger.refunds if each["metadata"].get("order_id") == order_id]
    assert [refund["amount"]] == [each.amount_minor for each in shop.charges(order_id)]


def status(page: Page, order_id: str) -> str:
    found = re.findall(r"<small>orders</small> <span[^>]*>(\w+)</span>", page.order(order_id))
    return found[0] if found else ""


def settled(page: Page, orders: int) -> bool:
    """Every order is paid; those of the surprise are placed while this waits."""
    return (
        page.figure("orders") >= orders and page.figure("charges") >= orders and "waiting 0<" in page.http.get("/").text
    )
