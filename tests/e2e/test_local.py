"""`make local`: says where everything is once it is there, deploys what is saved, and leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from local.changes import deploy
from local.issuer import Issuer
from local.stack import Stack
from onecharge.orders.ids import digest_of, order_id_of
from stripe_standin.admin import StandInAdmin
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


def answered(ask: Callable[[], requests.Response]) -> requests.Response:
    """The first good answer: what stack.json names may not listen yet, and a busy machine answers 503."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            if (answer := ask()).ok or time.monotonic() > deadline:
                return answer
        except requests.ConnectionError:
            assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.nightly
def test_the_stack_comes_up_and_goes_away(tmp_path: Path) -> None:
    """An order placed at the printed address is charged; the shop links to no console, since none is served; after
    Ctrl-C nothing is left."""
    command = [sys.executable, "-m", "local", "--work-dir", str(tmp_path)]
    local = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    try:
        eventually((tmp_path / "stack.json").exists, lambda there: there or local.poll() is not None)
        stack = json.loads((tmp_path / "stack.json").read_text())
        token = Issuer(stack["jwt_issuer"], stack["jwt_audience"], Path(stack["jwt_key_file"])).token("c")
        body = {"currency": CURRENCY, "payment_method": "pm_card_visa", "items": [{"sku": SKU, "quantity": 1}]}
        headers = {"Idempotency-Key": "k", "Authorization": f"Bearer {token}"}
        placed = answered(lambda: requests.post(f"{stack['api_url']}/orders", json=body, headers=headers, timeout=90))
        ledger = StandInAdmin(stack["stripe_api_base"]).ledger
        assert eventually(lambda: ledger().charges_of(placed.json()["order_id"]), bool)
        assert "console" not in requests.get(f"{stack['page_url']}config.json", timeout=9).json()
    finally:
        local.send_signal(signal.SIGINT)
        output, _ = local.communicate(timeout=_PATIENCE_SECONDS)
    assert local.returncode == 0, output
    assert "\x1b[" not in output
    assert stack["page_url"] in output
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
