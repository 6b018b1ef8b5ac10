"""payment_questions: what the order service asks is answered, whatever Stripe does; a client secret is kept by nobody.

DynamoDB and Stripe are in memory; the composed function runs over moto and the SDK's own HTTP requests.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from onecharge.contract.questions import CancelAnswer, Cancellation, ClientSecretAnswer, ClientSecretQuestion
from onecharge.contract.states import PaymentState
from onecharge.payments.time_bounds import STRIPE_RETRIES
from payment_questions.app import Application, InvalidQuestion, bounds_of
from payment_questions.client_secret import AnswerClientSecret, ClientSecretUnknown
from testing.fake_stripe import THREE_D_SECURE, no_answer, wrong_key
from testing.harness import Log, Sample, create_table, load_template
from testing.payment_service import PaymentService, order_id
from testing.simulation.dynamodb import MemoryDynamoDB
from testing.stripe_answers import StripeAnswers

LIMIT = {
    "STRIPE_LIMIT_TABLE": "stripe-limit",
    "STRIPE_ENDPOINT_LIMIT": "25",
    "STRIPE_ACCOUNT_LIMIT": "100",
    "STRIPE_SHARE_PERCENT": "6",
}


@pytest.fixture
def payments(log: Log) -> PaymentService:
    return PaymentService(MemoryDynamoDB(keys={"payments": ("order_id",)}), log.logger)


def ask(payments: PaymentService, *, attempt: int = 1) -> str | None:
    """For the client secret of order a."""
    question = ClientSecretQuestion(order_id=order_id("a"), attempt=attempt, correlation_id="c")
    return AnswerClientSecret(payments.store, payments.gateway, payments.instruments)(question).client_secret


# ---------------------------------------------------------------- the client secret


def test_the_secret_is_retrieved_while_the_attempt_requires_action(payments: PaymentService, log: Log) -> None:
    """No row, no log line and no repr has it."""
    payments.charge(card=THREE_D_SECURE)
    assert ask(payments) == "pi_0_secret_x"
    assert "secret" not in str(payments.item()) + log.text
    assert "secret_x" not in repr(ClientSecretAnswer(client_secret="pi_0_secret_x"))


def test_another_attempt_has_no_secret(payments: PaymentService) -> None:
    """Nor an order without a payment; Stripe is not asked."""
    assert ask(payments) is None
    payments.charge(card=THREE_D_SECURE)
    payments.stripe.asked.clear()
    assert ask(payments, attempt=2) is None
    assert payments.stripe.asked == []


def test_a_payment_that_requires_no_action_has_no_secret(payments: PaymentService) -> None:
    """Whether the row says so already or only Stripe does."""
    payments.charge(card=THREE_D_SECURE)
    payments.stripe.becomes("pi_0", "succeeded")
    assert ask(payments) is None
    payments.reconcile()
    assert (payments.state(), ask(payments)) == (PaymentState.SUCCEEDED, None)


def test_nobody_can_confirm_what_is_to_be_canceled(payments: PaymentService) -> None:
    """With the secret, the customer's page could."""
    payments.charge(card=THREE_D_SECURE)
    assert payments.request_cancel(card=THREE_D_SECURE) is Cancellation.CANCELING
    assert payments.state() is PaymentState.REQUIRES_ACTION
    assert ask(payments) is None


@pytest.mark.parametrize("failure", [no_answer, wrong_key])
def test_an_outage_is_no_answer(payments: PaymentService, failure: Any) -> None:
    """None would say that the attempt requires no action any more."""
    payments.charge(card=THREE_D_SECURE)
    payments.stripe.failing["retrieve"] = failure
    with pytest.raises(ClientSecretUnknown):
        ask(payments)


def test_a_customer_who_asks_too_often_takes_nothing_of_stripes_limit(payments: PaymentService) -> None:
    """Nor raises an error, of which an alarm would wake somebody. Whoever asks later gets the secret."""
    payments.charge(card=THREE_D_SECURE)
    payments.stripe.asked.clear()
    question = ClientSecretQuestion(order_id=order_id("a"), attempt=1, correlation_id="c")
    answer = AnswerClientSecret(payments.store, payments.gateway, payments.instruments, may_ask=lambda: False)
    assert answer(question) == ClientSecretAnswer(ask_again=True)
    assert payments.stripe.asked == []
    assert ask(payments) == "pi_0_secret_x"


# ---------------------------------------------------------------- the composed function


@pytest.fixture
def stripe() -> Iterator[StripeAnswers]:
    with StripeAnswers() as answers:
        yield answers


@pytest.fixture
def application(aws: None, stripe: StripeAnswers) -> Application:
    create_table(boto3.client("dynamodb"), "payments", "PaymentsTable")
    create_table(boto3.client("dynamodb"), "stripe-limit", "StripeLimitTable")
    boto3.client("secretsmanager").create_secret(Name="stripe", SecretString="sk_test_x")
    return Application(
        {
            "PAYMENTS_TABLE": "payments",
            "STRIPE_SECRET_ARN": "stripe",
            "STRIPE_API_BASE": stripe.url,
            "FUNCTION_TIMEOUT_SECONDS": "20",
            **LIMIT,
        }
    )


def test_a_cancellation_during_an_outage_is_no_error(
    application: Application, stripe: StripeAnswers, sample: Sample
) -> None:
    """Every request to Stripe is answered 503: the request is stored, and the answer is CANCELING."""
    stripe.post("/v1/payment_intents", status=503, json={"error": {"type": "api_error"}})
    stripe.get("/v1/payment_intents/search", status=503, json={"error": {"type": "api_error"}})
    answer = application.answer(sample("payment_questions/cancel"))
    assert CancelAnswer.model_validate(answer).cancellation is Cancellation.CANCELING
    key = {"order_id": {"S": sample("payment_questions/cancel")["order"]["order_id"]}}
    row = boto3.client("dynamodb").get_item(TableName="payments", Key=key)["Item"]
    assert row["cancel_requested_at"]


