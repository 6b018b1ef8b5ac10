"""place_due_orders: one order of each document and due date, however often and however many at once it runs.

DynamoDB is in memory here, held to the others' behaviour by tests/contract.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from onecharge.contract.events import OrderPlacedEvent
from onecharge.orders.ids import order_id_of
from onecharge.runtime.dynamodb import from_item
from place_due_orders.due import AT_ONCE, CATCH_UP_DAYS, ONE_STEP_SECONDS, REPORTED_DAYS
from tests.support.due_orders import NOON, RUN_ID, TODAY, Calendar, Crash, event_from_record
from tests.support.harness import Log, load_template

MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)
"""When the orders of its documents were placed, whenever the run was."""
CARD = "4242424242424242"
TOKEN_WITH_CARD = f"pm_{CARD}"


@pytest.fixture
def calendar(log: Log) -> Calendar:
    return Calendar(log)


def days_ago(days: int) -> str:
    return (NOON.date() - timedelta(days)).isoformat()


# ---------------------------------------------------------------- one order


def test_a_document_that_is_due_becomes_one_order(calendar: Calendar) -> None:
    """Its item publishes one OrderPlaced event, with the document's amount; the document names its order. It was placed
    on the due date, and waits since the run."""
    calendar.enter()
    calendar.run()
    [event] = [event_from_record(record) for record in calendar.io.stream]
    assert isinstance(event, OrderPlacedEvent)
    assert (event.data.amount_minor, event.data.currency, event.data.customer_id) == (1099, "EUR", "cus_1")
    assert (event.data.payment_method, event.data.attempt, event.data.placed_at) == ("pm_card_visa", 1, MIDNIGHT)
    assert event.correlationid == f"{RUN_ID}:inv-1"
    assert calendar.io.stream[0]["dynamodb"]["NewImage"]["waiting_since"] == {"S": NOON.isoformat()}
    document = calendar.document()
    assert (document["state"], document["order_id"]) == ("ORDERED", event.data.order_id)
    assert calendar.counted == ["DueOrderPlaced"]
    [line] = [line for line in calendar.log.lines if "order_id" in line]
    assert (line["order_id"], line["attempt"], line["correlation_id"]) == (event.subject, 1, event.correlationid)


def test_many_runs_place_one_order_of_each_document(calendar: Calendar) -> None:
    """On the same day, and on the days after."""
    for number in range(5):
        calendar.enter(f"inv-{number}")
    for days in (0, 0, 0, 1, CATCH_UP_DAYS, CATCH_UP_DAYS + 1):
        calendar.now = NOON + timedelta(days)
        calendar.run()
    assert calendar.ordered() == {f"inv-{number}": 1 for number in range(5)}
    assert calendar.states() == {"ORDERED": 5}


def test_each_document_and_due_date_has_one_order(calendar: Calendar) -> None:
    """A subscription has one order for each date; two documents of one date have one each."""
    calendar.enter("sub-1", days_ago(1))
    calendar.enter("sub-1")
    calendar.enter("sub-2")
    calendar.run()
    assert calendar.ordered() == {"sub-1": 2, "sub-2": 1}
    assert len(calendar.dynamodb.tables["Orders"]) == 3


def test_no_customer_can_choose_the_order_id_of_a_document(calendar: Calendar) -> None:
    """Whatever customer id and idempotency key are sent to the API: the parts of the id are two there, three here."""
    calendar.enter("inv-1")
    calendar.run()
    order_id = calendar.document()["order_id"]
    parts = ["due", "inv-1", TODAY]
    assert order_id == order_id_of(*parts)
    chosen = [(one, other) for one in (*parts, "".join(parts)) for other in (*parts, "".join(parts))]
    assert order_id not in {order_id_of(one, other) for one, other in chosen}


# ---------------------------------------------------------------- retries, double starts, crashes


def three_documents(calendar: Calendar) -> Calendar:
    for number in range(3):
        calendar.enter(f"inv-{number}")
    return calendar


def at_each_boundary(log: Log, happens: Callable[[Calendar], object]) -> Iterator[Calendar]:
    """Run over three documents, once for each boundary before or after a request, at which something happens."""
    undisturbed = three_documents(Calendar(log))
    undisturbed.run()
    for boundary in range(1, undisturbed.io.boundaries + 1):
        calendar = three_documents(Calendar(log))

        def reached(number: int, _: str, boundary: int = boundary, calendar: Calendar = calendar) -> None:
            if number == boundary:
                happens(calendar)

        calendar.io.at = reached
        with suppress(Crash):
            calendar.run()
        yield calendar


ONCE_EACH = {"inv-0": 1, "inv-1": 1, "inv-2": 1}


def test_a_second_run_at_any_point_orders_nothing_twice(log: Log) -> None:
    """At every boundary before and after every request."""
    for calendar in at_each_boundary(log, Calendar.run):
        assert calendar.ordered() == ONCE_EACH
        assert calendar.states() == {"ORDERED": 3}
        assert set(calendar.counted) <= {"DueOrderPlaced", "DueDocumentChanged"}


def test_a_run_killed_at_any_point_is_continued_by_the_next(log: Log) -> None:
    """Before or after any request: no document is left, and none ordered twice."""
    killed = 0

    def kill(_: Calendar) -> None:
        nonlocal killed
        killed += 1
        raise Crash

    for number, calendar in enumerate(at_each_boundary(log, kill), start=1):
        assert killed == number
        calendar.run()
        assert calendar.ordered() == ONCE_EACH
        assert calendar.states() == {"ORDERED": 3}


def test_a_lost_response_loses_and_repeats_no_order(calendar: Calendar) -> None:
    """The write took effect, or did not: the next run reads which."""
    three_documents(calendar)
    lost = ["answer lost", "throttled"]

    def fault(where: str, kinds: Sequence[str]) -> str | None:
        return lost.pop(0) if where == "dynamodb TransactWriteItems" and lost and lost[0] in kinds else None

    calendar.io.faults = fault
    calendar.run()
    assert lost == []
    assert Counter(calendar.counted) == {"DueDocumentFailed": 2, "DueOrderPlaced": 1}
    calendar.run()
    assert calendar.ordered() == ONCE_EACH
    assert calendar.states() == {"ORDERED": 3}


def test_a_transaction_conflict_is_retried_by_the_next_run(calendar: Calendar) -> None:
    """DynamoDB may refuse both: the next run orders it."""
    calendar.enter()
    calendar.io.faults = lambda where, kinds: "transaction conflict" if "transaction conflict" in kinds else None
    calendar.run()
    assert (calendar.counted, calendar.states()) == (["DueDocumentChanged"], {"DUE": 1})
    calendar.io.faults = lambda where, kinds: None
    calendar.run()
    assert calendar.states() == {"ORDERED": 1}


# ---------------------------------------------------------------- the owner of the document


def test_a_document_is_withdrawn_or_ordered_never_both(log: Log) -> None:
    """Whenever its owner withdraws it, the condition that it is DUE decides which of the two it is."""
    withdrawn: list[bool] = []
    for calendar in at_each_boundary(
        log, lambda calendar: withdrawn.append(calendar.owner_sets("inv-1", state="WITHDRAWN"))
    ):
        assert calendar.ordered()["inv-1"] == (0 if withdrawn[-1] else 1)
        assert calendar.document("inv-1")["state"] == ("WITHDRAWN" if withdrawn[-1] else "ORDERED")
    assert {*withdrawn} == {True, False}


def test_the_order_has_the_amount_of_the_document(log: Log) -> None:
    """Whenever its owner changes the amount, the order has the amount that the document keeps."""
    amounts = set()
    for calendar in at_each_boundary(log, lambda calendar: calendar.owner_sets("inv-1", amount_minor=500)):
        calendar.run()
        assert calendar.ordered()["inv-1"] == 1
        document = calendar.document("inv-1")
        order = from_item(calendar.dynamodb.tables["Orders"][document["order_id"],])
        assert order["amount_minor"] == document["amount_minor"]
        amounts.add(order["amount_minor"])
    assert amounts == {1099, 500}


def test_a_document_entered_again_keeps_its_order(calendar: Calendar) -> None:
    """As after a restore of the table: no second order. With another amount it is invalid, and a person decides."""
    for amount_minor in (1099, 1099, 1098):
        calendar.enter(amount_minor=amount_minor)
        calendar.run()
    assert calendar.ordered() == {"inv-1": 1}
    document = calendar.document()
    assert (document["state"], document["reason"]) == ("INVALID", "document: ordered_before_with_other_content")
    assert calendar.counted == ["DueOrderPlaced", "DueOrderReplayed", "DueDocumentInvalid", "Alarm"]


# ---------------------------------------------------------------- many documents, little time


def test_all_pages_of_a_due_date_are_read(calendar: Calendar) -> None:
    """Whatever the size of a page, and though some pages have only documents that are done."""
    for number in range(23):
        calendar.enter(f"inv-{number:02}", state="ORDERED" if 4 <= number < 12 else "DUE")
    calendar.page_size = 4
    calendar.run()
    assert calendar.states() == {"ORDERED": 23}
    assert sum(calendar.ordered().values()) == 15


def test_a_run_out_of_time_is_continued_by_the_next(calendar: Calendar) -> None:
    """With time for a few steps each, the runs together order all of it, and nothing twice."""
    for number in range(20):
        calendar.enter(f"inv-{number:02}")
    runs = 0
    while calendar.states()["DUE"]:
        before = calendar.states()["DUE"]
        calendar.steps_left = CATCH_UP_DAYS + 2
        calendar.run()
        assert calendar.states()["DUE"] < before
        runs += 1
    assert runs > 3
    assert set(calendar.ordered().values()) == {1}
    assert calendar.counted.count("DueRunUnfinished") == runs


def test_finished_documents_make_no_other_late(calendar: Calendar) -> None:
    """However many there are of the days before: only then the run looks for what has no state."""
    calendar.page_size = 2
    for number in range(500):
        calendar.enter(f"inv-{number:03}", days_ago(1), state="ORDERED")
    calendar.enter()
    calendar.steps_left = 2 * (REPORTED_DAYS + 1)
    calendar.run()
    assert calendar.ordered() == {"inv-1": 1}
    assert calendar.counted == ["DueOrderPlaced"]


def test_a_step_fits_into_the_function() -> None:
    """At least twenty times, or a run would end before it orders anything."""
    timeout = load_template()["Resources"]["PlaceDueOrdersFunction"]["Properties"]["Timeout"]
    assert ONE_STEP_SECONDS * 20 <= timeout <= 900


# ---------------------------------------------------------------- days


def test_missed_days_are_caught_up(calendar: Calendar) -> None:
    """For a week, the oldest day first: it is the next to be too old."""
    for days in range(CATCH_UP_DAYS + 1):
        calendar.enter(f"inv-{days}", days_ago(days))
    calendar.run()
    assert list(calendar.ordered()) == [f"inv-{days}" for days in range(CATCH_UP_DAYS, -1, -1)]


@pytest.mark.parametrize("days", [CATCH_UP_DAYS + 1, REPORTED_DAYS])
def test_a_document_due_too_long_ago_is_reported_and_not_ordered(calendar: Calendar, days: int) -> None:
    """A customer does not expect a charge weeks late: a person decides, and until then each run raises the alarm."""
    calendar.enter("inv-1", days_ago(days))
    calendar.run()
    assert calendar.states() == {"DUE": 1}
    assert calendar.counted == ["DueDateMissed", "Alarm"]
    calendar.enter("inv-1", days_ago(days), state="WITHDRAWN")
    calendar.run()
    assert calendar.counted == ["DueDateMissed", "Alarm"]


@pytest.mark.parametrize("days", [CATCH_UP_DAYS + 1, REPORTED_DAYS])
def test_a_document_that_was_ordered_is_never_due_too_long_ago(calendar: Calendar, days: int) -> None:
    """A restore made it DUE again, and it is found weeks later: a person who entered it anew would order it twice."""
    calendar.enter("inv-1")
    calendar.enter("inv-2")
    calendar.run()
    calendar.enter("inv-1")
    calendar.enter("inv-2", amount_minor=500)
    calendar.counted.clear()
    calendar.now += timedelta(days)
    calendar.run()
    assert calendar.counted == ["DueOrderReplayed", "DueDocumentInvalid", "Alarm"]
    assert calendar.document("inv-1")["order_id"] == order_id_of("due", "inv-1", TODAY)
    assert calendar.document("inv-2")["reason"] == "document: ordered_before_with_other_content"
    assert calendar.ordered() == {"inv-1": 1, "inv-2": 1}


def test_one_day_with_late_documents_is_reported_once(calendar: Calendar) -> None:
    """Even if time is up before all of them are looked up."""
    for number in range(2 * AT_ONCE):
        calendar.enter(f"inv-{number}", days_ago(CATCH_UP_DAYS + 1))
    for steps in (1, 2):
        # A page of each day that is ordered, one of the day before them, and some of that day's documents.
        calendar.steps_left = CATCH_UP_DAYS + 2 + steps
        calendar.counted.clear()
        calendar.run()
        assert calendar.counted == ["DueDateMissed", "Alarm", "DueRunUnfinished"]


def test_a_day_begins_at_midnight_utc(calendar: Calendar) -> None:
    """Not a second before."""
    calendar.enter("inv-1", "2026-11-22")
    calendar.now = datetime(2026, 11, 21, 23, 59, 59, tzinfo=UTC)
    calendar.run()
    assert calendar.states() == {"DUE": 1}
    calendar.now += timedelta(seconds=1)
    calendar.run()
    assert calendar.states() == {"ORDERED": 1}


# ---------------------------------------------------------------- invalid documents

INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "amount zero": ({"amount_minor": 0}, "amount_minor: greater_than_equal"),
    "an amount below the minimum": ({"amount_minor": 49}, "message: amount_too_small"),
    "no amount": ({"amount_minor": None}, "amount_minor: missing"),
    "unknown currency": ({"currency": "xxx"}, "currency: unknown_currency"),
    "a fils that Stripe cannot charge": ({"currency": "kwd", "amount_minor": 1255}, "message: amount_not_chargeable"),
    "a card number as payment method": ({"payment_method": TOKEN_WITH_CARD}, "payment_method: card_number"),
    "a card number as customer": ({"customer_id": CARD}, "customer_id: card_number"),
    "a payment method that is a list": ({"payment_method": [CARD]}, "payment_method: string_type"),
    "an unknown state": ({"state": "due"}, "state: literal_error"),
    "no state": ({"state": None}, "state: missing"),
    "nothing at all": (
        dict.fromkeys(["customer_id", "amount_minor", "currency", "payment_method", "state"]),
        "customer_id: missing",
    ),
}


@pytest.mark.parametrize(("changes", "reason"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_document_is_marked_and_blocks_no_other(
    calendar: Calendar, changes: dict[str, Any], reason: str
) -> None:
    """With the reason and one alarm; no digit of a card number is logged."""
    three_documents(calendar)
    calendar.enter("inv-1", **changes)
    calendar.run()
    calendar.run()
    assert calendar.ordered() == {"inv-0": 1, "inv-2": 1}
    document = calendar.document("inv-1")
    assert (document["state"], document["reason"]) == ("INVALID", reason)
    assert Counter(calendar.counted) == {"DueOrderPlaced": 2, "DueDocumentInvalid": 1, "Alarm": 1}
    assert reason in calendar.log.text
    assert "42424242" not in calendar.log.text


def test_a_fractional_amount_is_invalid(calendar: Calendar) -> None:
    """DynamoDB's numbers may be fractions; an amount is an integer."""
    calendar.enter("inv-1")
    calendar.dynamodb.tables["DueDocuments"][TODAY, "inv-1"]["amount_minor"] = {"N": "10.5"}
    calendar.enter("inv-2")
    calendar.run()
    assert calendar.ordered() == {"inv-2": 1}
    item = calendar.dynamodb.tables["DueDocuments"][TODAY, "inv-1"]
    assert (item["state"]["S"], item["reason"]["S"]) == ("INVALID", "message: not_a_whole_number")


