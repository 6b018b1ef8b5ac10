"""A client of orders_api: it sends HTTP API events to the routes, and reads what they respond and store."""

import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import boto3
import pytest

from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.store import OrderStore
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.http_api import COMMON_PROBLEMS, ProblemDetails
from orders_api.app import ROUTES, orders_resolver
from orders_api.http import Dependencies
from orders_api.prices import price_of
from tests.support.fixed_prices import PRICES
from tests.support.harness import LambdaContext, Log, Sample, create_table

NOW = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)

SHOP = "a-shop"
OTHER_CARD = {"payment_method": "pm_card_mastercard"}
STAFF = {"sub": "staff_1", "scope": "onecharge/refund"}
"""The claims of a member of the staff."""


def order(**changes: Any) -> dict[str, Any]:
    """The body of POST /orders: 25 euro."""
    return {
        "currency": "eur",
        "payment_method": "pm_card_visa",
        "items": [{"sku": "mug", "quantity": 2}],
        **changes,
    }


def line(**changes: Any) -> dict[str, Any]:
    """The body of POST /orders with one line."""
    return order(items=[{"sku": "mug", "quantity": 1, **changes}])


class Overtaken:
    """A DynamoDB client that calls something else just before each transaction."""

    def __init__(self, client: Any) -> None:
        self.client, self.meanwhile = client, list[Callable[[], object]]()

    def __getattr__(self, name: str) -> Any:
        if name == "transact_write_items" and self.meanwhile:
            self.meanwhile.pop(0)()
        return getattr(self.client, name)


class Client:
    """Every response is also checked against the description of its route."""

    def __init__(self, table: str, sample: Sample, context: LambdaContext, log: Log) -> None:
        self.dynamodb = boto3.client("dynamodb")
        self.table, self.sample, self.context, self.log = table, sample, context, log
        self.now = NOW
        self.prices = PRICES
        self.customer = "cus_1"
        """Who sends the requests; but the staff refunds."""
        self.counted: Counter[str] = Counter()
        self.requested: list[str] = []
        """The operations of DynamoDB that the routes called, in their order."""
        self.dynamodb.meta.events.register("before-call.dynamodb", lambda model, **_: self.requested.append(model.name))
        self.orders = OrderStore(self.dynamodb, table)
        self.overtaken = Overtaken(self.dynamodb)
        refunds_table = create_table(self.dynamodb, "refunds", "OrderRefundsTable")
        count: Any = lambda name: self.counted.update([name])  # noqa: E731
        self.deps = Dependencies(
            orders=self.orders,
            refunds=OrderRefundStore(self.overtaken, refunds_table, table),  # type: ignore[arg-type]  # Passes on.
            shop=SHOP,
            prices=self.prices,
            price_of=lambda items, currency: price_of(items, currency, self.prices),
            logger=log.logger,
            count=count,
            clock=lambda: self.now,
        )
        self.resolver = orders_resolver(self.deps)

    def send(self, event: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
        answer = self.resolver.resolve(event, self.context)
        status, body = answer["statusCode"], json.loads(answer["body"])
        _require_described(event["requestContext"]["http"], status, body)
        return status, body, answer["headers"]

    def event(self, sample: str, path: str = "") -> dict[str, Any]:
        """A sample event, of this customer; to another path, if one is given."""
        event = self.sample(f"orders_api/{sample}")
        if path:
            event["rawPath"] = event["requestContext"]["http"]["path"] = path
        event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"] = self.customer
        return event

    def post(self, body: Any, key: str | None = "key-1") -> tuple[int, dict[str, Any], dict[str, str]]:
        event = self.event("place_order")
        event["body"] = body if isinstance(body, str) else json.dumps(body)
        if key is None:
            del event["headers"]["idempotency-key"]
        else:
            event["headers"]["idempotency-key"] = key
        return self.send(event)

    def to(self, path: str, body: Any = None, *, key: str = "key-2") -> tuple[int, dict[str, Any], dict[str, str]]:
        """POST to a path below /orders."""
        event = self.event("pay_again", f"/orders/{path}")
        if path.endswith("/refunds"):
            event["requestContext"]["authorizer"]["jwt"]["claims"] |= STAFF
        event["headers"]["idempotency-key"] = key
        event["body"] = json.dumps(body or {})
        return self.send(event)

    def get(self, path: str, **query: str) -> tuple[int, dict[str, Any], dict[str, str]]:
        event = self.event("place_order", path)
        event["requestContext"]["http"]["method"] = "GET"
        del event["body"]
        event["queryStringParameters"], event["rawQueryString"] = query, urlencode(query)
        return self.send(event)

    def placed(self, **changes: Any) -> str:
        """The id of a new order."""
        return str(self.post(order(**changes), key=f"key-{len(self.stored())}")[1]["order_id"])

    def paid(self) -> str:
        """The id of a new order of 2500 that is paid."""
        order_id = self.placed()
        self.set_status(order_id, "PAID", _1={"status": "PAID"})
        return order_id

    def requires_action(self) -> str:
        """The id of a new order whose customer has to act."""
        order_id = self.placed()
        self.set_status(order_id, "REQUIRES_ACTION", _1={"status": "REQUIRES_ACTION"})
        return order_id

    def set_status(self, order_id: str, status: str, **outcomes: dict[str, str]) -> None:
        """Move the order as update_order does; `_1` is the outcome of attempt 1."""
        self.dynamodb.update_item(
            TableName=self.table,
            Key={"order_id": {"S": order_id}},
            UpdateExpression="SET #status = :status, outcomes = :outcomes",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues=to_item(
                {":status": status, ":outcomes": {name.strip("_"): each for name, each in outcomes.items()}}
            ),
        )

    def set_attributes(self, order_id: str, **changes: Any) -> None:
        """Set attributes of the order, as update_order does, or as no code should."""
        self.dynamodb.update_item(
            TableName=self.table,
            Key={"order_id": {"S": order_id}},
            UpdateExpression="SET " + ", ".join(f"{name} = :{name}" for name in changes),
            ExpressionAttributeValues=to_item({f":{name}": value for name, value in changes.items()}),
        )

    def stored(self) -> list[dict[str, Any]]:
        return self.dynamodb.scan(TableName=self.table)["Items"]

    def published_by(self, problem: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
        """All that anybody can read of a request: the response, the log, and what was printed."""
        printed = capsys.readouterr()
        return json.dumps(problem) + self.log.text + printed.out + printed.err


def _require_described(http: dict[str, str], status: int, body: dict[str, Any]) -> None:
    """The response is in its route's description: the kind of the problem under this status, or the model."""
    [route] = [
        each
        for each in ROUTES
        if each.method == http["method"] and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each.path), http["path"])
    ]
    if status == route.status or (status == 202 and route.is_sometimes_accepted):
        route.response.model_validate(body)
    else:
        ProblemDetails.model_validate(body)
        kinds = {**route.problems, **COMMON_PROBLEMS}[HTTPStatus(status)]
        assert body["type"].removeprefix("urn:onecharge:problem:") in kinds
