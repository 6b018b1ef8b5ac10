"""docs/guides/react/: what is paid is shipped once."""

import re
import sys
from types import ModuleType
from typing import Any

import boto3
import pytest

from onecharge.contract.events import EventType, PaymentOutcome, PaymentOutcomeEvent
from onecharge.payments.time_bounds import RETENTION_SECONDS
from tests.shop.builders import T0
from tests.support.harness import PROJECT, LambdaContext, load_template

ORDER_ID, OTHER_ID = "ord_" + "a" * 32, "ord_" + "b" * 32
TEMPLATE = "docs/guides/react/template.yaml"


class Subscriber:
    """The guide's handler, with its table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SHIPPED_TABLE", "shipped")
        table = load_template(TEMPLATE)["Resources"]["ShippedTable"]["Properties"]
        created = {name: value for name, value in table.items() if name != "TimeToLiveSpecification"}
        boto3.client("dynamodb").create_table(TableName="shipped", **created)
        self.module: Any = ModuleType("fulfillment_of_the_guide")
        monkeypatch.setitem(sys.modules, self.module.__name__, self.module)
        source = (PROJECT / "docs/guides/react/src/fulfillment.py").read_text()
        exec(compile(source, "fulfillment.py", "exec"), self.module.__dict__)  # noqa: S102  # Our own guide.
        self.shipped: list[str] = []
        monkeypatch.setattr(self.module.logger, "info", self.log)

    def log(self, message: str, extra: dict[str, str]) -> None:
        """The line stands where the reader's code will be."""
        if message == "shipped":
            self.shipped.append(extra["order_id"])

    def deliver(self, *order_ids: str, **changes: Any) -> list[str]:
        """Returns the orders whose messages stay in the queue."""
        given = {"attempt": 1, "amount_minor": 2500, "currency": "EUR", "occurred_at": T0, "revision": 2, **changes}
        outcomes = [PaymentOutcome.model_validate({"order_id": each, **given}) for each in order_ids]
        events = [PaymentOutcomeEvent.of(EventType.PAYMENT_SUCCEEDED, each, correlation_id="c") for each in outcomes]
        records = [
            {"messageId": event.data.order_id, "body": event.model_dump_json(), "eventSource": "aws:sqs"}
            for event in events
        ]
        failed = self.module.handler({"Records": records}, LambdaContext())["batchItemFailures"]
        return [each["itemIdentifier"] for each in failed]


@pytest.fixture
def subscriber(aws: None, monkeypatch: pytest.MonkeyPatch) -> Subscriber:
    return Subscriber(monkeypatch)


def test_a_paid_order_is_shipped_once(subscriber: Subscriber) -> None:
    """Its event comes twice, and another one of it after a dispute: only the first ships."""
    for revision in (2, 2, 3):
        assert subscriber.deliver(ORDER_ID, revision=revision) == []
    assert subscriber.deliver(OTHER_ID) == []
    assert subscriber.shipped == [ORDER_ID, OTHER_ID]


def test_what_was_refunded_before_is_not_shipped(subscriber: Subscriber) -> None:
    """An event may be late."""
    assert (subscriber.deliver(ORDER_ID, amount_refunded_minor=2500), subscriber.shipped) == ([], [])


def test_an_order_is_remembered_for_as_long_as_its_events_come(subscriber: Subscriber) -> None:
    """A refund, and so an event, is possible while the payment's row lives."""
    assert subscriber.module.once_an_order.expires_after_seconds > RETENTION_SECONDS


def test_the_template_fits_the_handler_and_the_guide() -> None:
    """Paid orders alone; failures one by one; hidden for six times the timeout; each output and parameter exists."""
    template = load_template(TEMPLATE)
    resources = {name: each["Properties"] for name, each in template["Resources"].items()}
    assert resources["FulfillmentSubscription"]["FilterPolicy"] == {"event_type": [EventType.PAYMENT_SUCCEEDED]}
    function = resources["FulfillmentFunction"]
    assert function["Events"]["Paid"]["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert resources["FulfillmentQueue"]["VisibilityTimeout"] >= 6 * function["Timeout"]
    guide = (PROJECT / "docs/guides/react.md").read_text()
    given = dict(re.findall(r"(\w+)=\$\(output (\w+)\)", guide))
    assert given.keys() == template["Parameters"].keys()
    assert set(given.values()) <= load_template()["Outputs"].keys()