@pytest.mark.parametrize("document_id", [CARD, "inv 1", "x" * 65])
def test_an_id_that_cannot_be_logged_is_invalid(calendar: Calendar, document_id: str) -> None:
    """It is part of the correlation id; and the log does not repeat it."""
    calendar.enter(document_id)
    calendar.run()
    assert calendar.document(document_id)["state"] == "INVALID"
    assert document_id not in calendar.log.text


def test_a_corrected_document_is_ordered(calendar: Calendar) -> None:
    """Set to DUE again, by the next run."""
    calendar.enter(amount_minor=0)
    calendar.run()
    calendar.enter(amount_minor=50)
    calendar.run()
    assert calendar.ordered() == {"inv-1": 1}


def test_a_document_changed_meanwhile_is_not_marked(calendar: Calendar) -> None:
    """It has changed since it was read; and the mark does not create a deleted one."""
    for document_id in ("inv-1", "inv-2"):
        calendar.enter(document_id, **INVALID["nothing at all"][0])

    def corrected_and_deleted(number: int, where: str) -> None:
        if where == "dynamodb UpdateItem":
            calendar.io.at = lambda number, where: None
            calendar.enter("inv-1")
            calendar.dynamodb.tables["DueDocuments"].pop((TODAY, "inv-2"))

    calendar.io.at = corrected_and_deleted
    calendar.run()
    assert calendar.counted == ["DueDocumentChanged"] * 2
    assert calendar.states() == {"DUE": 1}


