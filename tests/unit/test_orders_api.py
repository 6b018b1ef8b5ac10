"""orders_api: an order is stored once for each customer and key, and bad input is refused clearly and silently."""

import base64
import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from io import BytesIO
from typing import Any
from urllib.parse import urlencode

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError

from onecharge.contract.events import ATTEMPTS_MAX, OrderPlacedEvent
from onecharge.contract.money import MINIMUM_MINOR
from onecharge.contract.questions import QUESTION, Cancellation, CancelQuestion, ClientSecretQuestion
from onecharge.orders.items import RETENTION_SECONDS
from onecharge.runtime.dynamodb import to_item
from orders_api.app import OrdersApi
from orders_api.declines import message_for
from orders_api.operations import COMMON_PROBLEMS, OPERATIONS
from orders_api.orders import Orders
from orders_api.payments import CancellationUnknown, ClientSecretUnknown, Payments
from orders_api.refunds import Refunds
from orders_api.responses import ProblemDetails
from testing.harness import LambdaContext, Log, Sample, create_table

NOW = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)


class AnsweringPayments:
    """The payment service's answers: to cancellations, one after the other, and to whoever asks for a secret."""

    def __init__(self) -> None:
        self.answers: list[str | Exception] = []
        self.asked: list[OrderPlacedEvent] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.secret: str | Exception | None = None
        self.asked_for_secrets: list[OrderPlacedEvent] = []

    def cancel(self, event: OrderPlacedEvent) -> Cancellation:
        self.asked.append(event)
        self.meanwhile()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Cancellation(answer)

    def client_secret(self, event: OrderPlacedEvent) -> str | None:
        self.asked_for_secrets.append(event)
        if isinstance(self.secret, Exception):
            raise self.secret
        return self.secret


