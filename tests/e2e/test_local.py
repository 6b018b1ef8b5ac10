"""`make local`: says where everything is once it is there, uses a given Stripe, and leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from local.changes import deploy
from local.issuer import Issuer
from local.price_list import sold
from local.stack import Stack
from onecharge.orders.ids import digest_of, order_id_of
from stripe_standin.admin import StandInAdmin
from stripe_standin.server import StandIn, running_standin
from tests.support.deployed_shop import CURRENCY, PRICE, SKU, DeployedShop, shop_of
from tests.support.harness import PROJECT
from tests.support.stacks import own_stack

_PATIENCE_SECONDS = 240
PROMISED = {
    "aws_endpoint_url",
    "api_url",
    "jwt_issuer",
    "payments_queue_url",
    "payments_dlq_url",
    "order_events_topic_arn",
    "orders_table",
    "charges_table",
    "stripe_api_base",
}


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


@contextmanager
def running_local(work_dir: Path, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """`make local`, which ends with the block."""
    local = subprocess.Popen(
        [sys.executable, "-m", "local", "--work-dir", str(work_dir)],
        cwd=PROJECT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield local
    finally:
        if local.poll() is None:
            local.send_signal(signal.SIGTERM)
            local.communicate(timeout=_PATIENCE_SECONDS)


def addresses(local: "subprocess.Popen[str]", stack_json: Path) -> dict[str, str]:
    """Where everything is, once it is there."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not stack_json.exists() and local.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    where: dict[str, str] = json.loads(stack_json.read_text())
    return where


def token_for(customer: str, stack: dict[str, str]) -> str:
    return Issuer(stack["jwt_issuer"], stack["jwt_audience"], Path(stack["jwt_key_file"])).token(customer)


def pay_for_an_order(stack: dict[str, str], stripe: StandIn) -> None:
    """An order placed there is charged at that Stripe."""
    sku, currency, _ = sold()
    body = {"currency": currency, "payment_method": "pm_card_visa", "items": [{"sku": sku, "quantity": 1}]}
    headers = {"Idempotency-Key": "k", "Authorization": f"Bearer {token_for('c', stack)}"}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    url = f"{stack['api_url']}/orders"
    while (answer := requests.post(url, json=body, headers=headers, timeout=90)).status_code == 503:
        assert time.monotonic() < deadline  # A busy machine. The same key is the same order.
    while not StandInAdmin(stripe.base_url).ledger().charges_of(answer.json()["order_id"]):
        assert time.monotonic() < deadline
        time.sleep(0.2)


@contextmanager
def api_alone(stripe: StandIn, api_key: str) -> Iterator[str]:
    """The same Stripe without the endpoints under /_standin/, for this key alone, as the test mode of an account is."""

    class Handler(BaseHTTPRequestHandler):
        def _forward(self) -> None:
            if not self.path.startswith("/v1/") or self.headers.get("Authorization") != f"Bearer {api_key}":
                self.send_response(404 if self.headers.get("Authorization") else 401)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = requests.request(
                self.command, stripe.base_url + self.path, data=body, headers=dict(self.headers), timeout=90
            )
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = _forward  # The names that http.server looks for.

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def ended_by(end: signal.Signals, local: "subprocess.Popen[str]", work_dir: Path) -> str:
    """What it has printed, once it has ended and left nothing behind."""
    local.send_signal(end)
    output, _ = local.communicate(timeout=_PATIENCE_SECONDS)
    assert local.returncode == 0, output
    assert not (work_dir / "stack.json").exists()
    assert not (work_dir / "tmp").exists()
    if sys.platform == "linux":
        assert processes_below(work_dir) == []
    return output


@pytest.mark.nightly
def test_the_stack_comes_up_and_goes_away(tmp_path: Path) -> None:
    """An order placed at the given address is charged at the given Stripe; the shop links to no console, since none is
    served; after Ctrl-C nothing is left."""
    with running_standin() as stripe, running_local(tmp_path, STRIPE_API_BASE=stripe.base_url) as local:
        stack = addresses(local, tmp_path / "stack.json")
        assert stack.keys() >= PROMISED
        assert stack["stripe_api_base"] == stripe.base_url
        pay_for_an_order(stack, stripe)
        config = requests.get(f"{stack['page_url']}config.json", timeout=9).json()
        assert ("console" in config, stack["console_url"]) == (False, "")
        output = ended_by(signal.SIGINT, local, tmp_path)
    assert "\x1b[" not in output
    assert stack["page_url"] in output


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


@pytest.mark.nightly
def test_any_stripe_will_do(tmp_path: Path) -> None:
    """One without the stand-in's own endpoints, with another test key: it prints how to forward webhooks.

    SIGTERM ends it, and leaves nothing behind.
    """
    with running_standin() as stripe, api_alone(stripe, "sk_test_mine") as api_base:
        given = {
            "STRIPE_API_BASE": api_base,
            "STRIPE_SECRET_KEY": "sk_test_mine",
            "STRIPE_WEBHOOK_SECRET": "whsec_mine",
        }
        with running_local(tmp_path, **given) as local:
            stack = addresses(local, tmp_path / "stack.json")
            pay_for_an_order(stack, stripe)
            output = ended_by(signal.SIGTERM, local, tmp_path)
    assert "Traceback" not in output
    assert "stripe listen" in output


@pytest.mark.parametrize("api_key", ["sk_live_x", "rk_live_x"])
def test_a_live_key_is_refused(tmp_path: Path, api_key: str) -> None:
    """Before anything is started, and without showing it."""
    given = {"STRIPE_API_BASE": "https://api.stripe.com", "STRIPE_SECRET_KEY": api_key}
    with running_local(tmp_path, **given) as local:
        output, _ = local.communicate(timeout=_PATIENCE_SECONDS)
    assert local.returncode == 2
    assert "is no test key" in output
    assert api_key not in output
    assert not (tmp_path / "aws.log").exists()