def test_a_cancellation_without_the_stripe_key_is_stored(application: Application, sample: Sample) -> None:
    """A key that cannot be read is an outage like any other."""
    boto3.client("secretsmanager").delete_secret(SecretId="stripe", ForceDeleteWithoutRecovery=True)
    assert application.answer(sample("payment_questions/cancel")) == {"cancellation": "CANCELING"}


def test_without_the_stripe_key_there_is_no_client_secret(application: Application, sample: Sample) -> None:
    """An order that has no payment is answered, as the key is not needed for it."""
    boto3.client("secretsmanager").delete_secret(SecretId="stripe", ForceDeleteWithoutRecovery=True)
    assert application.answer(sample("payment_questions/client_secret")) == {"client_secret": None, "ask_again": False}


def test_the_function_asks_stripe_within_its_share_of_the_limit(
    application: Application, stripe: StripeAnswers, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no slot is left within a second Stripe is not asked, and whoever asks later gets an answer."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    placed = PaymentService(MemoryDynamoDB(keys={"payments": ("order_id",)}), log.logger)
    placed.charge(card=THREE_D_SECURE)
    dynamodb = boto3.client("dynamodb")
    dynamodb.put_item(TableName="payments", Item=placed.item())
    question = ClientSecretQuestion(order_id=order_id("a"), attempt=1, correlation_id="c").model_dump(mode="json")
    shown = {"id": "pi_0", "status": "succeeded", "amount": 1099, "currency": "eur"}
    stripe.get("/v1/payment_intents/pi_0", json=foreign_intent() | shown)
    times = {"free_at": int((now + 5) * 1_000_000), "reached_at": 0}
    item = {"name": {"S": "payment_questions"}} | {name: {"N": str(at)} for name, at in times.items()}
    dynamodb.put_item(TableName="stripe-limit", Item=item)
    assert application.answer(question) == {"client_secret": None, "ask_again": True}
    assert stripe.calls == []
    dynamodb.put_item(TableName="stripe-limit", Item=item | {"free_at": {"N": "0"}})
    assert application.answer(question) == {"client_secret": None, "ask_again": False}


@pytest.mark.parametrize(
    "question",
    [
        "cancel",
        "client_secret",
    ],
)
def test_an_outage_of_dynamodb_raises(application: Application, sample: Sample, question: str) -> None:
    """Nothing is stored: the order service has to ask again."""
    boto3.client("dynamodb").delete_table(TableName="payments")
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        application.answer(sample(f"payment_questions/{question}"))


def test_the_answer_is_plain_json(application: Application, sample: Sample) -> None:
    """As Lambda returns it to whoever invokes the function."""
    answer = application.answer(sample("payment_questions/client_secret"))
    assert json.loads(json.dumps(answer)) == {"client_secret": None, "ask_again": False}


@pytest.mark.parametrize("question", [{}, {"question": "refund"}, {"question": "cancel", "order": {}}])
def test_what_is_no_question_is_an_error(application: Application, question: dict[str, Any]) -> None:
    """The order service has sent something else than the contract allows."""
    with pytest.raises(InvalidQuestion):
        application.answer(question)


# ---------------------------------------------------------------- time


def test_stripe_is_given_up_before_the_function_is() -> None:
    """One request that Stripe does not answer takes less than 5 s; the slowest row less than the function's timeout."""
    timeout = load_template()["Resources"]["PaymentQuestionsFunction"]["Properties"]["Timeout"]
    bounds = bounds_of(timeout)
    pauses_seconds = 1
    one_request = bounds.request_seconds * (STRIPE_RETRIES + 1) + pauses_seconds
    assert one_request <= 5
    slowest_dynamodb_seconds = 3
    assert bounds.deadline(0) + one_request + slowest_dynamodb_seconds < timeout
    assert bounds.lease_seconds > timeout


def test_a_lookup_stops_when_the_customer_has_waited_long_enough(
    application: Application, stripe: StripeAnswers, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old order in a busy account: page after page is listed, and then it is CANCELING."""
    started_at = time.time()
    page = {"object": "list", "url": "/v1/payment_intents", "has_more": True, "data": [foreign_intent()]}
    monkeypatch.setattr(time, "time", lambda: started_at + len(stripe.calls))
    stripe.post("/v1/payment_intents", json=created_intent(sample("payment_questions/cancel")["order"]))
    search = {"object": "search_result", "url": "/v1/payment_intents/search", "has_more": False, "data": []}
    stripe.get("/v1/payment_intents/search", json=search)
    stripe.get("/v1/payment_intents", json=page)
    answer = application.answer(sample("payment_questions/cancel"))
    assert answer == {"cancellation": "CANCELING"}
    assert len(stripe.calls) <= bounds_of(20).record_seconds


def created_intent(order: dict[str, Any]) -> dict[str, Any]:
    money = {"amount": order["amount_minor"], "currency": order["currency"].lower()}
    metadata = {"order_id": order["order_id"], "generation": "0"}
    status = "requires_payment_method"
    return {"id": "pi_0", "object": "payment_intent", "status": status, "metadata": metadata, **money}


def foreign_intent() -> dict[str, Any]:
    return {"id": "pi_foreign", "object": "payment_intent", "created": int(time.time()), "metadata": {}}
