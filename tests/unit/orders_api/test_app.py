"""The function as it is put together."""

import json
from importlib import import_module

import boto3
import pytest

from local.price_list import sold
from onecharge.orders.ids import order_id_of
from tests.support.harness import LambdaContext, Sample


def test_an_order_has_the_id_of_its_shop_customer_and_key(
    aws: None, orders_table: str, monkeypatch: pytest.MonkeyPatch, sample: Sample, lambda_context: LambdaContext
) -> None:
    """The sample's; the item in the table has it, too."""
    monkeypatch.setenv("ORDERS_TABLE", orders_table)
    monkeypatch.setenv("ORDER_REFUNDS_TABLE", "order-refunds")
    monkeypatch.setenv("SHOP", "a-shop")
    sku, currency, _ = sold()
    body = {"currency": currency, "payment_method": "pm_card_visa", "items": [{"sku": sku, "quantity": 2}]}
    event = sample("orders_api/place_order") | {"body": json.dumps(body)}
    answer = import_module("orders_api.app").handler(event, lambda_context)
    order_id = order_id_of("a-shop", "cus_sample", "sample-key-1")
    assert (answer["statusCode"], answer["headers"]["Location"]) == (202, f"/orders/{order_id}")
    [item] = boto3.client("dynamodb").scan(TableName=orders_table)["Items"]
    assert item["order_id"] == {"S": order_id}
