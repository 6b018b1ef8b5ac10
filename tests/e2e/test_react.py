"""docs/guides/react.md, followed word by word: its commands deploy the subscriber beside the local stack."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.stack import Stack
from onecharge.orders.schema import StoredOrder
from tests.support.deployed_shop import DeployedShop, eventually
from tests.support.harness import PROJECT
from tests.support.stacks import own_stack

COPY, HERE, DEPLOY, LOG = re.findall(r"(?ms)^```sh\n(.*?)^```", (PROJECT / "docs/guides/react.md").read_text())


class Reader:
    """Someone in a terminal, in a checkout where `make local` runs."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.stack_json = self.checkout / ".local/stack.json"
        self.stack_json.parent.mkdir(parents=True)
        self.stack_json.write_text(stack.as_json())
        for name in (".venv", "docs"):
            (self.checkout / name).symlink_to(PROJECT / name)

    def run(self, *commands: str) -> str:
        """Returns what they print; each starts in the checkout, and a failure of one fails the test."""
        script = "set -euo pipefail\n" + "\n".join(commands)
        environment = {**os.environ, "SAM_CLI_TELEMETRY": "0"}
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.checkout, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def reader(stack: Stack, tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(stack, tmp_path)
    reader.run(COPY)
    reader.run(HERE, DEPLOY)
    yield reader
    reader.run(HERE, "sam delete --no-prompts")


@own_stack
@pytest.mark.nightly
def test_the_guide_works_as_it_is_written(reader: Reader, stack: Stack, shop: DeployedShop) -> None:
    """A paid order has two events and is shipped once."""
    paid = shop.placed("pm_card_visa", "PAID")
    table, key = stack.aws.client("dynamodb"), {"order_id": {"S": paid}}
    table.delete_item(TableName=stack.charges_table, Key=key)
    order = StoredOrder.from_item(table.get_item(TableName=stack.orders_table, Key=key)["Item"])
    shop.deliver(order.placed_event().model_dump_json(exclude_none=True))

    def logged() -> list[str]:
        return re.findall(rf'"message": "(\w+)",\s+"order_id": "{paid}"', reader.run(HERE, LOG))

    lines = eventually(logged, lambda lines: lines.count("delivered") >= 2)
    assert sorted(lines) == ["delivered", "delivered", "shipped"]
