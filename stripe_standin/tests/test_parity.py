"""The parity record, asked of the stand-in: it answers as expected of Stripe."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stripe_standin import parity
from stripe_standin.admin import StandInAdmin
from stripe_standin.faults import Fault
from stripe_standin.server import running_standin


@pytest.fixture(scope="module")
def client() -> Iterator[parity.Parity]:
    with running_standin() as standin:
        # Long enough for the others to meet the first one.
        StandInAdmin(standin.base_url).add_fault(Fault.LATENCY, {"metadata[in_flight]": "yes"}, seconds=0.3)
        yield parity.Parity(standin.base_url, "sk_test_x")


@pytest.mark.parametrize("question", parity.QUESTIONS)
def test_the_stand_in_answers_as_expected(client: parity.Parity, question: str) -> None:
    assert list(client.ask(question)) == []


@pytest.mark.parametrize("api_key", ["sk_live_x", "x"])
def test_a_live_key_is_refused(api_key: str) -> None:
    """Before any request is sent."""
    command, environment = [sys.executable, "-m", "stripe_standin.parity"], {**os.environ, "STRIPE_SECRET_KEY": api_key}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, "no request was sent" in done.stderr) == (1, "", True)
