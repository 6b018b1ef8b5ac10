"""Concurrent deliveries from several processes, over HTTP to the emulator and to the Stripe stand-in."""

import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from stripe_standin.admin import StandInAdmin
from stripe_standin.server import running_standin
from tests.contract.conftest import Endpoint
from tests.support.harness import PROJECT, create_table

PROCESSES = 4


@pytest.mark.parametrize(("orders", "deliveries_of_each"), [(1, 400), (50, 8)])
def test_concurrent_deliveries_make_one_charge_for_each_order(
    endpoint: Endpoint, orders: int, deliveries_of_each: int
) -> None:
    """Many of one order, or some of each of many orders. Every delivery is done in the end."""
    table = create_table(endpoint.client(), f"deliveries-{uuid4()}", "PaymentsTable")
    with running_standin() as standin:
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.support.deliverers", table, standin.base_url),
                    *(str(orders), str(deliveries_of_each // PROCESSES), placed_at),
                ],
                env={**endpoint.environment, "PYTHONPATH": f"{PROJECT / 'functions'}:{PROJECT / 'shared'}"},
                cwd=PROJECT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for placed_at in [datetime.now(UTC).isoformat()] * PROCESSES
        ]
        outputs = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
        charges = StandInAdmin(standin.base_url).ledger().charges
    assert all(output["done"] == output["of"] for output in outputs)
    assert Counter(charge.order_id for charge in charges) == {f"ord_{number:032x}": 1 for number in range(orders)}
    assert {charge.amount_minor for charge in charges} == {1000 + number for number in range(orders)}
