"""docs/guides/react/: what is paid is shipped once, and a customer who is waited for gets one mail."""

import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto.core.models import DEFAULT_ACCOUNT_ID as ACCOUNT_ID
from moto.ses.models import ses_backends

from onecharge.contract.events import EventType, PaymentEventType, PaymentOutcome, PaymentOutcomeEvent
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import to_item
from tests.shop.builders import T0
from tests.support.harness import PROJECT, LambdaContext, create_table, load_template

TEMPLATE = load_template("docs/guides/react/template.yaml")
ORDER_ID = "ord_" + "a" * 32
OTHER_ID = "ord_" + "b" * 32
TEXT = f"Your bank asks you to confirm your payment: https://shop.example.com/#/orders/{ORDER_ID}"


@pytest.fixture
def subscriber(aws: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A handler's module of the guide, with its tables."""
    table = dict(TEMPLATE["Resources"]["DoneTable"]["Properties"])
    del table["TimeToLiveSpecification"]
    boto3.client("dynamodb").create_table(TableName="done", **table)
    given = {"ORDERS_TABLE": "orders", "SHOP_URL": "https://shop.example.com/", "MAIL_FROM": "a@b.c", "USER_POOL": ""}
    for name, value in {**given, "DONE_TABLE": "done"}.items():
        monkeypatch.setenv(name, value)

    def load(name: str) -> ModuleType:
        module, path = ModuleType(f"{name}_of_the_guide"), PROJECT / f"docs/guides/react/src/{name}.py"
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(path.read_text(), path, "exec"), module.__dict__)  # noqa: S102  # Our own guide.
        return module

    return load


def deliver(module: ModuleType, *outcomes: PaymentOutcome) -> list[int]:
    """Handle one batch of events, as publish_events sends them; returns the places of those that failed."""
    is_paid = "fulfillment" in module.__name__
    of: PaymentEventType = EventType.PAYMENT_SUCCEEDED if is_paid else EventType.PAYMENT_REQUIRES_ACTION
    events = [PaymentOutcomeEvent.of(of, each, correlation_id="c") for each in outcomes]
    records = [
        {"messageId": str(at), "body": each.model_dump_json(), "attributes": {}} for at, each in enumerate(events)
    ]
    answer = module.handler({"Records": records}, LambdaContext())
    return [int(each["itemIdentifier"]) for each in answer["batchItemFailures"]]


def outcome(revision: int = 2, **changes: Any) -> PaymentOutcome:
    given = {"order_id": ORDER_ID, "attempt": 1, "amount_minor": 2500, "currency": "EUR", "occurred_at": T0}
    return PaymentOutcome.model_validate({**given, "revision": revision, **changes})


def test_a_paid_order_is_shipped_once(subscriber: Callable[[str], ModuleType]) -> None:
    """Its event comes twice, and again after a dispute. What fails stays in the queue, alone; what was refunded before
    is not shipped."""
    module, shipped, fails = subscriber("fulfillment"), list[Any](), [OSError("the warehouse does not answer")]

    def ship(*order: Any) -> None:
        if fails:
            raise fails.pop()
        shipped.append(order)

    module.ship = ship  # type: ignore[attr-defined]  # The place for the reader's own code.
    assert deliver(module, outcome(), outcome(order_id=OTHER_ID)) == [0]
    assert shipped == [(OTHER_ID, 2500, "EUR")]
    assert deliver(module, outcome(), outcome(), outcome(revision=3)) == []
    assert shipped == [(OTHER_ID, 2500, "EUR"), (ORDER_ID, 2500, "EUR")]
    assert deliver(module, outcome(order_id="ord_" + "c" * 32, amount_refunded_minor=2500)) == []
    assert len(shipped) == 2
    # A refund, and so an event, is possible while the payment's row lives.
    assert module.once_an_order.expires_after_seconds > RETENTION_SECONDS


@pytest.fixture
def mail(subscriber: Callable[[str], ModuleType]) -> ModuleType:
    create_table(boto3.client("dynamodb"), "orders", "OrdersTable")
    boto3.client("sesv2").create_email_identity(EmailIdentity="a@b.c")
    return subscriber("mail")


