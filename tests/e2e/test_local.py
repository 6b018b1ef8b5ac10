"""`make local`: says where everything is once it is there, deploys what is saved, and leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from local.changes import deploy
from local.stack import Stack
from onecharge.orders.ids import digest_of, order_id_of
from tests.support.deployed_shop import CURRENCY, PRICE, SKU, DeployedShop, eventually, shop_of
from tests.support.harness import PROJECT
from tests.support.stacks import own_stack

_PATIENCE_SECONDS = 240


def processes_below(folder: Path) -> list[str]:
    """Command lines of the processes that work in the folder, as Linux lists them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in environment and process.name != str(os.getpid()):
            found.append((process / "cmdline").read_text())
    return found


@pytest.mark.nightly
def test_the_stack_comes_up_and_goes_away(tmp_path: Path) -> None:
    """An order placed at the printed address is charged; the shop links to no console, since none is served; after
    Ctrl-C nothing is left."""
    command = [sys.executable, "-m", "local", "--work-dir", str(tmp_path)]
    local = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    try:
        eventually((tmp_path / "stack.json").exists, lambda there: there or local.poll() is not None)
        stack = Stack(**json.loads((tmp_path / "stack.json").read_text()))
        shop = DeployedShop(stack)
        placed = eventually(shop.order, lambda answer: answer.ok)  # A busy machine answers 503.
        assert shop.decided_status(placed.json()["order_id"]) == "PAID"
        assert len(shop.charges(placed.json()["order_id"])) == 1
        assert "console" not in requests.get(f"{stack.page_url}config.json", timeout=9).json()
    finally:
        local.send_signal(signal.SIGINT)
        output, _ = local.communicate(timeout=_PATIENCE_SECONDS)
    assert local.returncode == 0, output
    assert "\x1b[" not in output
    assert stack.page_url in output
    assert {path.name for path in tmp_path.iterdir()}.isdisjoint({"stack.json", "tmp", "issuer-key.pem"})
    assert processes_below(tmp_path) == []


@own_stack
def test_what_is_saved_is_deployed(stack: Stack, shop: DeployedShop, tmp_path: Path) -> None:
    """The next request is served by a function's new code, and by the layer's; code that does not compile is not
    published."""
    for name in ("functions", "shared", "layers"):
        shutil.copytree(PROJECT / name, tmp_path / name)
    prices, ids = tmp_path / "functions/orders_api/prices.json", tmp_path / "shared/onecharge/orders/ids.py"
    prices.write_text(json.dumps({SKU: {CURRENCY: PRICE + 1}}))
    name = shop_of(stack)
    try:
        assert deploy(stack, ["functions/orders_api"], tmp_path) == ["orders_api"]
        order = shop.order("k").json()
        assert (order["order_id"], order["amount"]) == (order_id_of(name, "cus_e2e", "k"), 2 * (PRICE + 1))
        ids.write_text(ids.read_text().replace("json.dumps(what)", 'json.dumps([*what, "new"])'))
        assert "charge_order" in deploy(stack, ["shared"], tmp_path)
        assert shop.order("k").json()["order_id"] == f"ord_{digest_of(name, 'cus_e2e', 'k', 'new')}"
        ids.write_text("def broken(:")
        with pytest.raises(subprocess.CalledProcessError) as failed:
            deploy(stack, ["shared"], tmp_path)
        assert "SyntaxError" in failed.value.stdout
        assert shop.order("k").ok
    finally:
        deploy(stack, ["functions/orders_api", "shared"], PROJECT)
