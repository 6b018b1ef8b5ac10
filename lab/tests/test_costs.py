"""`make costs`: the bill follows from what was measured, from template.yaml and from list prices."""

import pytest

from lab.costs.__main__ import report
from lab.costs.bill import (
    AT_ITS_CHEAPEST,
    BUSY,
    LOW_TRAFFIC,
    VCPU_MB,
    Settings,
    bill,
    billed_ms,
    deployed,
    each_month,
    total,
)
from lab.speed.results import NAIVE, OURS, RESULTS, Invocation, Run
from tests.support.harness import PROJECT, load_template

MEASURED = Run.of_json(RESULTS.read_text())


def test_every_table_and_index_that_was_counted_is_deployed() -> None:
    """And each index of the orders and payments was written to. If not: `make bench WRITE=1`."""
    declared = {
        f"{table}{index and f'/{index}'}"
        for table, each in load_template()["Resources"].items()
        if each["Type"] == "AWS::DynamoDB::Table"
        for index in ["", *(index["IndexName"] for index in each["Properties"].get("GlobalSecondaryIndexes", []))]
    }
    written = {name.split()[1] for step in MEASURED.ways[OURS][str(BUSY)] for name in step.units}
    assert written <= declared
    assert {name for name in declared if name.startswith(("OrdersTable", "PaymentsTable"))} <= written


def test_an_order_is_placed_published_charged_published_and_paid() -> None:
    """In one write each where it is placed and paid; tests/unit/test_charge_order.py counts the three of the charge."""
    steps = MEASURED.ways[OURS][str(LOW_TRAFFIC)]
    assert [(step.function, dict(step.calls)) for step in steps] == [
        ("orders_api", {"dynamodb.PutItem": 1}),
        ("publish_events", {"sns.PublishBatch": 1}),
        ("charge_order", {"dynamodb.UpdateItem": 3}),
        ("publish_events", {"sns.PublishBatch": 1}),
        ("update_order", {"dynamodb.UpdateItem": 1}),
    ]


def test_less_memory_buys_less_cpu() -> None:
    """A quarter of a vCPU computes four times as long and waits as long; a second vCPU helps no thread of Python's."""
    step = Invocation("charge_order", wall_ms=110, cpu_ms=10, log_bytes=0, calls={}, units={})
    assert billed_ms(step, VCPU_MB) == 110
    assert billed_ms(step, 2 * VCPU_MB) == 110
    assert billed_ms(step, VCPU_MB // 4) == pytest.approx(140, rel=0.01)


def test_a_bill_worked_by_hand() -> None:
    """1,024 MB for a second, for ten orders: a tenth of a GB-second for each, at 0.0000133334 dollars."""
    calls, units = {"sns.PublishBatch": 1.0}, {"write A": 20.0, "write A/index": 10.0, "read A": 10.0}
    wall_ms, cpu_ms = 1000 - 10 * (VCPU_MB / 1024 - 1), 10
    step = Invocation("charge_order", wall_ms=wall_ms, cpu_ms=cpu_ms, log_bytes=5000, calls=calls, units=units)
    settings = Settings("HTTP API", "arm64", {"": 1024}, logs_invocations=False, logs_access=False, is_traced=False)
    assert {line.service: pytest.approx(line.dollars) for line in bill([step], 10, settings)} == {
        "API Gateway": 1.00,
        "Lambda, requests": 0.1 * 0.20,
        "Lambda, GB-seconds": 0.1 * 13.3334,
        "DynamoDB, writes": 3 * 0.625,
        "DynamoDB, reads": 0.125,
        "SNS": 0.1 * 0.50,
        "SQS": 2 * 0.1 * 0.40,
        "CloudWatch Logs": 0.5 * 0.50,
    }


def test_the_guide_names_what_a_stack_costs_a_month() -> None:
    """docs/guides/deploy.md rounds it to 5 dollars."""
    dollars = sum(dollars for _, dollars, _ in each_month())
    assert f"costs about {5 * round(dollars / 5)} USD a month" in (PROJECT / "docs/guides/deploy.md").read_text()


def test_the_report_compares_with_the_naive_loop_at_its_cheapest_too() -> None:
    """Where ours costs more, it is said."""
    ours = total(bill(MEASURED.ways[OURS][str(BUSY)], BUSY, deployed()))
    cheapest = total(bill(MEASURED.ways[NAIVE][str(BUSY)], BUSY, AT_ITS_CHEAPEST))
    assert f"onecharge is {ours / cheapest:.2f} of {cheapest:.2f}: the naive loop at its cheapest" in "\n".join(
        report(MEASURED)
    )
