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


@pytest.mark.parametrize("name", parity.TABLE)
def test_the_stand_in_answers_as_expected(client: parity.Parity, name: str) -> None:
    assert parity.ask(client, name) == parity.TABLE[name]["expected"]


def test_another_answer_is_known_or_new() -> None:
    """What is known of Stripe is no finding; each known answer differs from the expected one."""
    known = {name: row["known"] for name, row in parity.TABLE.items() if "known" in row}
    assert {parity.verdict(*each) for each in known.items()} == {"as known"}
    assert {parity.verdict(name, "else") for name in parity.TABLE} == {"new"}


@pytest.mark.parametrize("api_key", ["sk_live_x", "rk_live_x", "x"])
def test_a_live_key_is_refused(api_key: str) -> None:
    """Before any request is sent."""
    environment = {**os.environ, "STRIPE_SECRET_KEY": api_key}
    command = [sys.executable, "-m", "stripe_standin.parity"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no request was sent" in done.stderr
