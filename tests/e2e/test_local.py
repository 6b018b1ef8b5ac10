"""`make local`: says where everything is once it is there, uses a given Stripe, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from local.stripe_standin.admin import StandInAdmin
from local.stripe_standin.server import running_standin
from tests.conftest import PROJECT

PROMISED = {
    "aws_endpoint_url",
    "api_url",
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


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_stack_comes_up_and_goes_away(tmp_path: Path, end: signal.Signals) -> None:
    """An order placed at the given address is charged at the given Stripe; then nothing is left."""
    stack_json = tmp_path / "stack.json"
    with running_standin() as stripe:
        local = subprocess.Popen(
            [sys.executable, "-m", "local", "--work-dir", str(tmp_path)],
            cwd=PROJECT,
            env={**os.environ, "STRIPE_API_BASE": stripe.base_url},
            stdout=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 120
        while not stack_json.exists() and local.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        stack = json.loads(stack_json.read_text())
        assert stack.keys() >= PROMISED
        assert stack["stripe_api_base"] == stripe.base_url
        body = {"customer_id": "c", "currency": "eur", "payment_method": "pm_card_visa"}
        body |= {"items": [{"sku": "mug", "quantity": 1, "unit_amount": 777}]}  # type: ignore[dict-item]
        headers = {"Idempotency-Key": "k"}
        order = requests.post(f"{stack['api_url']}/orders", json=body, headers=headers, timeout=30).json()
        while not StandInAdmin(stripe.base_url).ledger().charges_of(order["order_id"]):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        local.send_signal(end)
        output, _ = local.communicate(timeout=60)
    assert local.returncode == 0, output
    assert "\x1b[" not in output
    assert not stack_json.exists()
    assert not (tmp_path / "tmp").exists()
    if sys.platform == "linux":
        assert processes_below(tmp_path) == []
