"""place_order: an order is stored once for each customer and key, and bad input is refused clearly and silently."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from aws_lambda_powertools import Metrics

from onecharge.metrics import Counts
from place_order.app import OrdersApi
from place_order.orders import Orders
from tests.conftest import LambdaContext, Log, Sample

NOW = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)


class Client:
    """Sends HTTP API events to the routes, and reads what they answer and store."""

    def __init__(self, table: str, sample: Sample, context: LambdaContext, log: Log) -> None:
        self.dynamodb = boto3.client("dynamodb")
        self.table, self.sample, self.context, self.log = table, sample, context, log
        self.api = OrdersApi(Orders(self.dynamodb, table), log.logger, Counts(Metrics()), clock=lambda: NOW)

    def send(self, event: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
        answer = self.api.resolver.resolve(event, self.context)
        return answer["statusCode"], json.loads(answer["body"]), answer["headers"]

    def post(self, body: Any, key: str | None = "key-1") -> tuple[int, dict[str, Any], dict[str, str]]:
        event = self.sample("place_order/place_order")
        event["body"] = body if isinstance(body, str) else json.dumps(body)
        if key is None:
            del event["headers"]["idempotency-key"]
        else:
            event["headers"]["idempotency-key"] = key
        return self.send(event)

    def stored(self) -> list[dict[str, Any]]:
        return self.dynamodb.scan(TableName=self.table)["Items"]


@pytest.fixture
def client(orders_table: str, sample: Sample, lambda_context: LambdaContext, log: Log) -> Client:
    return Client(orders_table, sample, lambda_context, log)


def order(**changes: Any) -> dict[str, Any]:
    return {
        "customer_id": "cus_1",
        "currency": "eur",
        "payment_method": "pm_card_visa",
        "items": [{"sku": "mug", "quantity": 2, "unit_amount": 1250}],
        **changes,
    }


def line(**changes: Any) -> dict[str, Any]:
    return order(items=[{"sku": "mug", "quantity": 1, "unit_amount": 1250, **changes}])


def test_an_order_is_accepted(client: Client) -> None:
    """202 with the order's id, status, amount and currency, and a Location where it is found again."""
    status, body, headers = client.post(order())
    assert (status, body["status"], body["amount"], body["currency"]) == (202, "PENDING", 2500, "EUR")
    assert headers["Location"] == f"/orders/{body['order_id']}"
    assert len(client.stored()) == 1


def test_a_retry_gets_the_same_answer_and_stores_nothing(client: Client) -> None:
    """Even with other white space, and after the order has been paid."""
    first = client.post(order())
    client.dynamodb.update_item(
        TableName=client.table,
        Key={"order_id": {"S": first[1]["order_id"]}},
        UpdateExpression="SET #status = :paid",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":paid": {"S": "PAID"}},
    )
    again = client.post(json.dumps(order(), indent=4))
    assert again[:2] == first[:2]
    assert again[2]["Idempotent-Replayed"] == "true"
    assert [item["status"]["S"] for item in client.stored()] == ["PAID"]


def test_the_same_key_with_another_body_is_refused(client: Client) -> None:
    """422, and the first order stands."""
    client.post(order())
    status, body, _ = client.post(order(currency="usd"))
    assert (status, body["type"]) == (422, "urn:onecharge:problem:idempotency-key-reused")
    assert [item["currency"]["S"] for item in client.stored()] == ["EUR"]


def test_two_customers_may_use_the_same_key(client: Client) -> None:
    """The order's id derives from both."""
    first, second = client.post(order()), client.post(order(customer_id="cus_2"))
    assert first[1]["order_id"] != second[1]["order_id"]


