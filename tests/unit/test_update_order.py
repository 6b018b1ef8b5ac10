"""update_order: the order follows its payment, a late success wins, and a stale event changes nothing."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import permutations
from typing import Any

import boto3
import pytest
from pydantic import ValidationError

from onecharge.contract.events import PaymentOutcomeEvent, reason_of
from onecharge.contract.refunds import RefundOutcomeEvent
from onecharge.orders.schema import RETENTION_SECONDS
from onecharge.orders.store import NoSuchOrder, OrderStore
from onecharge.orders.transitions import OPEN
from onecharge.runtime.consumer import Done
from onecharge.runtime.dynamodb import from_item, to_item
from tests.support.harness import Log, Sample
from update_order.app import PAYMENT_EVENT
from update_order.orders import update_order

KINDS = {
    "succeeded": "PAID",
    "declined": "PAYMENT_DECLINED",
    "requires_action": "REQUIRES_ACTION",
    "needs_review": "NEEDS_REVIEW",
    "canceled": "CANCELED",
}
OCCURRED_AT = datetime(2026, 11, 1, 9, 0, 2, tzinfo=UTC)


def outcome_body(sample: Sample, type_: str) -> str:
    """The message of an outcome, such as `payment.declined`."""
    of, _, kind = type_.partition(".")
    return str(sample(f"update_order/{of}_succeeded")["Records"][0]["body"]).replace("succeeded", kind)


class Order:
    """One order in a table of moto's, and the events that reach it."""

    def __init__(self, table: str, sample: Sample, log: Log) -> None:
        self.dynamodb, self.table, self.sample = boto3.client("dynamodb"), table, sample
        self.counted: Counter[str] = Counter()
        self.revision = 0
        orders = OrderStore(self.dynamodb, table)
        self.update = partial(
            update_order, orders=orders, logger=log.logger, count=lambda name: self.counted.update([name])
        )
        self.key = {"order_id": {"S": self.event("succeeded").subject}}
        self.place("PENDING", attempt=1)

    def place(self, status: str, *, attempt: int) -> None:
        """The order as it is stored, with the money of the samples; it has had no outcome."""
        data = self.event("succeeded").data
        self.revision = 3
        values = {
            **{"order_id": data.order_id, "customer_id": "cus_1", "fingerprint": "f", "correlation_id": "c"},
            **{"amount_minor": data.amount_minor, "currency": data.currency},
            **{"placed_at": OCCURRED_AT.isoformat(), "waiting_since": OCCURRED_AT.isoformat()},
            **{"status": status, "attempt": attempt, "payment_method": f"pm_{attempt}"},
            **{"outcomes": {}, "refused_payment_methods": []},
        }
        self.dynamodb.put_item(TableName=self.table, Item=to_item(values))

    def event(self, kind: str, *, attempt: int = 1, **data: Any) -> PaymentOutcomeEvent:
        """The outcome of the row's next revision, unless another is given."""
        codes = {"decline_code": "insufficient_funds", "advice_code": "try_again_later"} if kind == "declined" else {}
        event = PaymentOutcomeEvent.model_validate_json(outcome_body(self.sample, f"payment.{kind}"))
        data = {**codes, **data}
        self.revision += 1
        changes = {"attempt": attempt, "revision": self.revision, **data}
        return event.model_copy(update={"data": event.data.model_copy(update=changes)})

    @property
    def item(self) -> dict[str, Any]:
        return from_item(self.dynamodb.get_item(TableName=self.table, Key=self.key)["Item"])

    @property
    def outcomes(self) -> dict[str, Any]:
        return dict(self.item["outcomes"])

    @property
    def status(self) -> Any:
        return self.item["status"]


@pytest.fixture
def order(orders_table: str, sample: Sample, log: Log) -> Order:
    return Order(orders_table, sample, log)


@pytest.mark.parametrize(("kind", "status"), KINDS.items())
def test_each_outcome_moves_the_order(order: Order, kind: str, status: str) -> None:
    """To the status that the customer sees."""
    assert order.update(order.event(kind)) == Done()
    assert order.status == status
    assert order.counted == {f"Order.{status}": 1}


