"""What falls due on the deployed stack: from the table of documents to the Stripe ledger."""

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from local.stack import Stack
from onecharge.runtime.dynamodb import from_item, to_item
from tests.support.deployed_shop import eventually, log_of
from tests.support.stacks import on_both


class Calendar:
    """Whoever enters documents, the schedule, and Stripe's ledger."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.stripe = stack, stack.stripe
        self._opened = time.time()
        self.dynamodb, self.lambda_ = stack.aws.client("dynamodb"), stack.aws.client("lambda")

    def enter(self, *, days_ago: int = 0, **changes: Any) -> dict[str, Any]:
        """Put a document; returns its key."""
        key = {
            "due_date": (datetime.now(UTC).date() - timedelta(days_ago)).isoformat(),
            "document_id": f"inv-{uuid4()}",
        }
        document = {
            "customer_id": "cus_e2e",
            "amount_minor": 1900,
            "currency": "eur",
            "payment_method": "pm_card_visa",
            "state": "DUE",
        }
        self.dynamodb.put_item(TableName=self.stack.due_documents_table, Item=to_item({**key, **document, **changes}))
        return key

    def run(self) -> None:
        answer = self.lambda_.invoke(FunctionName=self.stack.place_due_orders_function, Payload=b"{}")
        assert "FunctionError" not in answer, answer["Payload"].read()

    def document(self, key: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.dynamodb.get_item(TableName=self.stack.due_documents_table, Key=to_item(key), ConsistentRead=True)
        return from_item(answer["Item"])

    def decided_status(self, key: Mapping[str, Any]) -> str:
        order = to_item({"order_id": self.document(key)["order_id"]})

        def status() -> str:
            stored = self.dynamodb.get_item(TableName=self.stack.orders_table, Key=order)["Item"]
            return str(stored["status"]["S"])

        return eventually(status, lambda seen: seen != "PENDING")

    def charged(self, key: Mapping[str, Any]) -> list[int]:
        """The amounts of all charges for the document in Stripe's ledger."""
        charges = self.stripe.ledger().charges_of(self.document(key)["order_id"])
        return [charge.amount_minor for charge in charges]

    def log(self) -> str:
        """The lines of the job."""
        lines = [event["message"] for event in log_of(self.stack, self._opened)]
        return "\n".join(line for line in lines if '"service":"place_due_orders"' in line)


@pytest.fixture
def calendar(stack: Stack) -> Calendar:
    return Calendar(stack)


@on_both
def test_each_document_is_charged_once_however_often_the_job_runs(calendar: Calendar) -> None:
    """In three runs, two of them at once: what is due, and what was missed; an invalid one is in nobody's way."""
    due = [calendar.enter(amount_minor=1900 + number) for number in range(12)]
    missed = calendar.enter(days_ago=1, amount_minor=2900)
    declined = calendar.enter(payment_method="pm_card_visa_chargeDeclinedInsufficientFunds")
    invalid = calendar.enter(payment_method="pm_4000056655665556")
    tomorrow = calendar.enter(days_ago=-1)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: calendar.run(), range(2)))
    calendar.run()
    assert {calendar.document(key)["state"] for key in (*due, missed, declined)} == {"ORDERED"}
    assert {calendar.decided_status(key) for key in (*due, missed)} == {"PAID"}
    assert calendar.decided_status(declined) == "PAYMENT_DECLINED"
    assert [calendar.charged(key) for key in (*due, missed)] == [[1900 + n] for n in range(12)] + [[2900]]
    assert calendar.charged(declined) == []
    assert calendar.document(tomorrow)["state"] == "DUE"
    assert calendar.document(invalid)["reason"] == "payment_method: card_number"
    # In all of Stripe's ledger, whichever order ids there are: nothing that the documents do not account for.
    amounts = [charge.amount_minor for charge in calendar.stripe.ledger().charges]
    assert sorted(amount for amount in amounts if 1900 <= amount < 1912) == [1900 + number for number in range(12)]


def test_a_run_says_what_it_did_and_no_card_number(calendar: Calendar) -> None:
    """One line an order, with its order, attempt and correlation id; of the invalid document only the reason."""
    key = calendar.enter(amount_minor=3100)
    calendar.enter(payment_method="pm_4000056655665556")
    calendar.run()
    order_id = calendar.document(key)["order_id"]
    log = eventually(calendar.log, lambda log: order_id in log and "card_number" in log)
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{") and order_id in line]
    assert [(line["attempt"], line["document_id"]) for line in lines] == [(1, key["document_id"])]
    assert lines[0]["correlation_id"].endswith(key["document_id"])
    assert "payment_method: card_number" in log
    assert "4000056655665556" not in log