def said_by(client: Client, problem: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """All that anybody gets to read: the answer, the log, and what was printed."""
    printed = capsys.readouterr()
    return json.dumps(problem) + client.log.text + printed.out + printed.err


BAD_BODIES: dict[str, Any] = {
    "invalid JSON": '{"customer_id": ',
    "no JSON object": "[]",
    "an empty body": "",
    "deeply nested": "[" * 100_000,
    "unknown currency": order(currency="xxx"),
    "amount zero": line(unit_amount=0),
    "a negative amount": line(unit_amount=-1),
    "a fractional amount": line(unit_amount=10.5),
    "a float that is whole": line(unit_amount=10.0),
    "a huge amount": line(unit_amount=10**12),
    "an amount of 5,000 digits": json.dumps(line()).replace("1250", "9" * 5000),
    "a huge total": line(unit_amount=99_999_999, quantity=2),
    "an amount as text": line(unit_amount="1250"),
    "a fils that Stripe cannot charge": order(
        currency="kwd", items=[{"sku": "mug", "quantity": 1, "unit_amount": 1255}]
    ),
    "quantity zero": line(quantity=0),
    "quantity true": line(quantity=True),
    "no items": order(items=[]),
    "no customer": {name: value for name, value in order().items() if name != "customer_id"},
    "an unknown field": order(coupon="HELLO"),
    "NaN": json.dumps(line(unit_amount=float("nan"))),
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_a_body_that_cannot_be_charged_is_refused(client: Client, body: Any) -> None:
    """400 as problem+json (RFC 9457), and nothing is stored."""
    status, problem, headers = client.post(body)
    assert (status, headers["Content-Type"]) == (400, "application/problem+json")
    assert problem.keys() >= {"type", "title", "status", "detail", "correlation_id"}
    assert client.stored() == []


def test_each_error_is_pointed_at(client: Client) -> None:
    """A JSON Pointer and a sentence for each, so that a client's developer need not guess."""
    _, problem, _ = client.post(order(currency="xxx", items=[{"sku": "mug", "quantity": 1, "unit_amount": 0}]))
    assert [error["pointer"] for error in problem["errors"]] == ["/currency", "/items/0/unit_amount"]


@pytest.mark.parametrize("key", [None, "", " ", "a" * 256, "zwei Wörter"])
def test_the_idempotency_key_is_required(client: Client, key: str | None) -> None:
    """A missing, empty, over-long or unprintable key: 400, and nothing is stored."""
    status, problem, _ = client.post(order(), key=key)
    assert (status, problem["type"]) == (400, "urn:onecharge:problem:idempotency-key-missing")
    assert client.stored() == []


CARD = "4242424242424242"
WITH_A_CARD: dict[str, tuple[Any, str]] = {
    "payment method": (order(payment_method=CARD), "key-1"),
    "sku": (line(sku=f"card {CARD}"), "key-1"),
    "spaced": (line(sku="4242 4242 4242 4242"), "key-1"),
    "escaped": (json.dumps(line(sku="X")).replace("X", "".join(f"\\u{ord(digit):04x}" for digit in CARD)), "key-1"),
    "a number": (line(unit_amount=int(CARD)), "key-1"),
    "a field's name": (order(**{CARD: 1}), "key-1"),
    "invalid JSON": ("{" + CARD, "key-1"),
    "the idempotency key": (order(), f"key-{CARD}"),
}


@pytest.mark.parametrize(("body", "key"), WITH_A_CARD.values(), ids=WITH_A_CARD.keys())
def test_a_card_number_is_refused_and_never_repeated(
    client: Client, body: Any, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever it hides: 400, nothing stored, and neither the answer nor any log line holds a digit of it."""
    status, problem, _ = client.post(body, key=key)
    assert (status, problem["type"]) == (400, "urn:onecharge:problem:card-number")
    assert client.stored() == []
    assert client.log.lines[-1]["message"] == "request refused"
    assert "4242" not in said_by(client, problem, capsys)


def test_what_is_refused_is_not_repeated(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """Values and unknown names of a bad request stand neither in the answer nor in the log."""
    _, problem, _ = client.post(order(currency="secret-1", **{"secret-2": "secret-3"}))
    assert "secret" not in said_by(client, problem, capsys)


def test_a_body_in_base64_is_read(client: Client) -> None:
    """As API Gateway sends it for content types that it takes for binary."""
    event = client.sample("place_order/place_order")
    event["body"], event["isBase64Encoded"] = base64.b64encode(json.dumps(order()).encode()).decode(), True
    assert client.send(event)[0] == 202


def test_a_body_that_is_no_text_is_refused(client: Client) -> None:
    """Bytes that are not UTF-8: 400, not 500."""
    event = client.sample("place_order/place_order")
    event["body"], event["isBase64Encoded"] = base64.b64encode(b"\xff\xfe").decode(), True
    assert client.send(event)[0] == 400


def test_an_order_is_found_again(client: Client) -> None:
    """GET tells where the order stands."""
    _, placed, _ = client.post(order())
    event = client.sample("place_order/get_order")
    event["rawPath"] = event["requestContext"]["http"]["path"] = f"/orders/{placed['order_id']}"
    assert client.send(event)[:2] == (200, placed)


@pytest.mark.parametrize("order_id", ["ord_" + "0" * 32, "4242424242424242", "%00", "ord_'"])
def test_an_unknown_order_is_not_found(client: Client, order_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    """404, and the id that was asked for is not repeated."""
    event = client.sample("place_order/get_order")
    event["rawPath"] = event["requestContext"]["http"]["path"] = f"/orders/{order_id}"
    status, problem, headers = client.send(event)
    assert (status, headers["Content-Type"]) == (404, "application/problem+json")
    assert order_id not in said_by(client, problem, capsys)


def test_an_unreachable_table_is_said_to_be_worth_another_try(client: Client) -> None:
    """503, with the advice to send the same key again."""
    client.dynamodb.delete_table(TableName=client.table)
    status, problem, _ = client.post(order())
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")


def test_the_correlation_id_is_the_request_id(client: Client) -> None:
    """It is answered, stored and logged, so that one id is enough to follow an order."""
    _, _, headers = client.post(order())
    request_id = client.sample("place_order/place_order")["requestContext"]["requestId"]
    assert headers["X-Correlation-Id"] == request_id
    assert client.stored()[0]["correlation_id"]["S"] == request_id
    assert client.log.lines[-1]["correlation_id"] == request_id
