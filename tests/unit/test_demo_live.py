"""The demo shows what happens while it happens: a table on a terminal, plain lines elsewhere."""

import time
from io import StringIO
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
import requests
from rich.console import Console

from local import demo_live
from local.demo_live import Progress, shown
from local.demo_plan import make_plan
from stripe_standin.admin import StandInAdmin

GROUP = "/aws/lambda/onecharge-local"


@pytest.fixture
def stack(aws: None, stripe_base: str) -> Any:
    """A stack whose ledger and log are real; no function runs."""
    logs = boto3.client("logs")
    logs.create_log_group(logGroupName=GROUP)
    logs.create_log_stream(logGroupName=GROUP, logStreamName="s")
    emulator = SimpleNamespace(client=lambda service: logs)
    StandInAdmin(stripe_base).reset()
    return SimpleNamespace(stack_name="onecharge-local", aws=emulator, stripe=StandInAdmin(stripe_base), logs=logs)


def ignored(stack: Any, *names: str) -> None:
    """charge_order logs that it ignored these."""
    now = int(time.time() * 1000)
    events = [
        {"timestamp": now, "message": f'{{"message":"duplicate ignored: ended","id":"{name}"}}'} for name in names
    ]
    stack.logs.put_log_events(logGroupName=GROUP, logStreamName="s", logEvents=events)


def pay(stripe_base: str) -> None:
    """A charge of the order ord_1."""
    paid = {
        **{"amount": "1099", "currency": "eur", "confirm": "true", "payment_method": "pm_card_visa"},
        **{"allowed_payment_method_types[0]": "card", "metadata[order_id]": "ord_1"},
    }
    requests.post(f"{stripe_base}/v1/payment_intents", paid, auth=("sk_test_x", ""), timeout=60).raise_for_status()


def test_each_look_counts_what_is_new(stack: Any, stripe_base: str, aws: None) -> None:
    """Charges by the ledger, of one order twice; each line of the log once, however often it is read."""
    progress = Progress(make_plan(10, 1))
    pay(stripe_base)
    ignored(stack, "m-1", "m-2")
    progress.look(stack)
    progress.look(stack)
    assert (progress.ignored, progress.charged, progress.charged_again, progress.lost) == (2, 1, 0, 0)
    pay(stripe_base)
    ignored(stack, "m-3")
    progress.look(stack)
    assert (progress.ignored, progress.charged, progress.charged_again) == (3, 1, 1)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_a_terminal_is_redrawn(stack: Any, is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere a line says it, without colors or cursor movements, and only when something has changed."""
    monkeypatch.setattr(demo_live, "_EVERY_SECONDS", 0.01)
    monkeypatch.setenv("TERM", "xterm-256color")
    out, progress = StringIO(), Progress(make_plan(10, 1))
    with shown(Console(file=out, force_terminal=is_terminal, width=100), stack, progress):
        progress.placed = 10
    text = out.getvalue()
    assert ("\x1b[" in text) is is_terminal
    assert "orders placed" in text
    if not is_terminal:
        assert text.splitlines()[-1].startswith("orders placed: 10, messages sent: 0, ")
        assert len(set(text.splitlines())) == len(text.splitlines())
