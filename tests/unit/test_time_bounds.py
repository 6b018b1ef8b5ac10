"""The durations fit into each other, here and in template.yaml."""

import re

import pytest

from onecharge.orders.items import RETENTION_SECONDS as ORDER_RETENTION_SECONDS
from onecharge.payments.time_bounds import (
    FUTURE_MAX_SECONDS,
    LOOKUP_AGE_SECONDS,
    RETENTION_SECONDS,
    SEARCH_LAG_SECONDS,
    STRIPE_RETRIES,
    TimeBounds,
)
from onecharge.runtime.aws import BATCH_SIZE
from onecharge.runtime.consumer import BACKOFF_CAP_SECONDS, backoff_seconds
from testing.harness import load_template

TEMPLATE = load_template()
RESOURCES = TEMPLATE["Resources"]
[PROFILES] = TEMPLATE["Mappings"].values()
DAY = 24 * 3600
FUNCTIONS = {
    name: each["Properties"] for name, each in RESOURCES.items() if each["Type"] == "AWS::Serverless::Function"
}
WITH_BOUNDS = {
    name: properties
    for name, properties in FUNCTIONS.items()
    if "FUNCTION_TIMEOUT_SECONDS" in properties.get("Environment", {}).get("Variables", {})
}
TIMEOUTS = sorted({profile["ChargeTimeoutSeconds"] for profile in PROFILES.values()} | {20, 240})


@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_each_bound_fits_into_the_next(timeout: int) -> None:
    """Stripe's tries end before the record, the record before the function, the function before its lease."""
    bounds = TimeBounds.of(timeout)
    one_try = bounds.stripe_connect_timeout_seconds + bounds.stripe_read_timeout_seconds
    assert one_try == pytest.approx(bounds.request_seconds)
    assert one_try >= 2
    assert one_try * (STRIPE_RETRIES + 1) < bounds.record_seconds < bounds.function_timeout_seconds
    assert bounds.function_timeout_seconds < bounds.lease_seconds


@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_a_request_begun_before_the_deadline_is_answered_in_time(timeout: int) -> None:
    """And there is time for one after the first."""
    bounds = TimeBounds.of(timeout)
    assert bounds.deadline(1000) + bounds.request_seconds == pytest.approx(1000 + bounds.record_seconds)
    assert bounds.deadline(1000) - 1000 >= bounds.request_seconds


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_a_message_comes_back_when_the_lease_has_ended(profile: dict[str, int]) -> None:
    """Six times the function's timeout, as AWS advises, and longer than a lease."""
    bounds = TimeBounds.of(profile["ChargeTimeoutSeconds"])
    assert bounds.lease_seconds < profile["PaymentsVisibilityTimeoutSeconds"]
    assert profile["PaymentsVisibilityTimeoutSeconds"] >= 6 * profile["ChargeTimeoutSeconds"]


def test_a_function_too_short_to_wait_for_stripe_is_refused() -> None:
    """At deployment's first invocation, not by charging in the dark."""
    with pytest.raises(ValueError, match="too short"):
        TimeBounds.of(5)


def test_an_order_is_looked_up_before_stripe_forgets_its_keys() -> None:
    """Stripe may forget a key at 24 h. An hour between is for each of two clocks: the order's, and a worker's."""
    longest = max(int(properties.get("Timeout", 0)) for properties in FUNCTIONS.values() if is_number(properties))
    assert LOOKUP_AGE_SECONDS + 2 * 3600 == DAY
    assert longest < 3600


def is_number(properties: dict[str, object]) -> bool:
    return isinstance(properties.get("Timeout"), int)


def test_clocks_may_differ_by_less_than_the_hour_that_is_kept_for_them() -> None:
    """An order from further in the future is poison; search lags by no more than the list goes back."""
    assert 2 * FUTURE_MAX_SECONDS <= DAY - LOOKUP_AGE_SECONDS
    assert SEARCH_LAG_SECONDS <= DAY - LOOKUP_AGE_SECONDS


def test_a_row_outlives_everything_that_can_ask_for_it() -> None:
    """Longer than its order, and than 14 days of a queue and 14 of its DLQ after that."""
    assert RETENTION_SECONDS > ORDER_RETENTION_SECONDS + (14 + 14) * DAY


@pytest.mark.parametrize("queue", ["PaymentsQueue", "RefundsQueue"])
def test_an_outage_of_a_day_sends_no_payable_order_to_the_dlq(queue: str) -> None:
    """Even with the shortest jitter, maxReceiveCount receives last longer than that."""
    receives = RESOURCES[queue]["Properties"]["RedrivePolicy"]["maxReceiveCount"]
    waited = sum(backoff_seconds(count, jitter=0) for count in range(1, receives))
    assert waited > DAY
    assert receives * PROFILES["live"]["PaymentsVisibilityTimeoutSeconds"] > DAY
    assert backoff_seconds(receives, jitter=1) == BACKOFF_CAP_SECONDS


def test_dead_letters_are_kept_as_long_as_sqs_can() -> None:
    """14 days, in every DLQ."""
    dlqs = {name: resource for name, resource in RESOURCES.items() if re.fullmatch(r".*Dlq", name)}
    assert len(dlqs) >= 5
    assert {dlq["Properties"]["MessageRetentionPeriod"] for dlq in dlqs.values()} == {14 * DAY}


def test_one_thread_and_connection_for_each_record_of_a_batch() -> None:
    """The template's batch size is the code's."""
    sources = [event for function in FUNCTIONS.values() for event in function.get("Events", {}).values()]
    queues = [source["Properties"] for source in sources if source["Type"] == "SQS"]
    assert [queue["BatchSize"] for queue in queues] == [BATCH_SIZE] * 3
    assert all(queue["FunctionResponseTypes"] == ["ReportBatchItemFailures"] for queue in queues)


@pytest.mark.parametrize("function", WITH_BOUNDS)
def test_a_function_that_claims_rows_knows_its_timeout(function: str) -> None:
    """The lease that it takes outlives it; and an HTTP API, which waits for 30 s, outlives the one behind it."""
    properties = WITH_BOUNDS[function]
    given = properties["Environment"]["Variables"]["FUNCTION_TIMEOUT_SECONDS"]
    if is_number(properties):
        assert given == str(properties["Timeout"])
        assert TimeBounds.of(properties["Timeout"]).lease_seconds > properties["Timeout"]
    else:
        assert properties["Timeout"].split(", ")[-1] in str(given)
    if any(event["Type"] == "HttpApi" for event in properties.get("Events", {}).values()):
        assert properties["Timeout"] < 30
