"""A client of orders_api: it sends HTTP API events to the routes, and reads what they respond and store."""

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

import boto3
import pytest

from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.store import OrderStore
from onecharge.runtime.dynamodb import to_item
from orders_api.app import orders_api
from orders_api.http import Dependencies
from orders_api.prices import price_of
from tests.support.fixed_prices import PRICES
from tests.support.harness import LambdaContext, Log, Sample, create_table
from tests.support.openapi import OPERATIONS, ProblemDetails

NOW = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)
SHOP = "a-shop"
UNKNOWN = "ord_" + "0" * 32
ROUTES = {each.name: each for each in OPERATIONS if each.name != "get_payment"}
BODIES: dict[str, Any] = {
    "place_order": {"currency": "eur", "payment_method": "pm_card_visa", "items": [{"sku": "mug", "quantity": 2}]},
    "pay_again": {"payment_method": "pm_card_mastercard"},
    "refund_order": {"amount": 100},
}
"""A body that is accepted, for each route that takes one; the order costs 25 euro."""
MOVED_FROM = {"pay_again": "PAYMENT_DECLINED", "refund_order": "PAID"}
"""The status in which a route moves an order; any other one takes REQUIRES_ACTION."""


def order(**changes: Any) -> dict[str, Any]:
    """The body of POST /orders: 25 euro."""
    return {**BODIES["place_order"], **changes}


def line(**changes: Any) -> dict[str, Any]:
    """The body of POST /orders with one line."""
    return order(items=[{"sku": "mug", "quantity": 1, **changes}])


class Answer(NamedTuple):
    status: int
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def kind(self) -> str:
        """Of a problem."""
        return str(self.body.get("type", "")).removeprefix("urn:onecharge:problem:")

    @property
    def in_brief(self) -> tuple[int, str]:
        return self.status, self.kind


class Client:
    """Every response is also checked against the description of its route."""

    def __init__(self, sample: Sample, log: Log) -> None:
        self.sample, self.log, self.dynamodb = sample, log, boto3.client("dynamodb")
        self.table = create_table(self.dynamodb, "orders", "OrdersTable")
        self.now, self.prices, self.customer = NOW, PRICES, "cus_1"
        self.counted: Counter[str] = Counter()
        self.requested: list[str] = []
        """The operations of DynamoDB that the routes called, in their order."""
        self.deps = Dependencies(
            orders=OrderStore(self.dynamodb, self.table),
            refunds=OrderRefundStore(
                self.dynamodb, create_table(self.dynamodb, "refunds", "OrderRefundsTable"), self.table
            ),
            shop=SHOP,
            prices=self.prices,
            price_of=lambda items, currency: price_of(items, currency, self.prices),
            logger=log.logger,
            count=lambda name: self.counted.update([name]),
            clock=lambda: self.now,
        )
        self.resolver = orders_api(self.deps)
        self.dynamodb.meta.events.register("before-call.dynamodb", lambda model, **_: self.requested.append(model.name))

    def event(self, name: str, order_id: str = UNKNOWN, body: Any = None, *, key: str = "key-1") -> dict[str, Any]:
        """A request that is in order, of this customer, or of the staff where its scope is needed."""
        event, route = self.sample("orders_api/place_order"), ROUTES[name]
        event["routeKey"], event["rawPath"] = name, (path := route.path.replace("{order_id}", order_id))
        event["requestContext"]["http"] = {"method": route.method, "path": path}
        claims_in(event).update({"sub": self.customer, "scope": route.scope or ""})
        event["headers"]["idempotency-key"] = key
        body = BODIES.get(name, {}) if body is None else body
        event["body"] = body if isinstance(body, str) else json.dumps(body)
        return event

    def send(self, event: dict[str, Any]) -> Answer:
        answer, route = self.resolver.resolve(event, LambdaContext()), ROUTES[event["routeKey"]]
        shown = Answer(answer["statusCode"], json.loads(answer["body"]), answer["headers"])
        if shown.status == route.status or (route.name == "cancel_order" and shown.status == 202):
            route.response.model_validate(shown.body)
        else:
            ProblemDetails.model_validate(shown.body)
            assert shown.kind in route.problems[shown.status]
        return shown

    def ask(self, name: str, order_id: str = UNKNOWN, body: Any = None, *, key: str = "key-1", **query: str) -> Answer:
        event = self.event(name, order_id, body, key=key)
        event["queryStringParameters"], event["rawQueryString"] = query, urlencode(query)
        return self.send(event)

    def post(self, body: Any, key: str = "key-1") -> Answer:
        return self.ask("place_order", body=body, key=key)

    def shown(self, order_id: str) -> dict[str, Any]:
        return self.ask("get_order", order_id).body

    def placed(self, status: str = "PENDING", **attributes: Any) -> str:
        """The id of a new order of 2500, in this status."""
        order_id = str(self.post(order(), key=f"key-{len(self.stored())}").body["order_id"])
        self.set(order_id, status=status, **attributes)
        return order_id

    def set(self, order_id: str, **changes: Any) -> None:
        """Set attributes of the order, as update_order does, or as no code should."""
        self.dynamodb.update_item(
            TableName=self.table,
            Key={"order_id": {"S": order_id}},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in changes),
            ExpressionAttributeNames={f"#{name}": name for name in changes},
            ExpressionAttributeValues=to_item({f":{name}": value for name, value in changes.items()}),
        )

    def stored(self) -> list[dict[str, Any]]:
        return self.dynamodb.scan(TableName=self.table)["Items"]

    def published_by(self, problem: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
        """All that anybody can read of a request: the response, the log, and what was printed."""
        printed = capsys.readouterr()
        return json.dumps(problem) + self.log.text + printed.out + printed.err


def claims_in(event: dict[str, Any]) -> dict[str, Any]:
    claims: dict[str, Any] = event["requestContext"]["authorizer"]["jwt"]["claims"]
    return claims
