"""Timeouts, leases, backoff and retention are consistent, in the code and in template.yaml."""

import re

import pytest

from onecharge.orders.schema import REFUNDABLE_SECONDS
from onecharge.orders.schema import RETENTION_SECONDS as ORDER_RETENTION_SECONDS
from onecharge.payments.charge_rules import CREATE_SECONDS
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS, RETENTION_SECONDS, STRIPE_RETRIES, TimeBounds
from onecharge.runtime.aws import BATCH_SIZE
from onecharge.runtime.consumer import BACKOFF_CAP_SECONDS, backoff_seconds
from tests.support.harness import load_template

TEMPLATE = load_template()
RESOURCES = TEMPLATE["Resources"]
PROFILES = TEMPLATE["Mappings"]["Profile"]
DAY = 24 * 3600
FUNCTIONS = {
    name: each["Properties"] for name, each in RESOURCES.items() if each["Type"] == "AWS::Serverless::Function"
}
WITH_LEASES = {
    name: properties
    for name, properties in FUNCTIONS.items()
    if "FUNCTION_TIMEOUT_SECONDS" in properties.get("Environment", {}).get("Variables", {})
}
TIMEOUTS = sorted({profile["ChargeTimeoutSeconds"] for profile in PROFILES.values()} | {20, 240})


@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_each_bound_is_shorter_than_the_next(timeout: int) -> None:
    """Stripe's retries end before the record, the record before the function, the function before its lease."""
    bounds = TimeBounds.of(timeout)
    attempt_seconds = bounds.stripe_connect_timeout_seconds + bounds.stripe_read_timeout_seconds
    assert attempt_seconds == pytest.approx(bounds.request_seconds)
    assert attempt_seconds >= 2
    assert attempt_seconds * (STRIPE_RETRIES + 1) < bounds.record_seconds < bounds.function_timeout_seconds
    assert bounds.function_timeout_seconds < bounds.lease_seconds


@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_a_request_before_the_deadline_ends_in_time(timeout: int) -> None:
    """And there is time for a second one."""
    bounds = TimeBounds.of(timeout)
    assert bounds.deadline(1000) + bounds.request_seconds == pytest.approx(1000 + bounds.record_seconds)
    assert bounds.deadline(1000) - 1000 >= bounds.request_seconds


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_the_visibility_timeout_is_longer_than_the_lease(profile: dict[str, int]) -> None:
    """And at least six times the function timeout, as AWS advises."""
    bounds = TimeBounds.of(profile["ChargeTimeoutSeconds"])
    assert bounds.lease_seconds < profile["PaymentsVisibilityTimeoutSeconds"]
    assert profile["PaymentsVisibilityTimeoutSeconds"] >= 6 * profile["ChargeTimeoutSeconds"]


def test_a_function_timeout_that_is_too_short_is_refused() -> None:
    """At the first invocation: too short to wait for Stripe's response."""
    with pytest.raises(ValueError, match="too short"):
        TimeBounds.of(5)


def is_number(properties: dict[str, object]) -> bool:
    return isinstance(properties.get("Timeout"), int)


def test_a_payment_intent_is_created_before_stripe_deletes_its_keys() -> None:
    """Stripe may delete a key after 24 h. Two clocks may be wrong by as much as an order may be from the future."""
    assert CREATE_SECONDS + 2 * FUTURE_MAX_SECONDS <= DAY


def test_an_order_outlives_its_payment_row_and_its_messages() -> None:
    """By 14 days in a queue and 14 days in its DLQ: as long as a payment answers, its order refuses another cart."""
    assert ORDER_RETENTION_SECONDS > RETENTION_SECONDS + (14 + 14) * DAY


def test_a_refund_is_refused_before_its_payment_expires() -> None:
    """Ten days are left to make a refund that was accepted last."""
    assert REFUNDABLE_SECONDS == RETENTION_SECONDS - 75 * DAY


@pytest.mark.parametrize(
    "queue",
    [
        "PaymentsQueue",
        "RefundsQueue",
    ],
)
def test_an_outage_of_a_day_moves_no_message_to_the_dlq(queue: str) -> None:
    """Even without jitter, backoff over maxReceiveCount receives takes longer than a day."""
    receives = RESOURCES[queue]["Properties"]["RedrivePolicy"]["maxReceiveCount"]
    waited = sum(backoff_seconds(count, jitter=0) for count in range(1, receives))
    assert waited > DAY
    assert receives * PROFILES["live"]["PaymentsVisibilityTimeoutSeconds"] > DAY
    assert backoff_seconds(receives, jitter=1) == BACKOFF_CAP_SECONDS


def test_a_run_of_reconcile_ends_before_the_next_begins() -> None:
    """Two runs in parallel would do no harm, but one of them would be of no use."""
    properties = load_template()["Resources"]["ReconcileFunction"]["Properties"]
    assert properties["Events"]["EveryFiveMinutes"]["Properties"]["ScheduleExpression"] == "rate(5 minutes)"
    assert properties["Timeout"] < 300


def test_dlqs_have_the_longest_retention() -> None:
    """14 days, SQS's maximum, for every DLQ."""
    dlqs = {name: resource for name, resource in RESOURCES.items() if re.fullmatch(r".*Dlq", name)}
    assert {"PaymentsDlq", "OrderUpdatesDlq", "SubscriptionsDlq"} <= dlqs.keys()
    assert {dlq["Properties"]["MessageRetentionPeriod"] for dlq in dlqs.values()} == {14 * DAY}


def test_the_batch_size_is_the_number_of_threads() -> None:
    """Each record of a batch has a thread and a connection; each queue reports partial batch responses."""
    sources = [event for function in FUNCTIONS.values() for event in function.get("Events", {}).values()]
    queues = [source["Properties"] for source in sources if source["Type"] == "SQS"]
    assert {queue["BatchSize"] for queue in queues} == {BATCH_SIZE}
    assert all(queue["FunctionResponseTypes"] == ["ReportBatchItemFailures"] for queue in queues)


@pytest.mark.parametrize("function", WITH_LEASES)
def test_a_function_that_takes_leases_knows_its_timeout(function: str) -> None:
    """Its leases are longer than its timeout; behind an HTTP API the timeout is below the API's 30 s."""
    properties = WITH_LEASES[function]
    variable = properties["Environment"]["Variables"]["FUNCTION_TIMEOUT_SECONDS"]
    if is_number(properties):
        assert variable == str(properties["Timeout"])
        assert TimeBounds.of(properties["Timeout"]).lease_seconds > properties["Timeout"]
    else:
        assert properties["Timeout"].split(", ")[-1] in str(variable)
    if any(event["Type"] == "HttpApi" for event in properties.get("Events", {}).values()):
        assert properties["Timeout"] < 30
