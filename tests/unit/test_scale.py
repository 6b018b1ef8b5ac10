"""docs/scale.md says what limits, as it is computed from what was measured, from template.yaml and from quotas."""

import re
from dataclasses import replace

import pytest

from benchmarks.costs.bill import BUSY, deployed, measured
from benchmarks.scale import DOCUMENT, RATES, Part, _factor, _rounded, durations, parts, with_tables
from testing.harness import PROJECT

MEASURED = measured()


def test_the_document_is_current() -> None:
    """If not: `make scale WRITE=1`, after `make costs MEASURE=1` if the code has become faster or slower."""
    text = DOCUMENT.read_text()
    assert with_tables(text, MEASURED) == text


def found() -> dict[str, Part]:
    return {part.name: part for part in parts(MEASURED, deployed(BUSY))}


def test_stripe_limits_first() -> None:
    """No part of ours stops before Stripe does."""
    first, *_ = parts(MEASURED, deployed(BUSY))
    assert first.name == "Stripe, an endpoint"


def test_less_memory_charges_fewer_orders_a_second() -> None:
    slow = replace(deployed(BUSY), charge_memory_mb=128)
    assert durations(MEASURED, slow)["charge_order"] > durations(MEASURED, deployed(BUSY))["charge_order"]
    [charging] = [part for part in parts(MEASURED, slow) if part.name == "charge_order at once"]
    assert charging.orders_a_second < found()["charge_order at once"].orders_a_second


def test_an_order_that_writes_more_has_lower_limits() -> None:
    """Worked by hand: 6 units of 1,000, and of 40,000."""
    size = str(BUSY)
    more = replace(MEASURED, units={size: {**MEASURED.units[size], "write PaymentsTable": 6.0}})
    by_name = {part.name: part.orders_a_second for part in parts(more, deployed(BUSY))}
    assert by_name["the tables' fuse"] == pytest.approx(1000 / 6)
    assert by_name["DynamoDB, a table or index"] == pytest.approx(40_000 / 6)
    assert by_name["the tables' fuse"] < found()["the tables' fuse"].orders_a_second


def test_a_limit_that_is_too_low_says_by_how_much() -> None:
    assert [_factor(rate, 25) for rate in RATES] == ["✓", "x 40", "x 4,000"]
    assert (_factor(25, 25), _factor(38, 25)) == ("✓", "x 1.5")
    assert [_rounded(number) for number in (0.4, 9.6, 123, 12_345)] == [1, 10, 120, 12_000]


def test_every_test_that_the_document_names_is_there() -> None:
    """What shows that nothing is lost when the fuse blows."""
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT.read_text()))
    tests = "\n".join(path.read_text() for path in (PROJECT / "tests").rglob("test_*.py"))
    assert named
    assert [name for name in named if f"def {name}(" not in tests] == []
