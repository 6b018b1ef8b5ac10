"""The demo is a check that can fail: with the protocol broken it exits 1, and names the orders."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from testing.harness import PROJECT

# Without the condition every delivery claims; without the id that is written down, and with a key of its own, every
# delivery creates a PaymentIntent, which charges.
BREAKS = {
    "shared/onecharge/payments/charges/store.py": (
        '_CLAIMABLE = f"{_ROW_IS_NEW} OR {_SAME_ATTEMPT} OR {_LATER_ATTEMPT}"\n',
        '_CLAIMABLE = f"{_ROW_IS_NEW} OR {_SAME_ATTEMPT} OR {_LATER_ATTEMPT} OR attribute_exists(order_id)"\n',
    ),
    "shared/onecharge/payments/charges/worker.py": (
        "        if self.payment.payment_intent_id is None:\n            return self._ensure",
        "        if True:\n            return self._ensure",
    ),
    "shared/onecharge/payments/charges/protocol.py": (
        'return f"order:{self.order_id}:{generation}"',
        'return __import__("uuid").uuid4().hex',
    ),
}


def test_the_demo_notices_double_charges(tmp_path: Path) -> None:
    """It finds them in Stripe's ledger, though the system itself thinks that all is well."""
    project = tmp_path / "project"
    for name in ("functions", "shared"):
        shutil.copytree(PROJECT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("template.yaml", "samconfig.toml"):
        shutil.copy(PROJECT / name, project / name)
    for name, (right, wrong) in BREAKS.items():
        source = (project / name).read_text()
        assert source.count(right) == 1
        (project / name).write_text(source.replace(right, wrong))
    report = tmp_path / "report.json"
    arguments = ["--project", str(project), "--orders", "12", "--seed", "3"]
    arguments += ["--work-dir", str(tmp_path / "work"), "--report", str(report)]
    done = subprocess.run(
        [sys.executable, "-m", "local.demo", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    figures = json.loads(report.read_text())
    named = figures["offenders"]["charged more than once"]
    assert figures["charged_more_than_once"] == len(named) > 0
    assert figures["amount_charged"] > figures["amount_expected"]
    assert all(order_id in done.stdout for order_id in named)
