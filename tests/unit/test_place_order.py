"""place_order: an order is stored once for each customer and key, and bad input is refused clearly and silently."""

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import boto3
import pytest
from aws_lambda_powertools import Metrics
from place_order.answers import ProblemDetails

from onecharge.dynamodb import to_item
from onecharge.events import OrderPlacedEvent
from onecharge.metrics import Counts
from place_order.app import OrdersApi
from place_order.operations import EVERYWHERE, OPERATIONS
from place_order.orders import Orders
from place_order.payments import NoAnswer
from place_order.refunds import Refunds
from tests.conftest import LambdaContext, Log, Sample, create_table

NOW = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)


class AnsweringPayments:
    """The payment service's answers to the question whether an order can be canceled."""

    def __init__(self) -> None:
        self.answers: list[str | Exception] = []
        self.asked: list[OrderPlacedEvent] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def cancel(self, event: OrderPlacedEvent) -> str:
        self.asked.append(event)
        self.meanwhile()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _require_described(http: dict[str, str], status: int, body: dict[str, Any]) -> None:
    """Whatever any test makes the API answer is in its description: the problem's kind, under this status."""
    [operation] = [
        each
        for each in OPERATIONS
        if each.method == http["method"] and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each.path), http["path"])
    ]
    if status == operation.status:
        operation.answer.model_validate(body)
    else:
        ProblemDetails.model_validate(body)
        kinds = {**operation.problems, **EVERYWHERE}[HTTPStatus(status)]
        assert body["type"].removeprefix("urn:onecharge:problem:") in kinds


class Overtaken:
    """A DynamoDB client through which something else may happen just before each transaction."""

    def __init__(self, client: Any) -> None:
        self.client, self.meanwhile = client, list[Callable[[], object]]()

    def __getattr__(self, name: str) -> Any:
        if name == "transact_write_items" and self.meanwhile:
            self.meanwhile.pop(0)()
        return getattr(self.client, name)


