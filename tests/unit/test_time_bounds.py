"""Timeouts, leases, backoff and retention are consistent, in the code and in template.yaml."""

import pytest

from onecharge.payments.time_bounds import STRIPE_RETRIES, TimeBounds
from onecharge.runtime.aws import BATCH_SIZE
from onecharge.runtime.consumer import BACKOFF_CAP_SECONDS, backoff_seconds
from tests.shop.builders import DAY
from tests.support.harness import load_template

TEMPLATE = load_template()
RESOURCES = TEMPLATE["Resources"]
PROFILES = TEMPLATE["Mappings"]["Profile"]
FUNCTIONS = {
    name: each["Properties"] for name, each in RESOURCES.items() if each["Type"] == "AWS::Serverless::Function"
}
WITH_LEASES = {
    name: properties
    for name, properties in FUNCTIONS.items()
    if "FUNCTION_TIMEOUT_SECONDS" in properties.get("Environment", {}).get("Variables", {})
}


@pytest.mark.parametrize("timeout", sorted({each["ChargeTimeoutSeconds"] for each in PROFILES.values()} | {20, 240}))
def test_each_bound_is_shorter_than_the_next(timeout: int) -> None:
    """Stripe's retries end before the record, the record before the function, the function before its lease. A request
    before the deadline ends in time, and there is time for a second one."""
    bounds = TimeBounds(timeout)
    assert sum(bounds.stripe_timeouts) == pytest.approx(bounds.request_seconds)
    assert bounds.request_seconds * (STRIPE_RETRIES + 1) < bounds.record_seconds < timeout < bounds.lease_seconds
    assert bounds.deadline(1000) + bounds.request_seconds == pytest.approx(1000 + bounds.record_seconds)
    assert bounds.deadline(1000) - 1000 >= bounds.request_seconds >= 2


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_the_visibility_timeout_is_longer_than_the_lease(profile: dict[str, int]) -> None:
    """And at least six times the function timeout, as AWS advises."""
    timeout, visible_seconds = profile["ChargeTimeoutSeconds"], profile["PaymentsVisibilityTimeoutSeconds"]
    assert visible_seconds >= 6 * timeout > TimeBounds(timeout).lease_seconds


@pytest.mark.parametrize("queue", ["PaymentsQueue", "RefundsQueue"])
def test_an_outage_of_a_day_moves_no_message_to_the_dlq(queue: str) -> None:
    """Even without jitter, backoff over maxReceiveCount receives takes longer than a day."""
    receives = RESOURCES[queue]["Properties"]["RedrivePolicy"]["maxReceiveCount"]
    assert sum(backoff_seconds(count, jitter=0) for count in range(1, receives)) > DAY
    assert receives * PROFILES["live"]["PaymentsVisibilityTimeoutSeconds"] > DAY
    assert backoff_seconds(receives, jitter=1) == BACKOFF_CAP_SECONDS


def test_the_batch_size_is_the_number_of_threads() -> None:
    """Each record of a batch has a thread and a connection; each queue reports partial batch responses."""
    sources = [event for function in FUNCTIONS.values() for event in function.get("Events", {}).values()]
    queues = [source["Properties"] for source in sources if source["Type"] == "SQS"]
    assert {queue["BatchSize"] for queue in queues} == {BATCH_SIZE}
    assert all(queue["FunctionResponseTypes"] == ["ReportBatchItemFailures"] for queue in queues)


@pytest.mark.parametrize("properties", WITH_LEASES.values(), ids=WITH_LEASES.keys())
def test_a_function_knows_its_timeout(properties: dict[str, object]) -> None:
    """Behind an HTTP API it is below the API's 30 s."""
    timeout, events = properties["Timeout"], properties.get("Events", {})
    variable = str(properties["Environment"]["Variables"]["FUNCTION_TIMEOUT_SECONDS"])  # type: ignore[index]
    assert variable == str(timeout) or str(timeout).rpartition(", ")[2] in variable
    if any(event["Type"] == "HttpApi" for event in events.values()):  # type: ignore[attr-defined]
        assert int(variable) < 30