def _require_described(http: dict[str, str], status: int, body: dict[str, Any]) -> None:
    """Whatever any test makes the API answer is in its description: the problem's kind, under this status."""
    [operation] = [
        each
        for each in OPERATIONS
        if each.method == http["method"] and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each.path), http["path"])
    ]
    if status == operation.status or (status == 202 and operation.is_sometimes_accepted):
        operation.response.model_validate(body)
    else:
        ProblemDetails.model_validate(body)
        kinds = {**operation.problems, **COMMON_PROBLEMS}[HTTPStatus(status)]
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
        self.payments, self.now = AnsweringPayments(), NOW
        self.counted: Counter[str] = Counter()
        self.overtaken = Overtaken(self.dynamodb)
        refunds_table = create_table(self.dynamodb, "refunds", "OrderRefundsTable")
        self.refunds = Refunds(self.overtaken, refunds_table, table)  # type: ignore[arg-type]  # It passes all on.
        self.api = OrdersApi(
            Orders(self.dynamodb, table),
            self.refunds,
            self.payments,  # type: ignore[arg-type]  # Its two methods.
            log.logger,
            lambda name: self.counted.update([name]),  # type: ignore[arg-type]  # All that is called of Counts.
            clock=lambda: self.now,
        )

    def send(self, event: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
        answer = self.api.resolver.resolve(event, self.context)
        status, body = answer["statusCode"], json.loads(answer["body"])
        _require_described(event["requestContext"]["http"], status, body)
        return status, body, answer["headers"]

    def post(self, body: Any, key: str | None = "key-1") -> tuple[int, dict[str, Any], dict[str, str]]:
        event = self.sample("orders_api/place_order")
        event["body"] = body if isinstance(body, str) else json.dumps(body)
        if key is None:
            del event["headers"]["idempotency-key"]
        else:
            event["headers"]["idempotency-key"] = key
        return self.send(event)

    def to(self, path: str, body: Any = None, *, key: str = "key-2") -> tuple[int, dict[str, Any], dict[str, str]]:
        """POST to a path below /orders."""
        event = self.sample("orders_api/pay_again")
        event["rawPath"] = event["requestContext"]["http"]["path"] = f"/orders/{path}"
        event["headers"]["idempotency-key"] = key
        event["body"] = json.dumps(body or {})
        return self.send(event)

    def get(self, path: str, **query: str) -> tuple[int, dict[str, Any], dict[str, str]]:
        event = self.sample("orders_api/list_orders")
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

    def put(self, order_id: str, **changes: Any) -> None:
        """Set attributes of the order, as update_order does, or as no code should."""
        self.dynamodb.update_item(
            TableName=self.table,
            Key={"order_id": {"S": order_id}},
            UpdateExpression="SET " + ", ".join(f"{name} = :{name}" for name in changes),
            ExpressionAttributeValues=to_item({f":{name}": value for name, value in changes.items()}),
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
    "after a word": (line(sku="Visa4242-4242-4242-4242"), "key-1"),
    "an escaped slash": (json.dumps(line(sku="X")).replace("X", r"4242\/4242\/4242\/4242"), "key-1"),
    "spaced dashes": (line(sku="4242 - 4242 - 4242 - 4242"), "key-1"),
    "a field that is there twice": (json.dumps(line()).replace('"sku"', f'"sku": "{CARD}", "sku"'), "key-1"),
    "a field's name, with dashes": (order(**{"x4242-4242-4242-4242": 1}), "key-1"),
    "JSON within JSON": (line(sku=json.dumps({"card": "4242/4242/4242/4242"}).replace("/", r"\/")), "key-1"),
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


@pytest.mark.parametrize(
    "query", ["card=4242%204242%204242%204242", "4242+4242+4242+4242=", "a=4242%2D4242-4242%2D4242"]
)
def test_a_card_number_in_the_query_is_refused(client: Client, query: str) -> None:
    """Whatever its encoding."""
    event = client.sample("orders_api/place_order")
    event["rawQueryString"] = query
    status, problem, _ = client.send(event)
    assert (status, problem["type"]) == (400, "urn:onecharge:problem:card-number")
    assert client.stored() == []


@pytest.mark.parametrize(("currency", "minimum"), [*MINIMUM_MINOR.items(), ("ZAR", 1)])
def test_an_amount_below_the_minimum_is_refused(client: Client, currency: str, minimum: int) -> None:
    """400 for one minor unit less than Stripe charges in that currency, which it names; the minimum is accepted."""
    items = [{"sku": "mug", "quantity": 1, "unit_amount": minimum}]
    assert client.post(order(currency=currency, items=items))[0] == 202
    if minimum > 1:
        less = [{**items[0], "unit_amount": minimum - 1}]
        status, problem, _ = client.post(order(currency=currency, items=less), key="key-2")
        assert (status, problem["type"]) == (400, "urn:onecharge:problem:invalid-request")
        assert f"at least {minimum} minor units of {currency}" in problem["errors"][0]["detail"]
        assert len(client.stored()) == 1


@pytest.mark.parametrize("payment_method", ["card_1MvoiELkdIwHu7ix", "src_1MvoiELkdIwHu7ix", "tok_visa"])
def test_only_payment_methods_are_taken(client: Client, payment_method: str) -> None:
    """400 for the ids of Stripe's older objects, whether an order is placed or paid again."""
    assert client.post(order(payment_method=payment_method))[0] == 400
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED")
    assert client.to(f"{order_id}/payments", {"payment_method": payment_method})[0] == 400
    assert client.stored()[0]["attempt"]["N"] == "1"


DECLINES = {
    "authentication_required": "Your bank wants you to confirm this payment. Please try again.",
    "duplicate_transaction": "A payment of the same amount with this card was made very recently. "
    "Please check it before you try again.",
    "issuer_not_available": "The bank that issued this card could not be reached. Please try again later.",
    "payment_method_used": "The card's details can be used only once. Please enter them again.",
    "reenter_transaction": "The bank could not process the payment. Please try again.",
    "requires_action_expired": "The payment was not confirmed in time. Please try again.",
}


@pytest.mark.parametrize(("code", "words"), DECLINES.items())
def test_a_decline_is_shown_as_what_it_is(client: Client, code: str, words: str) -> None:
    """Where trying the same card again helps, nobody is sent to look for another one."""
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED", _1={"status": "PAYMENT_DECLINED", "decline_code": code})
    [attempt] = client.get(f"/orders/{order_id}")[1]["attempts"]
    assert (attempt["decline_code"], attempt["message"]) == (code, words)


@pytest.mark.parametrize(
    "code",
    [
        "amount_too_large",
        "amount_too_small",
        "currency_not_supported",
        "payment_method_of_another_customer",
        "payment_method_unactivated",
        "payment_method_unknown",
        "payment_method_used",
        "requires_action_expired",
    ],
)
def test_every_code_of_the_payment_service_has_words_of_its_own(code: str) -> None:
    """None is shown as a card that was declined, which it was not."""
    assert message_for(code) != message_for(None)


def test_what_is_refused_is_not_repeated(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """Values and unknown names of a bad request stand neither in the answer nor in the log."""
    _, problem, _ = client.post(order(currency="secret-1", **{"secret-2": "secret-3"}))
    assert "secret" not in said_by(client, problem, capsys)


def test_a_body_in_base64_is_read(client: Client) -> None:
    """As API Gateway sends it for content types that it takes for binary."""
    event = client.sample("orders_api/place_order")
    event["body"], event["isBase64Encoded"] = base64.b64encode(json.dumps(order()).encode()).decode(), True
    assert client.send(event)[0] == 202


def test_a_body_that_is_no_text_is_refused(client: Client) -> None:
    """Bytes that are not UTF-8: 400, not 500."""
    event = client.sample("orders_api/place_order")
    event["body"], event["isBase64Encoded"] = base64.b64encode(b"\xff\xfe").decode(), True
    assert client.send(event)[0] == 400


def test_an_order_is_found_again(client: Client) -> None:
    """GET shows the order's status."""
    _, placed, _ = client.post(order())
    event = client.sample("orders_api/get_order")
    event["rawPath"] = event["requestContext"]["http"]["path"] = f"/orders/{placed['order_id']}"
    status, found, _ = client.send(event)
    assert (status, placed.items() <= found.items()) == (200, True)


@pytest.mark.parametrize("order_id", ["ord_" + "0" * 32, "4242424242424242", "%00", "ord_'", "\x00", "\ud800"])
def test_an_unknown_order_is_not_found(client: Client, order_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    """404, and the id that was asked for is not repeated."""
    event = client.sample("orders_api/get_order")
    event["rawPath"] = event["requestContext"]["http"]["path"] = f"/orders/{order_id}"
    status, problem, headers = client.send(event)
    assert (status, headers["Content-Type"]) == (404, "application/problem+json")
    assert order_id not in said_by(client, problem, capsys)


def test_an_unavailable_table_is_503_try_again(client: Client) -> None:
    """503, with the advice to send the same key again."""
    client.dynamodb.delete_table(TableName=client.table)
    status, problem, _ = client.post(order())
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")


def test_the_correlation_id_is_the_request_id(client: Client) -> None:
    """It is answered, stored and logged, so that one id is enough to follow an order."""
    _, _, headers = client.post(order())
    request_id = client.sample("orders_api/place_order")["requestContext"]["requestId"]
    assert headers["X-Correlation-Id"] == request_id
    assert client.stored()[0]["correlation_id"]["S"] == request_id
    assert client.log.lines[-1]["correlation_id"] == request_id


# ---------------------------------------------------------------- the status of an order


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


def requires_action(client: Client) -> str:
    order_id = placed(client)
    client.stands(order_id, "REQUIRES_ACTION", _1={"status": "REQUIRES_ACTION"})
    return order_id


def test_the_client_secret_is_asked_for_and_stored_nowhere(client: Client) -> None:
    """GET of an order in REQUIRES_ACTION asks about the present attempt; neither the table nor the log has it."""
    order_id, client.payments.secret = requires_action(client), "pi_1_secret_2"
    status, body, headers = client.get(f"/orders/{order_id}")
    assert (status, body["client_secret"], headers["Cache-Control"]) == (200, "pi_1_secret_2", "no-store")
    assert [(event.subject, event.data.attempt) for event in client.payments.asked_for_secrets] == [(order_id, 1)]
    assert "secret_2" not in client.log.text + json.dumps(client.stored())


@pytest.mark.parametrize("status", ["PENDING", "PAID", "PAYMENT_DECLINED", "NEEDS_REVIEW", "CANCELING", "CANCELED"])
def test_no_other_order_has_a_client_secret(client: Client, status: str) -> None:
    """The payment service is not even asked."""
    order_id, client.payments.secret = placed(client), "pi_1_secret_2"
    client.stands(order_id, status)
    assert "client_secret" not in client.get(f"/orders/{order_id}")[1]
    assert client.payments.asked_for_secrets == []


@pytest.mark.parametrize(
    "answer", [ClientSecretUnknown(), ReadTimeoutError(endpoint_url="https://lambda"), None], ids=str
)
def test_without_an_answer_the_order_is_shown_without_its_client_secret(
    client: Client, answer: Exception | None
) -> None:
    """200: where the order stands is worth showing all the same. A failure is counted."""
    order_id, client.payments.secret = requires_action(client), answer
    status, body, _ = client.get(f"/orders/{order_id}")
    assert (status, body["status"]) == (200, "REQUIRES_ACTION")
    assert "client_secret" not in body
    assert client.counted["ClientSecretUnavailable"] == (1 if answer else 0)


def test_a_list_never_asks_for_client_secrets(client: Client) -> None:
    """However many of its orders require action."""
    requires_action(client)
    client.payments.secret = "pi_1_secret_2"
    _, body, _ = client.get("/orders", customer_id="cus_1")
    assert [each["status"] for each in body["orders"]] == ["REQUIRES_ACTION"]
    assert "client_secret" not in body["orders"][0]
    assert client.payments.asked_for_secrets == []


def test_a_list_leaves_out_an_order_that_is_unreadable(client: Client) -> None:
    """Attempt 101 of a restored table, say: the others are shown, and an alarm names it."""
    order_ids = [placed(client) for _ in range(3)]
    client.put(order_ids[1], attempt=ATTEMPTS_MAX + 1)
    status, body, _ = client.get("/orders", customer_id="cus_1")
    assert status == 200
    assert sorted(each["order_id"] for each in body["orders"]) == sorted([order_ids[0], order_ids[2]])
    assert client.counted["Alarm"] == 1
    assert [line["order_id"] for line in client.log.lines if line["level"] == "ERROR"] == [order_ids[1]]


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


def declined_with(client: Client, order_id: str, payment_method: str, key: str) -> tuple[int, dict[str, Any]]:
    """Pay again with this card, which is declined too; gives the answer."""
    status, body, _ = client.to(f"{order_id}/payments", {"payment_method": payment_method}, key=key)
    client.stands(order_id, "PAYMENT_DECLINED")
    return status, body


def test_pay_again_one_key_has_one_effect_for_ever(client: Client) -> None:
    """Card A (key KA) declined, card B (KB) declined: a late retry of KA replays its answer, and charges nothing."""
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED")
    first = declined_with(client, order_id, "pm_A", "KA")
    assert declined_with(client, order_id, "pm_B", "KB")[0] == 202
    status, body, headers = client.to(f"{order_id}/payments", {"payment_method": "pm_A"}, key="KA")
    assert ((status, body), headers["Idempotent-Replayed"]) == (first, "true")
    [item] = client.stored()
    assert (item["status"]["S"], item["attempt"]["N"], item["payment_method"]["S"]) == ("PAYMENT_DECLINED", "3", "pm_B")


@pytest.mark.parametrize("status", ["PAYMENT_DECLINED", "PENDING", "PAID", "CANCELED"])
def test_pay_again_a_used_key_with_another_card_is_refused(client: Client, status: str) -> None:
    """422 wherever the order stands, and nothing changes; the key that placed the order is used, too."""
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED")
    declined_with(client, order_id, "pm_A", "KA")
    client.stands(order_id, status)
    before = client.stored()
    for key in ("KA", "key-0"):
        code, problem, _ = client.to(f"{order_id}/payments", {"payment_method": "pm_B"}, key=key)
        assert (code, problem["type"]) == (422, "urn:onecharge:problem:idempotency-key-reused")
    assert client.stored() == before


def test_attempt_101_is_refused_and_not_stored(client: Client) -> None:
    """409; the order stays readable, and a retry of the last attempt is still replayed."""
    order_id = placed(client)
    for attempt in range(2, ATTEMPTS_MAX + 1):
        client.stands(order_id, "PAYMENT_DECLINED")
        assert client.to(f"{order_id}/payments", {"payment_method": "pm_A"}, key=f"K{attempt}")[0] == 202
    client.stands(order_id, "PAYMENT_DECLINED")
    before = client.stored()
    status, problem, _ = client.to(f"{order_id}/payments", {"payment_method": "pm_A"}, key="K101")
    assert (status, problem["type"]) == (409, "urn:onecharge:problem:attempts-exhausted")
    assert client.stored() == before
    assert client.get(f"/orders/{order_id}")[0] == 200
    assert client.to(f"{order_id}/payments", {"payment_method": "pm_A"}, key="K100")[0] == 202


def test_do_not_try_again_refuses_the_same_card(client: Client) -> None:
    """409 for that payment method, also after another card was declined; any other one is taken."""
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED")
    client.put(order_id, refused_payment_methods=["pm_card_visa"])
    before = client.stored()
    status, problem, _ = client.to(f"{order_id}/payments", {"payment_method": "pm_card_visa"}, key="a")
    assert (status, problem["type"]) == (409, "urn:onecharge:problem:payment-method-refused")
    assert client.stored() == before
    assert declined_with(client, order_id, "pm_B", "b")[0] == 202
    assert client.to(f"{order_id}/payments", {"payment_method": "pm_card_visa"}, key="c")[0] == 409
    assert client.to(f"{order_id}/payments", {"payment_method": "pm_B"}, key="d")[0] == 202


def test_an_attempt_shows_the_advice(client: Client) -> None:
    """Stripe's, for the shop, beside the decline code."""
    order_id = placed(client)
    outcome = {"status": "PAYMENT_DECLINED", "decline_code": "do_not_honor", "advice_code": "try_again_later"}
    client.stands(order_id, "PAYMENT_DECLINED", _1=outcome)
    [attempt] = client.get(f"/orders/{order_id}")[1]["attempts"]
    assert (attempt["decline_code"], attempt["advice_code"]) == ("do_not_honor", "try_again_later")


def test_an_order_that_waits_does_not_expire(client: Client) -> None:
    """Neither a new one nor one that is paid again; a canceled one does."""
    order_id = placed(client)
    assert "expires_at" not in client.stored()[0]
    client.stands(order_id, "PAYMENT_DECLINED")
    client.put(order_id, expires_at=1)
    client.to(f"{order_id}/payments", OTHER_CARD)
    assert "expires_at" not in client.stored()[0]
    client.payments.answers = ["CANCELING", "CANCELED"]
    client.to(f"{order_id}/cancel")
    assert "expires_at" not in client.stored()[0]
    client.to(f"{order_id}/cancel")
    assert int(client.stored()[0]["expires_at"]["N"]) == int(NOW.timestamp()) + RETENTION_SECONDS


@pytest.mark.parametrize("status", ["PENDING", "PAID", "REQUIRES_ACTION", "NEEDS_REVIEW", "CANCELING", "CANCELED"])
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


@pytest.mark.parametrize("status", ["PENDING", "PAYMENT_DECLINED", "REQUIRES_ACTION", "CANCELING"])
def test_an_order_is_canceled_once_the_payment_service_agrees(client: Client, status: str) -> None:
    """It is asked about the order; asked again, the answer is the same."""
    order_id = placed(client)
    client.stands(order_id, status)
    client.payments.answers = ["CANCELED"]
    for _ in range(2):
        code, body, _ = client.to(f"{order_id}/cancel")
        assert (code, body["status"]) == (200, "CANCELED")
    assert [(event.subject, event.data.attempt) for event in client.payments.asked] == [(order_id, 1)]
    assert client.to(f"{order_id}/payments", OTHER_CARD)[0] == 409


@pytest.mark.parametrize(("answer", "problem"), [("PAID", "already-paid"), ("NEEDS_REVIEW", "needs-review")])
def test_if_the_charge_won_the_answer_says_so(client: Client, answer: str, problem: str) -> None:
    """409, and the order stands."""
    order_id = placed(client)
    client.payments.answers = [answer]
    code, body, _ = client.to(f"{order_id}/cancel")
    assert (code, body["type"]) == (409, f"urn:onecharge:problem:{problem}")
    assert client.stored()[0]["status"]["S"] == "PENDING"


@pytest.mark.parametrize(("status", "problem"), [("PAID", "already-paid"), ("NEEDS_REVIEW", "needs-review")])
def test_a_paid_order_is_not_even_asked_about(client: Client, status: str, problem: str) -> None:
    """409."""
    order_id = placed(client)
    client.stands(order_id, status)
    assert client.to(f"{order_id}/cancel")[1]["type"] == f"urn:onecharge:problem:{problem}"
    assert client.payments.asked == []


@pytest.mark.parametrize(
    ("ends_as", "code", "shown"),
    [("CANCELED", 200, "CANCELED"), ("PAID", 409, "CANCELING"), ("CANCELING", 202, "CANCELING")],
)
@pytest.mark.parametrize("status", ["PENDING", "PAYMENT_DECLINED", "REQUIRES_ACTION"])
def test_a_cancellation_during_an_outage_is_taken(
    client: Client, status: str, ends_as: str, code: int, shown: str
) -> None:
    """202 CANCELING, and no other card from then on; asked again it is asked again, and ends as Stripe says."""
    order_id = placed(client)
    client.stands(order_id, status)
    client.payments.answers = ["CANCELING", ends_as]
    accepted, body, _ = client.to(f"{order_id}/cancel")
    assert (accepted, body["status"], client.stored()[0]["status"]["S"]) == (202, "CANCELING", "CANCELING")
    assert client.to(f"{order_id}/payments", OTHER_CARD, key="another")[0] == 409
    assert client.to(f"{order_id}/cancel")[0] == code
    assert client.stored()[0]["status"]["S"] == shown
    assert len(client.payments.asked) == 2


def test_a_cancellation_keeps_the_time_at_which_it_was_asked_for(client: Client) -> None:
    """Asked again, it has waited since the first time."""
    order_id = placed(client)
    client.payments.answers = ["CANCELING", "CANCELING"]
    client.to(f"{order_id}/cancel")
    asked_at = client.stored()[0]["cancel_requested_at"]["S"]
    client.now += timedelta(hours=1)
    client.to(f"{order_id}/cancel")
    assert asked_at == client.stored()[0]["cancel_requested_at"]["S"] == NOW.isoformat()


@pytest.mark.parametrize(("answer", "code"), [("CANCELED", 200), ("CANCELING", 202)])
def test_a_card_that_was_tried_meanwhile_is_canceled_too(client: Client, answer: str, code: int) -> None:
    """The payment service has canceled the whole payment: the attempt that was made meanwhile ends with it."""
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED")
    client.payments.answers = [answer]
    client.payments.meanwhile = lambda: client.to(f"{order_id}/payments", OTHER_CARD)
    assert client.to(f"{order_id}/cancel")[0] == code
    assert client.stored()[0]["status"]["S"] == answer
    assert client.stored()[0]["attempt"]["N"] == "2"


@pytest.mark.parametrize(("moved_to", "code"), [("PAID", 409), ("CANCELED", 200), ("NEEDS_REVIEW", 409)])
def test_an_outcome_that_came_in_between_decides(client: Client, moved_to: str, code: int) -> None:
    """The answer was CANCELING, and by then the event was faster: the order's status is the answer."""
    order_id = placed(client)
    client.payments.answers = ["CANCELING"]
    client.payments.meanwhile = lambda: client.stands(order_id, moved_to)
    assert client.to(f"{order_id}/cancel")[0] == code
    assert client.stored()[0]["status"]["S"] == moved_to


@pytest.mark.parametrize("error", [CancellationUnknown(), ReadTimeoutError(endpoint_url="https://lambda")], ids=str)
def test_without_an_answer_nothing_is_canceled(client: Client, error: Exception) -> None:
    """503 try-again, and the order stands."""
    order_id = placed(client)
    client.payments.answers = [error]
    code, problem, _ = client.to(f"{order_id}/cancel")
    assert (code, problem["type"]) == (503, "urn:onecharge:problem:try-again")
    assert client.stored()[0]["status"]["S"] == "PENDING"


class Lambda:
    """Invoke of boto3's client, which answers with this payload, or says that the function failed."""

    def __init__(self, payload: str, *, failed: bool = False) -> None:
        self.payload, self.failed = payload, failed
        self.invoked: list[tuple[str, bytes]] = []

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        self.invoked.append((FunctionName, Payload))
        failure = {"FunctionError": "Unhandled"} if self.failed else {}
        return {"StatusCode": 200, "Payload": BytesIO(self.payload.encode()), **failure}


def asked(client: Client, function: Lambda) -> tuple[Payments, OrderPlacedEvent]:
    placed(client)
    order = Orders(client.dynamodb, client.table).find(str(client.stored()[0]["order_id"]["S"]))
    assert order
    return Payments(function, function, "payment-questions"), order.event  # type: ignore[arg-type]  # The one method.


def test_the_payment_service_is_asked_in_the_words_of_the_contract(client: Client) -> None:
    """A CancelQuestion with the order, a ClientSecretQuestion with the attempt, to one function."""
    cancel, secret = Lambda('{"cancellation": "CANCELING"}'), Lambda('{"client_secret": "s", "new_field": 1}')
    payments, event = asked(client, cancel)
    assert payments.cancel(event) is Cancellation.CANCELING
    assert Payments(secret, secret, "payment-questions").client_secret(event) == "s"  # type: ignore[arg-type]
    [(function, payload)] = cancel.invoked
    correlation_id = event.correlationid
    assert function == "payment-questions"
    assert QUESTION.validate_json(payload) == CancelQuestion(order=event.data, correlation_id=correlation_id)
    assert QUESTION.validate_json(secret.invoked[0][1]) == ClientSecretQuestion(
        order_id=event.subject, attempt=1, correlation_id=correlation_id
    )


@pytest.mark.parametrize(
    "function",
    [Lambda('{"cancellation": "CANCELED"}', failed=True), Lambda('{"errorMessage": "x"}'), Lambda("")],
    ids=["FunctionError", "another answer", "nothing"],
)
def test_a_function_that_failed_has_said_nothing(client: Client, function: Lambda) -> None:
    """Whatever its payload is."""
    payments, event = asked(client, function)
    with pytest.raises(CancellationUnknown):
        payments.cancel(event)
    if function.failed:
        with pytest.raises(ClientSecretUnknown):
            payments.client_secret(event)


# ---------------------------------------------------------------- late truth, refunds by hand, disputes


def test_an_earlier_attempt_that_paid_late_is_the_one_that_paid(client: Client) -> None:
    """The present attempt is shown as CANCELED: nothing confirms it any more. A refund is of the one that paid."""
    order_id = placed(client)
    client.stands(order_id, "PAYMENT_DECLINED")
    client.to(f"{order_id}/payments", OTHER_CARD)
    client.stands(order_id, "PAID", _1={"status": "PAID"})
    client.put(order_id, paid_attempt=1)
    attempts = client.get(f"/orders/{order_id}")[1]["attempts"]
    assert [(each["attempt"], each["status"]) for each in attempts] == [(1, "PAID"), (2, "CANCELED")]
    refund_id = client.to(f"{order_id}/refunds", {"amount": 100})[1]["refund_id"]
    [item] = client.dynamodb.scan(TableName="refunds")["Items"]
    assert (item["refund_id"]["S"], item["attempt"]["N"]) == (refund_id, "1")
    assert "expires_at" not in item


def test_a_canceled_order_shows_its_attempt_as_canceled(client: Client) -> None:
    """Though its last outcome was that the customer had to act."""
    order_id = requires_action(client)
    client.payments.answers = ["CANCELED"]
    _, body, _ = client.to(f"{order_id}/cancel")
    assert body["attempts"] == [{"attempt": 1, "status": "CANCELED"}]


@pytest.mark.parametrize(("by_hand", "reserved", "shown"), [(1000, 0, 1000), (1000, 700, 1000), (500, 700, 700)])
def test_refunds_by_hand_count(client: Client, by_hand: int, reserved: int, shown: int) -> None:
    """The larger of our reservations and Stripe's figure is shown, and no more than the rest can be refunded."""
    order_id = client.paid()
    client.put(order_id, refunded_minor=reserved, stripe_refunded_minor=by_hand)
    assert client.get(f"/orders/{order_id}")[1]["amount_refunded"] == shown
    assert client.to(f"{order_id}/refunds", {"amount": 2501 - shown}, key="a")[0] == 409
    assert client.to(f"{order_id}/refunds", key="b")[1]["amount"] == 2500 - shown


def test_a_refund_by_hand_that_came_in_between_is_decided_anew(client: Client) -> None:
    """Stripe's figure grew after the order was read: the condition of the transaction notices."""
    order_id = client.paid()
    client.overtaken.meanwhile.append(lambda: client.put(order_id, stripe_refunded_minor=2000))
    assert client.to(f"{order_id}/refunds", {"amount": 1000})[0] == 409
    assert client.get(f"/orders/{order_id}")[1]["amount_refunded"] == 2000


def test_a_dispute_is_shown(client: Client) -> None:
    """Stripe's status of it; an order without one has no such field."""
    order_id = client.paid()
    assert "dispute_status" not in client.get(f"/orders/{order_id}")[1]
    client.put(order_id, dispute_status="needs_response")
    assert client.get(f"/orders/{order_id}")[1]["dispute_status"] == "needs_response"


# ---------------------------------------------------------------- refunds


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