class Client:
    """Sends HTTP API events to the routes, and reads what they answer and store."""

    def __init__(self, table: str, sample: Sample, context: LambdaContext, log: Log) -> None:
        self.dynamodb = boto3.client("dynamodb")
        self.table, self.sample, self.context, self.log = table, sample, context, log
        self.payments = AnsweringPayments()
        self.overtaken = Overtaken(self.dynamodb)
        refunds_table = create_table(self.dynamodb, "refunds", "RefundsTable")
        self.refunds = Refunds(self.overtaken, refunds_table, table)  # type: ignore[arg-type]  # It passes all on.
        self.api = OrdersApi(
            Orders(self.dynamodb, table),
            self.refunds,
            self.payments,  # type: ignore[arg-type]  # Its one method.
            log.logger,
            Counts(Metrics()),
            clock=lambda: NOW,
        )

    def send(self, event: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
        answer = self.api.resolver.resolve(event, self.context)
        status, body = answer["statusCode"], json.loads(answer["body"])
        _require_described(event["requestContext"]["http"], status, body)
        return status, body, answer["headers"]

    def post(self, body: Any, key: str | None = "key-1") -> tuple[int, dict[str, Any], dict[str, str]]:
        event = self.sample("place_order/place_order")
        event["body"] = body if isinstance(body, str) else json.dumps(body)
        if key is None:
            del event["headers"]["idempotency-key"]
        else:
            event["headers"]["idempotency-key"] = key
        return self.send(event)

    def to(self, path: str, body: Any = None, *, key: str = "key-2") -> tuple[int, dict[str, Any], dict[str, str]]:
        """POST to a path below /orders."""
        event = self.sample("place_order/pay_again")
        event["rawPath"] = event["requestContext"]["http"]["path"] = f"/orders/{path}"
        event["headers"]["idempotency-key"] = key
        event["body"] = json.dumps(body or {})
        return self.send(event)

    def get(self, path: str, **query: str) -> tuple[int, dict[str, Any], dict[str, str]]:
        event = self.sample("place_order/list_orders")
        event["rawPath"] = event["requestContext"]["http"]["path"] = path
        event["queryStringParameters"], event["rawQueryString"] = query, urlencode(query)
        return self.send(event)

    def stands(self, order_id: str, status: str, **outcomes: dict[str, str]) -> None:
        """Move the order as update_order does."""
        self.dynamodb.update_item(
            TableName=self.table,
            Key={"order_id": {"S": order_id}},
            UpdateExpression="SET #status = :status, outcomes = :outcomes",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues=to_item(
                {":status": status, ":outcomes": {name.strip("_"): each for name, each in outcomes.items()}}
            ),
        )

    def paid(self) -> str:
        """An order of 2500 that is paid."""
        order_id = str(self.post(order())[1]["order_id"])
        self.stands(order_id, "PAID", _1={"status": "PAID"})
        return order_id

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
    "a lone surrogate": line(sku="\ud800"),
    "an unknown field named by a lone surrogate": order(**{"\udfff": 1}),
    "NUL": line(sku="\x00"),
    "a byte order mark": "\ufeff" + json.dumps(order()),
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
    status, found, _ = client.send(event)
    assert (status, placed.items() <= found.items()) == (200, True)


@pytest.mark.parametrize("order_id", ["ord_" + "0" * 32, "4242424242424242", "%00", "ord_'", "\x00", "\ud800"])
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


# ---------------------------------------------------------------- where an order stands


def placed(client: Client, **changes: Any) -> str:
    return str(client.post(order(**changes), key=f"key-{len(client.stored())}")[1]["order_id"])


def test_an_order_shows_its_attempts(client: Client) -> None:
    """With the decline in words that a shop can show, and its code."""
    order_id = placed(client)
    assert client.get(f"/orders/{order_id}")[1]["attempts"] == [{"attempt": 1, "status": "PENDING"}]
    client.stands(order_id, "PAYMENT_DECLINED", _1={"status": "PAYMENT_DECLINED", "decline_code": "insufficient_funds"})
    [attempt] = client.get(f"/orders/{order_id}")[1]["attempts"]
    assert (attempt["status"], attempt["decline_code"]) == ("PAYMENT_DECLINED", "insufficient_funds")
    assert attempt["message"] == "This card has insufficient funds. Please try another card."


@pytest.mark.parametrize("code", ["fraudulent", "lost_card", "stolen_card", "a_code_of_tomorrow"])
def test_what_the_issuer_suspects_is_not_for_the_customer(client: Client, code: str) -> None:
    """The card was declined, and no more."""
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED", _1={"status": "PAYMENT_DECLINED", "decline_code": code})
    [attempt] = client.get(f"/orders/{order_id}")[1]["attempts"]
    assert attempt["message"] == "The card was declined. Please try another card."


def test_the_client_secret_is_shown_while_the_customer_has_to_act(client: Client) -> None:
    """And not after."""
    order_id, outcome = placed(client), {"status": "REQUIRES_ACTION", "client_secret": "pi_1_secret"}
    client.stands(order_id, "REQUIRES_ACTION", _1=outcome)
    status, body, headers = client.get(f"/orders/{order_id}")
    assert (status, body["client_secret"], headers["Cache-Control"]) == (200, "pi_1_secret", "no-store")
    client.stands(order_id, "PAID", _1=outcome)
    assert "secret" not in json.dumps(client.get(f"/orders/{order_id}")[1])
    assert "secret" not in client.log.text


def test_a_customer_s_orders_are_paged(client: Client) -> None:
    """Each of them once, and nobody else's."""
    mine = {placed(client) for _ in range(5)}
    placed(client, customer_id="cus_2")
    seen, cursor = [], None
    while True:
        query = {"customer_id": "cus_1", "limit": "2", **({"cursor": cursor} if cursor else {})}
        status, body, _ = client.get("/orders", **query)
        assert status == 200
        seen += [each["order_id"] for each in body["orders"]]
        cursor = body["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(mine)


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"customer_id": "no spaces"},
        {"customer_id": "cus_1,cus_2"},  # As API Gateway joins a parameter that is repeated.
        {"customer_id": "cus_1", "limit": "0"},
        {"customer_id": "cus_1", "limit": "51"},
        {"customer_id": "cus_1", "limit": "many"},
        {"customer_id": "cus_1", "cursor": "x"},
        {"customer_id": "cus_1", "cursor": "bnVsbA=="},
        {"customer_id": "cus_1", "cursor": "\u00e9"},
        {"customer_id": "cus_1", "colour": "red"},
    ],
    ids=str,
)
def test_a_query_that_asks_for_something_else_is_refused(client: Client, query: dict[str, str]) -> None:
    """400 problem+json that says where."""
    status, problem, _ = client.get("/orders", **query)
    assert (status, problem["type"]) == (400, "urn:onecharge:problem:invalid-request")


