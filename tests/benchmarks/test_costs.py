"""`make costs`: the bill follows from what was measured, from template.yaml and from list prices."""

import re
from dataclasses import replace

import pytest

from benchmarks.costs import COMPOSITE_ALARMS, METRIC_ALARMS, dollars_per_million
from benchmarks.costs.__main__ import report, verdict
from benchmarks.costs.aws import units_of
from benchmarks.costs.bill import (
    BUSY,
    LOW_TRAFFIC,
    VCPU_MB,
    NaiveDesign,
    deployed,
    levers,
    measured,
    milliseconds,
    naive_loop,
    onecharge,
    provisioned_million_writes,
    total,
    write_floor,
)
from benchmarks.costs.quantities import Measured, PerInvocation
from testing.harness import load_template

MEASURED = measured()


def test_what_was_measured_is_what_is_deployed() -> None:
    """Every table and index that an order's writes were counted for is one of template.yaml, and each index of the two
    tables was written to. If not: `make costs MEASURE=1`, then `make scale WRITE=1`."""
    resources = load_template()["Resources"]
    declared = {
        f"{table}{index and f'/{index}'}"
        for table, each in resources.items()
        if each["Type"] == "AWS::DynamoDB::Table"
        for index in ["", *(index["IndexName"] for index in each["Properties"].get("GlobalSecondaryIndexes", []))]
    }
    written = set(MEASURED.writes(BUSY))
    assert written <= declared
    assert {name for name in declared if name.startswith(("OrdersTable", "PaymentsTable"))} <= written


def test_the_naive_loop_is_measured_in_the_same_way() -> None:
    """A get and two puts, of one table."""
    for batch in (BUSY, LOW_TRAFFIC):
        assert MEASURED.naive_units[str(batch)] == {"read NaiveTable": 1, "write NaiveTable": 2, "requests": 3}
    assert MEASURED.functions["charge_orders"]["10"].wall_ms > 10 * MEASURED.stripe_seconds * 1000
    assert MEASURED.functions["charge_order"]["10"].wall_ms < 4 * MEASURED.stripe_seconds * 1000


def test_both_designs_have_a_bill() -> None:
    assert dollars_per_million() == {
        "naive": total(naive_loop(NaiveDesign(BUSY), MEASURED)),
        "onecharge": total(onecharge(deployed(BUSY), MEASURED)),
    }


def test_less_memory_buys_less_cpu() -> None:
    """A quarter of a vCPU takes four times as long to compute, and waits as long; more than one vCPU helps no thread
    of Python's."""
    invocation = PerInvocation(cpu_ms=10, wall_ms=0, log_bytes=0)
    assert milliseconds(invocation, waits_ms=100, memory_mb=VCPU_MB) == 110
    assert milliseconds(invocation, waits_ms=100, memory_mb=2 * VCPU_MB) == 110
    assert milliseconds(invocation, waits_ms=100, memory_mb=VCPU_MB // 4) == pytest.approx(140, rel=0.01)


def test_a_million_orders_of_one_gb_second_each_cost_its_price() -> None:
    """Worked by hand: one function that computes for a second with 1,024 MB, at 0.0000133334 dollars."""
    nothing = PerInvocation(cpu_ms=0, wall_ms=0, log_bytes=0)
    second = PerInvocation(cpu_ms=1000 * 1024 / VCPU_MB, wall_ms=0, log_bytes=0)
    functions = {"orders_api": second, "publish_events": nothing, "charge_order": nothing, "update_order": nothing}
    of = Measured("here", 0, {name: {"1": each} for name, each in functions.items()}, {"1": {"write A": 2}}, {})
    design = replace(deployed(LOW_TRAFFIC), memory_mb=1024, charge_memory_mb=1024, architecture="arm64")
    lines = {line.service: line.dollars for line in onecharge(design, of)}
    waits = (4 + 2 * 10 + 3 * 4 + 4) / 1000  # orders_api, publish_events twice, charge_order, update_order
    assert lines["Lambda, GB-seconds"] == pytest.approx(13.3334 * (1 + waits))
    assert lines["Lambda, requests"] == pytest.approx(5 * 0.20)
    assert lines["DynamoDB, writes"] == pytest.approx(2 * 0.625)


@pytest.mark.parametrize("batch", [BUSY, LOW_TRAFFIC])
def test_a_lever_saves_what_it_is_said_to(batch: int) -> None:
    """Those that are taken, and those that are not, each with its reason."""
    for lever in levers(batch):
        assert lever.gives(MEASURED) > 0, lever.name
        assert (lever.with_it == deployed(batch)) == (not lever.why_not), lever.name


def test_the_writes_alone_cost_more_than_half_of_the_naive_loop() -> None:
    """Worked by hand: 3 writes of the payment, 2 of the order and 5 of indexes are 6.25 dollars, at 0.625 a million. So
    half of the naive loop is not reached on demand, whatever else is saved. Provisioned, 70 % used, they are 2.58."""
    assert [units for _, units in write_floor(MEASURED)] == [3, 2, 2, 2, 1]
    assert dollars_per_million()["naive"] * 0.5 < 10 * 0.625
    assert 10 * provisioned_million_writes() == pytest.approx(2.58, abs=0.005)
    text = "\n".join(report(MEASURED))
    assert re.search(r"10 units +6\.25   together; 6\.\d\d is to be reached\n +2\.58   together, provisioned", text)


def test_the_alarms_are_counted() -> None:
    """The bill says what they cost a month."""
    resources = [*load_template()["Resources"].values(), *load_template("monitoring.yaml")["Resources"].values()]
    types = [each["Type"] for each in resources]
    counted = tuple(types.count(f"AWS::CloudWatch::{kind}") for kind in ("Alarm", "CompositeAlarm"))
    assert counted == (METRIC_ALARMS, COMPOSITE_ALARMS)


def test_the_report_says_whether_the_target_is_reached() -> None:
    assert "0.50 of it: reached" in verdict(1, 2)
    assert "0.51 of it: not reached" in verdict(1.02, 2)
    text = "\n".join(report(MEASURED))
    ours, naive = dollars_per_million()["onecharge"], dollars_per_million()["naive"]
    assert f"onecharge {ours:.2f}, the naive loop {naive:.2f}: {verdict(ours, naive)}" in text


def test_capacity_units_are_counted_by_table_and_index() -> None:
    consumed = {
        "TableName": "Orders",
        "CapacityUnits": 3.0,
        "Table": {"CapacityUnits": 1.0},
        "GlobalSecondaryIndexes": {"by_status": {"CapacityUnits": 2.0}},
    }
    assert units_of("UpdateItem", {"ConsumedCapacity": consumed}) == {
        "write Orders": 1.0,
        "write Orders/by_status": 2.0,
    }
    assert units_of("GetItem", {"ConsumedCapacity": {"TableName": "Orders", "Table": {"CapacityUnits": 0.5}}}) == {
        "read Orders": 0.5
    }
    of_several = [{"TableName": name, "Table": {"CapacityUnits": 2.0}} for name in ("Orders", "Refunds")]
    assert units_of("BatchGetItem", {"ConsumedCapacity": of_several}) == {"read Orders": 2.0, "read Refunds": 2.0}
    assert units_of("TransactWriteItems", {"ConsumedCapacity": of_several}) == {
        "write Orders": 2.0,
        "write Refunds": 2.0,
    }
    assert units_of("PutItem", {"__type": "ConditionalCheckFailedException"}) == {}