def waits(*, customer: str = "alice", status: str = "REQUIRES_ACTION", attempt: int = 1) -> None:
    """Store the order of the event, as it is when that is delivered."""
    item = {"order_id": ORDER_ID, "customer_id": customer, "status": status, "attempt": attempt}
    boto3.client("dynamodb").put_item(TableName="orders", Item=to_item(item))


def sent() -> list[tuple[str, str]]:
    """To whom, and what."""
    messages = ses_backends[ACCOUNT_ID]["us-east-1"].sent_messages
    return [(*each.destinations["ToAddresses"], each.body) for each in messages]


def test_a_customer_who_is_waited_for_gets_one_mail(mail: ModuleType) -> None:
    """Once the order has received the same event. It has a link to the order, and nothing else. The next attempt has a
    mail of its own."""
    waits(status="PENDING")
    assert (deliver(mail, outcome()), sent()) == ([0], [])
    waits()
    assert [deliver(mail, outcome()), deliver(mail, outcome())] == [[], []]
    assert sent() == [("alice@example.com", TEXT)]
    waits(attempt=2)
    assert deliver(mail, outcome(attempt=2)) == []
    assert sent() == [("alice@example.com", TEXT)] * 2


@pytest.mark.parametrize(("status", "attempt"), [("PAID", 1), ("PAYMENT_DECLINED", 1), ("REQUIRES_ACTION", 2)])
def test_who_is_no_longer_waited_for_gets_no_mail(mail: ModuleType, status: str, attempt: int) -> None:
    """They have confirmed, or it is another attempt that waits: this event is an old one."""
    waits(status=status, attempt=attempt)
    assert (deliver(mail, outcome()), sent()) == ([], [])


def test_the_address_is_the_user_pools(mail: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The customer is the subject of the user's tokens."""
    monkeypatch.setenv("USER_POOL", "us-east-1_a")
    # Checks names and types of the request and the response: moto's Cognito needs a package more.
    cognito = Stubber(mail.cognito)
    attributes = [{"Name": "sub", "Value": "0f1e"}, {"Name": "email", "Value": "bob@example.com"}]
    response = {"Username": "0f1e", "UserAttributes": attributes}
    cognito.add_response("admin_get_user", response, {"UserPoolId": "us-east-1_a", "Username": "0f1e"})
    waits(customer="0f1e")
    with cognito:
        assert deliver(mail, outcome()) == []
    assert [to for to, _ in sent()] == ["bob@example.com"]


@pytest.mark.parametrize(
    ("name", "event_type"),
    [("Fulfillment", EventType.PAYMENT_SUCCEEDED), ("Mail", EventType.PAYMENT_REQUIRES_ACTION)],
)
def test_the_template_fits_the_handler(name: str, event_type: EventType) -> None:
    """It gets its events alone. Failures are reported one by one; a message is hidden for six times the timeout, then
    put aside."""
    resources = {key: each["Properties"] for key, each in TEMPLATE["Resources"].items()}
    assert resources[f"{name}Subscription"]["FilterPolicy"] == {"event_type": [event_type]}
    [source] = resources[f"{name}Function"]["Events"].values()
    assert source["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    queue = resources[f"{name}Queue"]
    assert queue["VisibilityTimeout"] >= 6 * TEMPLATE["Globals"]["Function"]["Timeout"]
    assert queue["RedrivePolicy"] == {"deadLetterTargetArn": "GetAtt Dlq.Arn", "maxReceiveCount": 20}


def test_each_output_that_the_guide_asks_for_exists() -> None:
    """And each parameter that it gives."""
    guide = (PROJECT / "docs/guides/react.md").read_text()
    asked = set(re.findall(r"\$\(output (\w+)\)", guide))
    assert asked == {"PaymentEventsTopicArn", "OrdersTableName", "UserPoolId"}
    assert asked <= load_template()["Outputs"].keys()
    given = set(re.findall(r"([A-Z]\w+)=", " ".join(re.findall(r"(?ms)^sam deploy.*?^```", guide))))
    assert given == TEMPLATE["Parameters"].keys()