# ---------------------------------------------------------------- another card

OTHER_CARD = {"payment_method": "pm_card_mastercard"}


def test_another_card_is_another_attempt(client: Client) -> None:
    """Accepted while the order is declined: it is pending again, with the new card."""
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED", _1={"status": "PAYMENT_DECLINED", "decline_code": "expired_card"})
    status, body, _ = client.to(f"{order_id}/payments", OTHER_CARD)
    assert (status, body["status"]) == (202, "PENDING")
    [item] = client.stored()
    assert (item["attempt"]["N"], item["payment_method"]["S"]) == ("2", "pm_card_mastercard")
    assert item["attempt_placed_at"]["S"] == NOW.isoformat()
    attempts = client.get(f"/orders/{order_id}")[1]["attempts"]
    assert [(each["attempt"], each["status"]) for each in attempts] == [(1, "PAYMENT_DECLINED"), (2, "PENDING")]


def test_two_of_these_make_one_attempt(client: Client) -> None:
    """The second finds the order pending; a retry of the first gets its answer again."""
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED")
    first = client.to(f"{order_id}/payments", OTHER_CARD, key="first")
    second = client.to(f"{order_id}/payments", OTHER_CARD, key="second")
    again = client.to(f"{order_id}/payments", OTHER_CARD, key="first")
    assert [first[0], second[0], again[0]] == [202, 409, 202]
    assert (again[1], again[2]["Idempotent-Replayed"]) == (first[1], "true")
    assert client.stored()[0]["attempt"]["N"] == "2"


@pytest.mark.parametrize("status", ["PENDING", "PAID", "REQUIRES_ACTION", "NEEDS_REVIEW", "CANCELED"])
def test_another_card_is_for_a_declined_order_alone(client: Client, status: str) -> None:
    """409 that says where it stands."""
    order_id = placed(client)
    client.stands(order_id, status)
    code, problem, _ = client.to(f"{order_id}/payments", OTHER_CARD)
    assert (code, problem["type"]) == (409, "urn:onecharge:problem:not-declined")
    assert status in problem["detail"]
    assert client.stored()[0]["attempt"]["N"] == "1"


@pytest.mark.parametrize("body", [{}, {"payment_method": 1}, {**OTHER_CARD, "amount": 1}], ids=str)
def test_a_payment_that_names_no_method_is_refused(client: Client, body: dict[str, Any]) -> None:
    """400, and nothing changes."""
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED")
    assert client.to(f"{order_id}/payments", body)[0] == 400
    assert client.stored()[0]["attempt"]["N"] == "1"


def test_a_card_number_is_no_payment_method(client: Client) -> None:
    """400, and it is nowhere to be read."""
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED")
    status, problem, _ = client.to(f"{order_id}/payments", {"payment_method": "4242424242424242"})
    assert (status, problem["type"]) == (400, "urn:onecharge:problem:card-number")
    assert "4242" not in client.log.text + json.dumps(client.stored())


@pytest.mark.parametrize("path", ["ord_00000000000000000000000000000000", "nothing"])
@pytest.mark.parametrize("action", ["payments", "cancel"])
def test_an_order_that_is_not_there_is_not_found(client: Client, path: str, action: str) -> None:
    """404, whatever is asked of it."""
    assert client.to(f"{path}/{action}", OTHER_CARD)[0] == 404


# ---------------------------------------------------------------- a cancellation