@pytest.mark.parametrize(
    "error",
    [RuntimeError("unforeseen"), ClientError({"Error": {"Code": "AccessDeniedException"}}, "TransactWriteItems")],
    ids=["our code", "a missing right"],
)
def test_an_unexpected_failure_blocks_no_other(calendar: Calendar, error: Exception) -> None:
    """It stays DUE, with an alarm, and the next run tries again."""
    three_documents(calendar)

    def fail(number: int, where: str) -> None:
        if where == "dynamodb TransactWriteItems":
            calendar.io.at = lambda number, where: None
            raise error

    calendar.io.at = fail
    calendar.run()
    assert Counter(calendar.counted) == {"DueDocumentFailed": 1, "Alarm": 1, "DueOrderPlaced": 2}
    assert calendar.states() == {"DUE": 1, "ORDERED": 2}
    calendar.run()
    assert calendar.ordered() == ONCE_EACH


def test_an_unavailable_table_fails_the_run(calendar: Calendar) -> None:
    """The next run continues. If all fail, as when a right is missing, the function's errors are the alarm."""
    calendar.enter()
    calendar.io.faults = lambda where, kinds: "throttled" if where == "dynamodb Query" else None
    with pytest.raises(ClientError):
        calendar.run()
    calendar.io.faults = lambda where, kinds: None
    calendar.run()
    assert calendar.states() == {"ORDERED": 1}