def test_an_order_that_an_outcome_makes_wait_again_waits_since_then(order: Order) -> None:
    """Since the outcome, not since it arrived: a late one is overdue the earlier. Any other outcome leaves the time."""
    since = []
    for hours, kind in enumerate(("declined", "requires_action", "needs_review"), start=1):
        order.update(order.event(kind, occurred_at=OCCURRED_AT + timedelta(hours=hours)))
        since.append(datetime.fromisoformat(order.item["waiting_since"]) - OCCURRED_AT)
    assert since == [timedelta(0), timedelta(hours=2), timedelta(hours=2)]


@pytest.mark.parametrize("late", KINDS)
def test_a_paid_order_stays_paid(order: Order, late: str) -> None:
    """Whatever arrives late, or as a duplicate."""
    order.update(order.event("succeeded"))
    assert order.update(order.event(late)) == Done()
    assert order.status == "PAID"
    assert order.counted["OrderUpdateIgnored"] == 1


@pytest.mark.parametrize("named", [1, 2])
@pytest.mark.parametrize("status", sorted(OPEN))
def test_a_late_success_wins(order: Order, status: str, named: int) -> None:
    """A success moves the order to PAID from wherever it waits, whichever of its attempts the event names."""
    order.place(status, attempt=2)
    order.update(order.event("succeeded", attempt=named))
    assert (order.status, order.item["paid_attempt"]) == ("PAID", named)
    assert order.item["paid_at"] == OCCURRED_AT.isoformat()
    assert order.outcomes == {str(named): {"status": "PAID"}}


def test_a_canceled_order_that_is_charged_raises_the_alarm(order: Order, log: Log) -> None:
    """It stays CANCELED. The error log names the PaymentIntent, and what says whether it is refunded."""
    order.place("CANCELED", attempt=1)
    assert order.update(order.event("succeeded")) == Done()
    assert order.status == "CANCELED"
    assert order.counted == {"OrderUpdateIgnored": 1, "CanceledOrderCharged": 1, "Alarm": 1}
    [line] = [line for line in log.lines if line["level"] == "ERROR"]
    assert (line["order_id"], line["payment_intent_id"]) == (order.event("succeeded").subject, "pi_sample1")
    assert "`python -m ops explain`" in line["message"]


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("succeeded", "PAID"),
        ("canceled", "CANCELED"),
        ("needs_review", "NEEDS_REVIEW"),
        ("declined", "CANCELING"),
        ("requires_action", "CANCELING"),
    ],
)
def test_a_cancellation_ends_as_canceled_or_paid(order: Order, kind: str, status: str) -> None:
    """Or in review; a decline does not end it, since the cancellation itself still follows."""
    order.place("CANCELING", attempt=1)
    order.update(order.event(kind))
    assert order.status == status


@pytest.mark.parametrize("status", sorted(OPEN))
def test_a_cancellation_is_of_the_whole_order(order: Order, status: str) -> None:
    """Another card was tried meanwhile, and the request that asked has died: the order is CANCELED all the same."""
    order.place(status, attempt=2)
    order.update(order.event("canceled", attempt=1))
    assert (order.status, order.outcomes) == ("CANCELED", {})


@pytest.mark.parametrize("late", ["declined", "requires_action"])
def test_another_outcome_of_an_earlier_attempt_does_not_move_the_order(order: Order, late: str) -> None:
    """A duplicate decline of the first card says nothing of the second."""
    order.place("PENDING", attempt=2)
    assert order.update(order.event(late, attempt=1)) == Done()
    assert (order.status, order.outcomes) == ("PENDING", {})


@pytest.mark.parametrize("status", sorted(OPEN))
@pytest.mark.parametrize("attempt", [1, 3])
def test_a_review_is_of_the_whole_payment(order: Order, status: str, attempt: int) -> None:
    """No attempt follows until a person has decided, whichever attempt the payment's row has."""
    order.place(status, attempt=2)
    order.update(order.event("needs_review", attempt=attempt))
    assert order.status == "NEEDS_REVIEW"


# ---------------------------------------------------------------- the order of outcomes