@pytest.mark.parametrize("status", ["PENDING", "PAYMENT_DECLINED", "REQUIRES_ACTION"])
def test_an_order_is_canceled_once_the_payment_service_agrees(client: Client, status: str) -> None:
    """It is asked about the present attempt; asked again, the answer is the same."""
    order_id = placed(client)
    client.stands(order_id, status)
    client.payments.answers = ["CANCELED"]
    for _ in range(2):
        code, body, _ = client.to(f"{order_id}/cancel")
        assert (code, body["status"]) == (200, "CANCELED")
    assert [(event.subject, event.data.attempt) for event in client.payments.asked] == [(order_id, 1)]
    assert client.to(f"{order_id}/payments", OTHER_CARD)[0] == 409


@pytest.mark.parametrize(
    ("answer", "problem"),
    [("PAID", "already-paid"), ("IN_PROGRESS", "payment-in-progress"), ("NEEDS_REVIEW", "needs-review")],
)
def test_if_the_charge_won_the_answer_says_so(client: Client, answer: str, problem: str) -> None:
    """409, and the order stands."""
    order_id = placed(client)
    client.payments.answers = [answer]
    code, body, _ = client.to(f"{order_id}/cancel")
    assert (code, body["type"]) == (409, f"urn:onecharge:problem:{problem}")
    assert client.stored()[0]["status"]["S"] == "PENDING"


def test_a_paid_order_is_not_even_asked_about(client: Client) -> None:
    """409."""
    order_id = placed(client)
    client.stands(order_id, "PAID")
    assert client.to(f"{order_id}/cancel")[1]["type"] == "urn:onecharge:problem:already-paid"
    assert client.payments.asked == []


def test_a_card_that_was_tried_meanwhile_is_canceled_too(client: Client) -> None:
    """A second attempt was made while the service was asked about the first: it is asked about that one as well."""
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED")
    client.payments.answers = ["CANCELED", "CANCELED"]

    def another_card() -> None:
        client.payments.meanwhile = lambda: None
        assert client.to(f"{order_id}/payments", OTHER_CARD)[0] == 202

    client.payments.meanwhile = another_card
    assert client.to(f"{order_id}/cancel")[1]["status"] == "CANCELED"
    assert [event.data.attempt for event in client.payments.asked] == [1, 2]


def test_without_an_answer_nothing_is_canceled(client: Client) -> None:
    """503: ask again."""
    order_id = placed(client)
    client.payments.answers = [NoAnswer()]
    assert client.to(f"{order_id}/cancel")[0] == 503
    assert client.stored()[0]["status"]["S"] == "PENDING"


def test_a_part_of_a_paid_order_is_refunded(client: Client) -> None:
    """202 with the refund, which the order shows from then on; its currency is the order's."""
    order_id = client.paid()
    status, refund, headers = client.to(f"{order_id}/refunds", {"amount": 1000})
    assert (status, headers["Location"]) == (202, f"/orders/{order_id}")
    assert (refund["status"], refund["amount"], refund["currency"]) == ("PENDING", 1000, "EUR")
    _, shown, _ = client.get(f"/orders/{order_id}")
    assert shown["amount_refunded"] == 1000
    assert [(each["refund_id"], each["amount"]) for each in shown["refunds"]] == [(refund["refund_id"], 1000)]


def test_a_refund_without_an_amount_is_of_all_that_is_left(client: Client) -> None:
    """And then nothing is."""
    order_id = client.paid()
    client.to(f"{order_id}/refunds", {"amount": 1000}, key="a")
    assert client.to(f"{order_id}/refunds", key="b")[1]["amount"] == 1500
    status, problem, _ = client.to(f"{order_id}/refunds", key="c")
    assert (status, problem["type"]) == (409, "urn:onecharge:problem:more-than-is-left")


def test_a_client_that_retries_a_refund_has_one(client: Client) -> None:
    """The same answer each time, though by then nothing more is left."""
    order_id = client.paid()
    answers = [client.to(f"{order_id}/refunds")[:2] for _ in range(3)]
    assert answers == [answers[0]] * 3
    assert client.get(f"/orders/{order_id}")[1]["amount_refunded"] == 2500


