"""`make new WITHOUT=…`: each copy is a whole project, whose template, types and unit tests hold, and which charges."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from local.issuer import Issuer
from local.new_project import make_project
from local.price_list import sold
from local.recipe import PARTS
from stripe_standin.admin import StandInAdmin
from tests.support.harness import PROJECT

_PATIENCE_SECONDS = 600
CARDS = {
    "pm_card_visa": ("PAID", 1),
    "pm_card_visa_chargeDeclinedInsufficientFunds": ("PAYMENT_DECLINED", 0),
    "pm_card_threeDSecure2Required": ("REQUIRES_ACTION", 0),
}
"""What becomes of an order with this card, and how often it is charged."""


@pytest.mark.nightly
@pytest.mark.parametrize("without", ["", *PARTS, " ".join(PARTS)])
def test_a_copy_is_a_whole_project(tmp_path: Path, without: str) -> None:
    """Each part alone, and all together: what is left does not miss it."""
    folder = tmp_path / "shop"
    make_project(folder, "corner-shop", without=without.split())
    (folder / ".venv").symlink_to((PROJECT / ".venv").resolve())
    run(folder, ".venv/bin/ruff", "check", "--no-cache", ".")
    run(folder, ".venv/bin/mypy", "--no-incremental")
    run(folder, ".venv/opt/sam/bin/sam", "validate", "--lint")
    run(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit")
    with running(folder, tmp_path / "run") as stack:
        for card, expected in CARDS.items():
            assert outcome(stack, card) == expected


def run(folder: Path, *command: str) -> None:
    environment = os.environ | {"AWS_DEFAULT_REGION": "us-east-1", "SAM_CLI_TELEMETRY": "0"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


@contextmanager
def running(folder: Path, work_dir: Path) -> Iterator[dict[str, Any]]:
    """`make local` of the copy, and where everything is."""
    stack_json = work_dir / "stack.json"
    command = [sys.executable, "-m", "local", "--work-dir", str(work_dir)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as local:
        try:
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while not stack_json.exists():
                assert local.poll() is None, local.communicate()[0]
                assert time.monotonic() < deadline
                time.sleep(0.5)
            yield json.loads(stack_json.read_text())
        finally:
            local.send_signal(signal.SIGINT)
            local.communicate(timeout=_PATIENCE_SECONDS)


def outcome(stack: dict[str, Any], card: str) -> tuple[str, int]:
    """The status that an order comes to, and how often Stripe has charged it."""
    token = Issuer(stack["jwt_issuer"], stack["jwt_audience"], Path(stack["jwt_key_file"])).token("cus_1")
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": card}
    goods = sold()
    body = {"currency": goods.currency, "payment_method": card, "items": [{"sku": goods.sku, "quantity": 1}]}
    orders = f"{stack['api_url']}/orders"
    order_id = requests.post(orders, json=body, headers=headers, timeout=60).json()["order_id"]
    deadline = time.monotonic() + 120
    while (status := seen(f"{orders}/{order_id}", headers)) == "PENDING" and time.monotonic() < deadline:
        time.sleep(0.5)
    return status, len(StandInAdmin(stack["stripe_api_base"]).ledger().charges_of(order_id))


def seen(url: str, headers: dict[str, str]) -> str:
    return str(requests.get(url, headers=headers, timeout=60).json()["status"])
