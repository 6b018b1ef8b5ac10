"""`make local` deploys what is saved."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from local.changes import deploy
from local.stack import Stack
from onecharge.orders.ids import digest_of, order_id_of
from tests.support.deployed_shop import CURRENCY, PRICE, SKU, DeployedShop, shop_of
from tests.support.harness import PROJECT
from tests.support.stacks import own_stack


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