@pytest.mark.parametrize("late", ["succeeded", "canceled"])
def test_what_is_final_at_stripe_counts_whatever_its_revision(order: Order, late: str) -> None:
    """Nothing that the row says later takes it back."""
    order.update(order.event("requires_action"))
    order.update(order.event(late, revision=1))
    assert order.status == KINDS[late]


@pytest.mark.parametrize("stale", ["declined", "requires_action", "needs_review"])
def test_a_stale_outcome_changes_nothing(order: Order, stale: str) -> None:
    """It has a lower revision of the payment's row than the order has seen, or the same one."""
    for behind in (1, 0):
        order.place("PENDING", attempt=1)
        order.update(order.event("requires_action"))
        order.update(order.event(stale, revision=order.revision - behind))
        assert (order.status, order.outcomes) == ("REQUIRES_ACTION", {"1": {"status": "REQUIRES_ACTION"}})


def test_a_newer_outcome_ends_a_review(order: Order) -> None:
    """A person had the payment tried again, and its customer has to authenticate."""
    order.update(order.event("needs_review"))
    order.update(order.event("requires_action"))
    assert order.status == "REQUIRES_ACTION"


@pytest.mark.parametrize("status", ["PENDING", "PAYMENT_DECLINED", "REQUIRES_ACTION", "NEEDS_REVIEW"])
@pytest.mark.parametrize("kind", ["declined", "requires_action"])
def test_an_outcome_of_a_later_attempt_moves_an_order_that_is_older(order: Order, status: str, kind: str) -> None:
    """A restored order does not know its later attempts: it has the outcome's attempt and card from now on."""
    order.place(status, attempt=1)
    order.update(order.event(kind, attempt=3, payment_method="pm_3", advice_code="do_not_try_again"))
    item = order.item
    assert (item["status"], item["attempt"], item["payment_method"]) == (KINDS[kind], 3, "pm_3")
    assert item["refused_payment_methods"] == (["pm_3"] if kind == "declined" else [])
    assert order.outcomes.keys() == {"3"}


def test_an_outcome_that_is_emitted_again_changes_nothing(order: Order) -> None:
    """The order has it already, from a lower revision."""
    for _ in range(2):
        order.update(order.event("declined", advice_code="do_not_try_again"))
    assert order.item["refused_payment_methods"] == ["pm_1"]
    assert order.counted == {"Order.PAYMENT_DECLINED": 1, "OrderUpdateIgnored": 1}


# ---------------------------------------------------------------- the money


@pytest.mark.parametrize("other", [{"amount_minor": 1}, {"amount_minor": 3098}, {"currency": "USD"}])
@pytest.mark.parametrize("kind", KINDS)
def test_an_outcome_with_other_money_moves_the_order_to_review(
    order: Order, log: Log, kind: str, other: dict[str, Any]
) -> None:
    """The order's item was lost, and its key used for another cart: what was paid for the first does not pay it."""
    order.update(order.event(kind, **other))
    assert (order.status, order.outcomes) == ("NEEDS_REVIEW", {})
    assert order.counted == {"Order.NEEDS_REVIEW": 1, "Alarm": 1}
    [line] = [line for line in log.lines if line["level"] == "ERROR"]
    assert (line["cause"], line["amount_minor"], line["currency"]) == (
        "MoneyDiffers",
        other.get("amount_minor", 3097),
        other.get("currency", "EUR"),
    )


@pytest.mark.parametrize("status", ["PAID", "CANCELED"])
def test_other_money_does_not_move_an_order_that_has_ended(order: Order, status: str) -> None:
    """It is an alarm all the same."""
    order.place(status, attempt=1)
    order.update(order.event("succeeded", amount_minor=1, amount_refunded_minor=1))
    assert (order.status, "stripe_refunded_minor" in order.item) == (status, False)
    assert order.counted == {"OrderUpdateIgnored": 1, "Alarm": 1}


def test_the_outcome_of_each_attempt_is_stored(order: Order) -> None:
    """With its decline code and Stripe's advice."""
    order.place("PENDING", attempt=2)
    order.update(order.event("requires_action", attempt=2))
    assert order.outcomes == {"2": {"status": "REQUIRES_ACTION"}}
    order.update(order.event("declined", attempt=2))
    assert order.outcomes["2"] == {
        "status": "PAYMENT_DECLINED",
        "decline_code": "insufficient_funds",
        "advice_code": "try_again_later",
    }


