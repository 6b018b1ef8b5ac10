"""The command and its seed file, as README.md shows them; and the pytest fixture."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import stripe

from stripe_standin.admin import AdminError, StandInAdmin
from stripe_standin.seed import plant
from stripe_standin.tests.standin_account import Account

README = Path(__file__).parents[1] / "README.md"
ROOT = README.parents[1]


def of_readme(language: str, section: str) -> str:
    """The code block of this language in a section of the README."""
    text = README.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.search(rf"(?ms)^```{language}\n(.*?)^```", text)
    assert found is not None
    return found[1]


@pytest.fixture
def seed_file(tmp_path: Path) -> Path:
    # Nothing listens at port 9.
    (file := tmp_path / "seed.json").write_text(of_readme("json", "A seed file").replace(":3000", ":9"))
    return file


def test_the_command_starts_with_the_seed_file_of_the_readme(seed_file: Path) -> None:
    """The address is printed once keys, settings and faults are in force."""
    command = [sys.executable, "-m", "stripe_standin", "--port", "0", "--seed-file", str(seed_file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            base = json.loads(running.stdout.readline())["stripe_api_base"]
            client = stripe.StripeClient("rk_test_worker", base_addresses={"api": base}, max_network_retries=0)
            with pytest.raises(stripe.PermissionError):
                client.v1.refunds.list()
            paid: Any = {"amount": 1099, "currency": "eur", "allowed_payment_method_types": ["card"]}
            with pytest.raises(stripe.RateLimitError):
                client.v1.payment_intents.create(paid)
            client.v1.payment_intents.create(paid)
            [created] = StandInAdmin(base).ledger().payment_intents
            other = stripe.StripeClient("sk_test_other", base_addresses={"api": base}, max_network_retries=0)
            assert [each.id for each in client.v1.payment_intents.list()] == [created["id"]]
            assert other.v1.payment_intents.list().data == []
        finally:
            running.terminate()


@pytest.mark.parametrize("port", ["99999", "taken"])
def test_a_port_that_cannot_be_used_is_one_line(port: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        given = str(taken.getsockname()[1]) if port == "taken" else port
        command = [sys.executable, "-m", "stripe_standin", "--port", given]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"127.0.0.1, port {given}: ")


@pytest.mark.parametrize("wrong", [{"colors": {}}, {"settings": {"color": 1}}, {"faults": [{"kind": "bad_luck"}]}])
def test_a_wrong_seed_file_is_refused(account: Account, tmp_path: Path, wrong: dict[str, Any]) -> None:
    """A typing error does not start a stand-in that behaves otherwise."""
    (file := tmp_path / "seed.json").write_text(json.dumps(wrong))
    with pytest.raises((ValueError, AdminError)):
        plant(account.admin, file)


def test_the_test_of_the_readme_passes(tmp_path: Path) -> None:
    """As a reader copies it, with the fixture; without the idempotency key it fails."""
    test = of_readme("python", "An idempotency test")
    (tmp_path / "conftest.py").write_text("from stripe_standin.pytest_plugin import stripe_standin\n")
    (tmp_path / "test_right.py").write_text(test)
    (tmp_path / "test_wrong.py").write_text(test.replace('{"idempotency_key": "order-1"}', "{}"))
    program = f"import sys, pytest; sys.path.insert(0, {str(ROOT)!r}); sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert "1 failed, 1 passed" in said, said
    assert "FAILED test_wrong.py" in said
