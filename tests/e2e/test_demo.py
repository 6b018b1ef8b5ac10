"""The demo is a check that can fail: with the protocol broken its exit status is 1, and it names the orders."""

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from rich.console import Console

from local import demo
from local.demo_plan import Plan, make_plan
from local.deployment import Sam
from tests.support.broken_protocol import BREAKS, PAYMENTS

ORDERS = 4


def a_plan_of_duplicates_alone(orders: int, seed: int) -> Plan:
    """The demo's plan, reduced to a few orders that pay and are delivered more than once; no fault, nothing invalid."""
    plan = make_plan(orders, seed)
    paid = [order for order in plan.orders if order.pays and not (order.fault or order.follow_up)]
    duplicated = [order for order in paid if order.extra_deliveries]
    return replace(plan, orders=tuple(duplicated[:ORDERS]), poison=(), malformed=())


def build_broken(sam: Sam, build: Callable[[Sam], Path] = Sam.build) -> Path:
    """`sam build`, and then the layer's files are replaced by broken ones; the originals may be hard links.

    Python would take the .pyc of the original without a look at the source.
    """
    template = build(sam)
    charges = sam.build_dir / "SharedLayer/python" / PAYMENTS
    for name, right, wrong in BREAKS:
        source = (charges / name).read_text()
        assert source.count(right) == 1
        (charges / name).unlink()
        Path(cache_from_source(charges / name)).unlink(missing_ok=True)  # A file may be broken in two places.
        (charges / name).write_text(source.replace(right, wrong))
    return template


@pytest.mark.nightly  # `make demo` follows the tests: two stacks for one demo are too many.
def test_the_demo_notices_double_charges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It finds them in Stripe's ledger, though every order shows PAID."""
    monkeypatch.setattr(demo, "make_plan", a_plan_of_duplicates_alone)
    monkeypatch.setattr(Sam, "build", build_broken)
    report = tmp_path / "report.json"
    arguments = ["--orders", "20", "--seed", "3", "--work-dir", str(tmp_path / "work"), "--report", str(report)]
    assert demo.demonstrate(demo.parse(arguments), Console()) == 1
    figures = json.loads(report.read_text())
    named = figures["offenders"]["charged more than once"]
    assert figures["orders"] == ORDERS
    assert figures["charged_more_than_once"] == len(named) > 0
    assert figures["amount_charged"] > figures["amount_expected"]
    output = capsys.readouterr().out
    assert all(order_id in output for order_id in named)