def test_the_advice_after_a_decline_is_stored_with_the_card(order: Order) -> None:
    """After do_not_try_again the attempt's payment method is refused, after any other advice it is not."""
    order.update(order.event("declined", advice_code="do_not_try_again"))
    assert order.item["refused_payment_methods"] == ["pm_1"]
    order.place("PENDING", attempt=2)
    order.update(order.event("declined", attempt=2))
    assert order.item["refused_payment_methods"] == []


def test_an_order_that_stripe_has_given_up_is_marked(order: Order) -> None:
    """So that paying again is refused."""
    order.update(order.event("declined", decline_code="generic_decline"))
    assert "takes_no_attempt" not in order.item
    order.place("PENDING", attempt=2)
    order.update(order.event("declined", attempt=2, decline_code="no_attempt_left"))
    assert order.item["takes_no_attempt"] is True


def test_stripes_total_of_refunds_is_the_newest(order: Order) -> None:
    """It decreases when a refund fails. The events arrive in any order, and more than once."""
    amounts = {3: 100, 4: 900, 5: 400}
    for revisions in permutations(amounts):
        order.place("PENDING", attempt=1)
        for revision in (*revisions, *revisions):
            order.update(order.event("succeeded", amount_refunded_minor=amounts[revision], revision=revision))
        order.update(order.event("succeeded", revision=6))
        assert (order.status, order.item["stripe_refunded_minor"]) == ("PAID", 400), revisions


def test_a_stale_event_does_not_reopen_a_dispute(order: Order) -> None:
    """In whichever order the events arrive, the dispute ends as it ended at Stripe."""
    for revisions in permutations((4, 5, 6)):
        order.place("PENDING", attempt=1)
        statuses = {4: "needs_response", 5: "under_review", 6: "lost"}
        for revision in revisions:
            order.update(order.event("succeeded", dispute_status=statuses[revision], revision=revision))
        assert (order.status, order.item["dispute_status"]) == ("PAID", "lost"), revisions


def test_only_a_final_status_expires(order: Order) -> None:
    """Counted from when the payment was final, so that the payment's row outlives the order."""
    for kind in KINDS:
        order.place("PENDING", attempt=1)
        order.update(order.event(kind))
        expires = kind in ("succeeded", "declined", "canceled")
        wanted = int(OCCURRED_AT.timestamp()) + RETENTION_SECONDS if expires else None
        assert order.item.get("expires_at") == wanted, kind


@pytest.mark.parametrize("data", [{}, {"amount_refunded_minor": 1, "dispute_status": "lost"}], ids=str)
def test_an_unknown_order_is_an_error(order: Order, data: dict[str, Any]) -> None:
    """The message is retried and ends in the DLQ; no order is created."""
    order.dynamodb.delete_item(TableName=order.table, Key=order.key)
    with pytest.raises(NoSuchOrder):
        order.update(order.event("succeeded", **data))
    assert "Item" not in order.dynamodb.get_item(TableName=order.table, Key=order.key)


@pytest.mark.parametrize(
    ("type_", "model"),
    [
        ("payment.succeeded", PaymentOutcomeEvent),
        ("payment.canceled", PaymentOutcomeEvent),
        ("refund.succeeded", RefundOutcomeEvent),
        ("refund.failed", RefundOutcomeEvent),
    ],
)
def test_every_kind_of_outcome_is_read(sample: Sample, type_: str, model: type) -> None:
    """By the event's type."""
    assert type(PAYMENT_EVENT.validate_json(outcome_body(sample, type_))) is model


@pytest.mark.parametrize("type_", ["onecharge.order.placed", "onecharge.refund.succeeded", "4000056655665556"])
def test_data_of_another_type_is_poison(sample: Sample, type_: str) -> None:
    """And the reason does not repeat what it says."""
    body = sample("update_order/payment_succeeded")["Records"][0]["body"]
    with pytest.raises(ValidationError) as invalid:
        PAYMENT_EVENT.validate_json(body.replace("onecharge.payment.succeeded", type_))
    assert "4000056655665556" not in reason_of(invalid.value)
