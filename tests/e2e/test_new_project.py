"""A shop of one's own, as its owner makes it by the guides: a copy, a product, a field, a subscriber."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from local.stack import Stack
from tests.support.deployed_shop import DeployedShop, eventually
from tests.support.harness import PROJECT

# What the owner writes: the file of the guide's table, where in it, and what is added there.
PRODUCT = [
    ("functions/orders_api/prices.json", "{\n", '  "chair": {"EUR": 8900},\n'),
    (
        "web/words.js",
        "const PRODUCTS = {\n",
        '  chair: { name: "Chair", about: "Oak.", picture: "pictures/parcel.svg" },\n',
    ),
]
NOTE = "    note: str | None = None\n"
FIELD = [
    ("functions/orders_api/place_order.py", r"class OrderRequest.*?max_length=100\)\]\n", NOTE),
    (
        "functions/orders_api/place_order.py",
        r"item = new_order_item\(.*?correlation_id=request.correlation_id,\n",
        "            note=wanted.note,\n",
    ),
    ("shared/onecharge/orders/schema.py", r"class StoredOrder\(.*?placed_at: Timestamp\n", NOTE),
    ("functions/orders_api/responses.py", r"class OrderView\(.*?placed_at: Timestamp\n", NOTE),
    ("functions/orders_api/responses.py", "    some = {\n", '        "note": order.note,\n'),
]
COPY, HERE, DEPLOY, LOG = re.findall(r"(?ms)^```sh\n(.*?)^```", (PROJECT / "docs/guides/react.md").read_text())


def files_in_the_guide(heading: str) -> set[str]:
    """Returns the first column of the table below this heading of extend.md."""
    [section] = re.findall(rf"(?ms)^## {heading}\n(.*?)^## ", (PROJECT / "docs/guides/extend.md").read_text())
    return set(re.findall(r"(?m)^\| `(.+?)` \|", section))


class Owner:
    """Someone in a terminal that has nothing of this checkout's environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {
            name: value for name, value in os.environ.items() if name in ("PATH", "HOME") or name.startswith("PIP_")
        }
        self.environment = {**kept, "PYTHON": sys.executable, "SAM_CLI_TELEMETRY": "0"}

    def run(self, *commands: str, folder: Path | None = None) -> str:
        """Returns what they print; a failure of one fails the test."""
        done = subprocess.run(
            ["bash", "-c", "\n".join(("set -euo pipefail", *commands))],
            cwd=folder or self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout

    def add(self, path: str, behind: str, text: str) -> None:
        source = (self.folder / path).read_text()
        found = re.search(behind, source, re.DOTALL)
        assert found, (path, behind)
        (self.folder / path).write_text(source[: found.end()] + text + source[found.end() :])

    @contextmanager
    def make_local(self) -> Iterator[Stack]:
        """The stack of `make local`, until Ctrl-C, which leaves nothing behind."""
        stack_json = self.folder / ".local/stack.json"
        local = subprocess.Popen(
            ["make", "local"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            eventually(stack_json.exists, lambda there: there or local.poll() is not None)
            stack = Stack(**json.loads(stack_json.read_text()))
            yield stack
        finally:
            os.killpg(local.pid, signal.SIGINT)
            output, _ = local.communicate(timeout=240)
        assert stack.page_url in output
        assert "\x1b[" not in output
        assert output.endswith("stopped\n")
        left = {path.name for path in stack_json.parent.iterdir()}
        assert left.isdisjoint({"stack.json", "tmp", "issuer-key.pem"})
        assert processes_below(self.folder) == []


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


@pytest.mark.nightly
def test_an_owner_extends_a_copy(tmp_path: Path) -> None:
    """The files that extend.md names are enough for a product and a field, and its gate passes. `make local`
    sells the product; react.md, followed word by word, ships an order once, whatever its events."""
    owner = Owner(tmp_path / "my shop")
    owner.run(f'make new DIR="{owner.folder}" NAME=corner-shop', folder=PROJECT)
    for path, behind, text in PRODUCT + FIELD:
        owner.add(path, behind, text)
    assert PRODUCT[0][0] in files_in_the_guide("A price")
    generated, unchanged = "docs/openapi.json", "tests/unit/orders_api/test_fingerprints.py"
    assert {path for path, *_ in FIELD} | {generated, unchanged} == files_in_the_guide("A field of the order")
    owner.run("make openapi")
    assert '"note"' in (owner.folder / generated).read_text()
    owner.run("make check")
    owner.run(COPY)
    with owner.make_local() as stack:
        owner.run(HERE, DEPLOY)
        assert "Chair" in requests.get(f"{stack.page_url}words.js", timeout=60).text
        assert requests.get(f"{stack.page_url}prices.json", timeout=60).json()["chair"] == {"EUR": 8900}
        assert "console" not in requests.get(f"{stack.page_url}config.json", timeout=60).json()
        shop = DeployedShop(stack)
        chair = {"items": [{"sku": "chair", "quantity": 1}], "currency": "EUR", "note": "for Zoë"}
        placed = eventually(lambda: shop.order("k", **chair), lambda answer: answer.ok)  # A busy machine answers 503.
        order_id = placed.json()["order_id"]
        assert shop.decided_status(order_id) == "PAID"
        assert shop.get(order_id).json()["note"] == "for Zoë"
        assert [charge.amount_minor for charge in shop.charges(order_id)] == [8900]
        assert shop.refund(order_id, amount=100).ok  # The second event.

        def logged() -> list[str]:
            return re.findall(
                rf'"message": "(\w+)",\s+"order_id": "{order_id}"', owner.run(HERE, f"{LOG.rstrip()} || true")
            )

        lines = eventually(logged, lambda lines: lines.count("delivered") >= 2)
        assert (lines.count("delivered") >= 2, lines.count("shipped")) == (True, 1)
        owner.run(HERE, "sam delete --no-prompts")
