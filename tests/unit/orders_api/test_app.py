"""The function as it is put together: from the secret in Secrets Manager to the id of an order."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import boto3
import pytest

from onecharge.orders.ids import OrderIds
from testing.harness import LambdaContext, Sample, create_table
from testing.order_ids import KEY

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


@pytest.fixture
def cold_start(orders_table: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Handler]:
    """Makes an execution environment of a stack with an empty table, whose secret has the key."""
    dynamodb, app = boto3.client("dynamodb"), import_module("orders_api.app")
    monkeypatch.setenv("ORDERS_TABLE", orders_table)
    monkeypatch.setenv("ORDER_ID_KEY_TABLE", create_table(dynamodb, "order-id-key", "OrderIdKeyTable"))
    monkeypatch.setenv("ORDER_REFUNDS_TABLE", "order-refunds")
    monkeypatch.setenv("PAYMENT_QUESTIONS_FUNCTION", "payment-questions")
    secret = boto3.client("secretsmanager").create_secret(Name="order-id-key", SecretString=KEY)
    monkeypatch.setenv("ORDER_ID_KEY_SECRET_ARN", secret["ARN"])
    functions = import_module("onecharge.runtime.functions")
    return lambda: functions.lambda_handler(app.Application)(app.handler.__wrapped__)


def rotate(key: str) -> None:
    boto3.client("secretsmanager").put_secret_value(SecretId="order-id-key", SecretString=key)


def test_an_order_has_an_id_of_the_secrets_key(
    cold_start: Callable[[], Handler], sample: Sample, lambda_context: LambdaContext
) -> None:
    """The sample's customer and idempotency key."""
    answer = cold_start()(sample("orders_api/place_order"), lambda_context)
    order_id = OrderIds(KEY.encode()).of("cus_sample", "sample-key-1")
    assert (answer["statusCode"], answer["headers"]["Location"]) == (202, f"/orders/{order_id}")


def test_after_a_rotation_only_new_environments_refuse(
    cold_start: Callable[[], Handler], sample: Sample, lambda_context: LambdaContext
) -> None:
    """Until the key is back: then a retry finds its order, everywhere."""
    event, old = sample("orders_api/place_order"), cold_start()
    first = old(event, lambda_context)
    rotate("x" * 64)
    new = cold_start()
    assert new(event, lambda_context)["statusCode"] == 503
    assert old(event, lambda_context)["body"] == first["body"]
    rotate(KEY)
    assert new(event, lambda_context)["body"] == first["body"]


def test_a_secret_that_cannot_be_read_is_an_outage(
    cold_start: Callable[[], Handler], sample: Sample, lambda_context: LambdaContext
) -> None:
    """503 for a new order; what needs no key is served."""
    handler = cold_start()
    boto3.client("secretsmanager").delete_secret(SecretId="order-id-key", ForceDeleteWithoutRecovery=True)
    assert handler(sample("orders_api/place_order"), lambda_context)["statusCode"] == 503
    assert handler(sample("orders_api/list_orders"), lambda_context)["statusCode"] == 200
