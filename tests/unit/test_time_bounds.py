"""The durations fit into each other, here and in template.yaml."""

import pytest

from onecharge.aws import BATCH_SIZE
from onecharge.deliveries import BACKOFF_CAP_SECONDS, backoff_seconds
from onecharge.payments.time_bounds import (
    ABSENCE_GRACE_SECONDS,
    KEY_HORIZON_SECONDS,
    RETENTION_SECONDS,
    STRIPE_RETRIES,
    TimeBounds,
)
from tests.conftest import load_template

TEMPLATE = load_template()
RESOURCES = TEMPLATE["Resources"]
PACES = TEMPLATE["Mappings"]["Pace"]
DAY = 24 * 3600


@pytest.mark.parametrize("pace", PACES.values(), ids=PACES.keys())
def test_each_bound_fits_into_the_next(pace: dict[str, int]) -> None:
    """Stripe's tries end before the function, the function before its lease, the lease before the message is back."""
    bounds = TimeBounds.of(pace["ChargeTimeoutSeconds"])
    one_try = bounds.stripe_connect_timeout_seconds + bounds.stripe_read_timeout_seconds
    assert one_try >= 2
    assert one_try * (STRIPE_RETRIES + 1) < bounds.record_seconds < bounds.function_timeout_seconds
    assert bounds.function_timeout_seconds < bounds.lease_seconds
    assert bounds.lease_seconds < pace["PaymentsVisibilityTimeoutSeconds"]
    assert pace["PaymentsVisibilityTimeoutSeconds"] >= 6 * pace["ChargeTimeoutSeconds"]


def test_a_function_too_short_to_wait_for_stripe_is_refused() -> None:
    """At deployment's first invocation, not by charging in the dark."""
    with pytest.raises(ValueError, match="too short"):
        TimeBounds.of(5)


def test_the_key_is_given_up_before_stripe_forgets_it() -> None:
    """Stripe may prune a key at 24 h."""
    assert KEY_HORIZON_SECONDS + ABSENCE_GRACE_SECONDS < DAY


def test_a_row_outlives_every_message_about_it() -> None:
    """23 days of SNS's retries, 14 days of the queue, 14 days of its DLQ."""
    assert RETENTION_SECONDS > (23 + 14 + 14) * DAY


@pytest.mark.parametrize("queue", ["PaymentsQueue", "RefundsQueue"])
def test_an_outage_of_a_day_sends_no_payable_order_to_the_dlq(queue: str) -> None:
    """Even with the shortest jitter, maxReceiveCount receives last longer than that."""
    receives = RESOURCES[queue]["Properties"]["RedrivePolicy"]["maxReceiveCount"]
    waited = sum(backoff_seconds(count, jitter=0) for count in range(1, receives))
    assert waited > DAY
    assert receives * PACES["live"]["PaymentsVisibilityTimeoutSeconds"] > DAY
    assert backoff_seconds(receives, jitter=1) == BACKOFF_CAP_SECONDS


def test_dead_letters_are_kept_as_long_as_sqs_can() -> None:
    """14 days, in every DLQ."""
    dlqs = {name: resource for name, resource in RESOURCES.items() if name.endswith("Dlq")}
    assert len(dlqs) == 5
    assert {dlq["Properties"]["MessageRetentionPeriod"] for dlq in dlqs.values()} == {14 * DAY}


def test_one_thread_and_connection_for_each_record_of_a_batch() -> None:
    """The template's batch size is the code's."""
    functions = [resource for resource in RESOURCES.values() if resource["Type"] == "AWS::Serverless::Function"]
    sources = [event for function in functions for event in function["Properties"].get("Events", {}).values()]
    queues = [source["Properties"] for source in sources if source["Type"] == "SQS"]
    assert [queue["BatchSize"] for queue in queues] == [BATCH_SIZE] * 3
    assert all(queue["FunctionResponseTypes"] == ["ReportBatchItemFailures"] for queue in queues)


@pytest.mark.parametrize("function", ["ReceiveStripeEventFunction", "ReconcileChargesFunction"])
def test_a_function_that_takes_rows_over_knows_its_timeout(function: str) -> None:
    """The lease that it takes outlives it; and an HTTP API, which waits for 30 s, outlives the one behind it."""
    properties = RESOURCES[function]["Properties"]
    assert properties["Environment"]["Variables"]["FUNCTION_TIMEOUT_SECONDS"] == str(properties["Timeout"])
    assert TimeBounds.of(properties["Timeout"]).lease_seconds > properties["Timeout"]
    if any(event["Type"] == "HttpApi" for event in properties["Events"].values()):
        assert properties["Timeout"] < 30