@pytest.mark.parametrize(("first", "second"), [({"amount": 10}, {"amount": 11}), ({}, {"amount": 2500})])
def test_a_key_of_another_refund_is_refused(client: Client, first: Any, second: Any) -> None:
    """422, and nothing more is reserved."""
    order_id = client.paid()
    client.to(f"{order_id}/refunds", first)
    before = client.stored()
    status, problem, _ = client.to(f"{order_id}/refunds", second)
    assert (status, problem["type"]) == (422, "urn:onecharge:problem:idempotency-key-reused")
    assert client.stored() == before


@pytest.mark.parametrize("amount", [2501, 99_999_999])
def test_no_more_is_refunded_than_was_paid(client: Client, amount: int) -> None:
    """409, and nothing is reserved."""
    order_id = client.paid()
    assert client.to(f"{order_id}/refunds", {"amount": amount})[0] == 409
    assert client.get(f"/orders/{order_id}")[1]["amount_refunded"] == 0


@pytest.mark.parametrize("status", ["PENDING", "PAYMENT_DECLINED", "REQUIRES_ACTION", "NEEDS_REVIEW", "CANCELED"])
def test_only_a_paid_order_is_refunded(client: Client, status: str) -> None:
    """409 says where it stands."""
    order_id = client.paid()
    client.stands(order_id, status)
    answer, problem, _ = client.to(f"{order_id}/refunds", {"amount": 1})
    assert (answer, problem["type"]) == (409, "urn:onecharge:problem:not-paid")
    assert status in problem["detail"]


BAD_REFUNDS = [{"amount": 0}, {"amount": -1}, {"amount": 10.5}, {"amount": "10"}, {"sum": 10}, [10]]


@pytest.mark.parametrize("body", BAD_REFUNDS, ids=str)
def test_a_bad_refund_is_refused(client: Client, body: Any) -> None:
    """400 says where and how."""
    status, problem, _ = client.to(f"{client.paid()}/refunds", body)
    assert (status, problem["type"]) == (400, "urn:onecharge:problem:invalid-request")


def test_a_refund_of_three_decimals_ends_with_a_zero(client: Client) -> None:
    """As a charge does: Stripe takes no other."""
    order_id = str(client.post(order(currency="kwd"))[1]["order_id"])
    client.stands(order_id, "PAID")
    assert client.to(f"{order_id}/refunds", {"amount": 15})[0] == 400
    assert client.to(f"{order_id}/refunds", {"amount": 20})[0] == 202


def test_a_refund_of_no_order_is_not_found(client: Client) -> None:
    """404."""
    assert client.to("ord_" + "0" * 32 + "/refunds")[0] == 404


@pytest.mark.parametrize(("body", "decided"), [({}, (202, 500)), ({"amount": 1000}, (409, None))], ids=str)
def test_a_refund_that_was_overtaken_is_decided_anew(client: Client, body: Any, decided: Any) -> None:
    """Another one was faster: what is left by then decides."""
    order_id = client.paid()
    client.overtaken.meanwhile.append(lambda: client.to(f"{order_id}/refunds", {"amount": 2000}, key="faster"))
    status, shown, _ = client.to(f"{order_id}/refunds", body, key="slower")
    assert (status, shown.get("amount")) == decided


def test_a_refund_that_is_always_overtaken_is_to_be_asked_for_again(client: Client) -> None:
    """503, and nothing of it is stored."""
    order_id = client.paid()

    def overtake() -> None:
        # The faster one itself meets nobody.
        waiting, client.overtaken.meanwhile = client.overtaken.meanwhile, []
        client.to(f"{order_id}/refunds", {"amount": 1}, key=f"faster-{len(waiting)}")
        client.overtaken.meanwhile = waiting

    client.overtaken.meanwhile += [overtake] * 3
    status, problem, _ = client.to(f"{order_id}/refunds", key="slow")
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")
    assert client.get(f"/orders/{order_id}")[1]["amount_refunded"] == 3
