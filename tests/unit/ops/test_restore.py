"""`restore`: lost rows come back, and rows, orders and Stripe agree again, whichever of them was set back."""

import time
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from onecharge.contract.events import EventType
from onecharge.contract.states import PaymentState
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.payments_table import DUPLICATE, Payment, PaymentStore
from onecharge.payments.stripe_events import ReconcileCheckpoint
from onecharge.payments.stripe_responses import Failure, Response, ResponseKind
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import to_item
from ops import restore
from ops.output import Problem
from tests.shop.builders import SHOP
from tests.support.harness import create_table
from tests.support.operated_stack import FREE, HOUR, OperatedStack

NOW = int(time.time())
ORDER_ID, OTHER_ID, REFUND_ID = "ord_" + "a" * 32, "ord_" + "c" * 32, "rfd_" + "b" * 32
COPY = ("restore", "copy", "--table", "PaymentsTable", "--from", "restored")
EMITTED = "its payment is emitted again"


# ---------------------------------------------------------------- copy


@pytest.fixture
def shop(aws: None, stripe_base: str) -> OperatedStack:
    """A stack on moto, which describes tables, and the table that DynamoDB restored beside its own."""
    made = OperatedStack(stripe_base, clients=boto3.client)  # type: ignore[arg-type]  # The service is not known.
    create_table(made.dynamodb, "restored", "PaymentsTable")
    return made


def test_a_row_that_the_table_lacks_is_copied(shop: OperatedStack) -> None:
    """A dry run only counts. A row that exists was written since, and stays. One that has expired would be deleted
    again. What was released may have been released again since: the copy is not."""
    changes: dict[str, Any] = {
        "ord_1": {},
        "ord_2": {"released_at": NOW - 3600},
        "ord_3": {"expires_at": NOW - 1},
        "ord_4": {"expires_at": NOW + HOUR},
    }
    rows = {id_: {"order_id": id_, "state": "PENDING", "revision": 3, **values} for id_, values in changes.items()}
    for row in rows.values():
        shop.dynamodb.put_item(TableName="restored", Item=to_item(row))
    shop.put("PaymentsTable", order_id="ord_1", state="SUCCEEDED")
    left = {"table": "PaymentsTable", "expired": 1}
    assert shop.ops(*COPY)[:2] == (1, {**left, "left_as_it_is": 1, "missing": 2})
    assert shop.row("ord_2") == {}
    assert shop.ops(*COPY, "--yes")[:2] == (0, {**left, "left_as_it_is": 1, "copied": 2})
    del rows["ord_2"]["released_at"]
    after = {each: shop.row(each) for each in rows}
    assert after == rows | {"ord_1": {"order_id": "ord_1", "state": "SUCCEEDED"}, "ord_3": {}}
    assert shop.ops(*COPY, "--yes")[:2] == (0, {**left, "left_as_it_is": 3})


@pytest.mark.parametrize("table", restore.TABLES)
def test_only_a_table_of_the_same_indexes_is_copied(shop: OperatedStack, table: str) -> None:
    """Orders and Payments have the same key, and the other one's rows would keep the right ones from coming back."""
    other = create_table(shop.dynamodb, "another", next(each for each in restore.TABLES if each != table))
    for source in (other, shop.stack.value(table)):
        with pytest.raises(Problem, match="has other keys or indexes"):
            shop.ops("restore", "copy", "--table", table, "--from", source, "--yes")


# ---------------------------------------------------------------- rows, by Stripe's list


def checkpoints(shop: OperatedStack) -> CheckpointStore[ReconcileCheckpoint]:
    return CheckpointStore(shop.dynamodb, shop.stack.value("PaymentsStateTable"), ReconcileCheckpoint)


def restored(shop: OperatedStack, *words: str, hours_ago: float = 2) -> dict[str, Any]:
    """The command, with the mappings of the stack disabled; its exit status is 0 if it has changed what was to be."""
    at = datetime.fromtimestamp(NOW - hours_ago * HOUR, UTC).isoformat()
    status, document, _ = shop.ops("restore", "rows", "--from", at, *words)
    assert (status == 0) == (bool(words) and not document["a_person_has_to_see_to"])
    return document


def said(shop: OperatedStack, *words: str) -> list[str]:
    return [each["what"] for each in restored(shop, *words)["found"]]


@pytest.fixture
def reconciled(operated: OperatedStack) -> OperatedStack:
    """A stack whose reconcile has run until a minute ago."""
    checkpoints(operated).write(ReconcileCheckpoint(since=NOW - 60))
    return operated


def test_a_row_that_is_missing_or_behind_is_written(reconciled: OperatedStack) -> None:
    """As sync would; with its refunds and its dispute. A dry run says the same, and changes nothing; a second run has
    nothing left to say."""
    lost, behind, disputed = (reconciled.pay().order_id for _ in range(3))
    later = reconciled.standin.open_dispute(str(reconciled.payment(disputed).payment_intent_id))
    reconciled.refund(behind, 400)
    reconciled.delete("PaymentsTable", order_id=lost)
    reconciled.set_payment(behind, state="PENDING", finalized_at=None, expires_at=None)
    before = reconciled.row(behind)
    dry = restored(reconciled)
    assert (reconciled.row(behind), reconciled.row(lost)) == (before, {})
    done = restored(reconciled, "--yes")
    written = [[each for each in of["found"] if each["what"] != EMITTED] for of in (dry, done)]
    assert written[0] == written[1]
    assert {each["order_id"] for each in written[0]} == {lost, behind, disputed}
    assert {*said(reconciled, "--yes")} == {EMITTED}
    assert reconciled.payment(disputed).dispute == (later, "needs_response")
    row = reconciled.payment(behind)
    assert (row.state, row.amount_refunded_minor) == ("SUCCEEDED", 400)
    assert reconciled.payment(lost).state is PaymentState.SUCCEEDED


@pytest.mark.parametrize("card", [None, "pm_card_visa"])
@pytest.mark.parametrize("status", ["PENDING", "PAYMENT_DECLINED", "CANCELED"])
def test_the_id_of_the_one_payment_intent_is_stored(reconciled: OperatedStack, status: str, card: str | None) -> None:
    """The row was put back to before it was stored: even if its 22 hours are over, it is not held. If it was charged,
    the row says so. What is open is not confirmed for an order that has ended: a declined one waits for a card, a
    canceled one for a person."""
    with reconciled.hours_ago(30):
        order_id = reconciled.place(status=status).order_id
        reconciled.claim(order_id, **FREE)
        own = reconciled.intent(order_id, **({"confirm": card} if card else {}))
    is_left = status == "CANCELED" and not card
    assert own in restored(reconciled, hours_ago=30)["found"][0]["what"]
    assert reconciled.payment(order_id).payment_intent_id is None
    assert restored(reconciled, "--yes", hours_ago=30)["a_person_has_to_see_to"] == [order_id] * is_left
    row, open_state = reconciled.payment(order_id), "DECLINED" if status == "PAYMENT_DECLINED" else "PENDING"
    assert (row.payment_intent_id, row.state) == (None if is_left else own, "SUCCEEDED" if card else open_state)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (({}, {}), "a PaymentIntent too many is open"),
        (({"amount": 100},), "do not agree"),
        (({"metadata": {"order_id": OTHER_ID}},), "do not agree"),
        (({"confirm": "pm_card_visa"}, {"confirm": "pm_card_visa"}), "succeeded"),
    ],
    ids=str,
)
def test_what_is_not_certain_is_named_and_left(
    reconciled: OperatedStack, made: tuple[dict[str, Any], ...], says: str
) -> None:
    """Several PaymentIntents, or one that does not agree exactly: a person releases the order."""
    with reconciled.hours_ago(30):
        reconciled.intent("ord_" + "e" * 32)
        order_id = reconciled.place().order_id
        reconciled.claim(order_id, **FREE)
        for each in made:
            reconciled.intent(order_id, **each)
    before, document = reconciled.row(order_id), restored(reconciled, "--yes", hours_ago=30)
    assert (document["a_person_has_to_see_to"], reconciled.row(order_id)) == ([order_id], before)
    assert says in document["found"][0]["what"]


@pytest.mark.parametrize("is_duplicate", [False, True])
def test_what_is_unpaid_of_a_young_order_is_its_workers(reconciled: OperatedStack, *, is_duplicate: bool) -> None:
    """Its keys may return another one: stored, and lost again, the order would be charged by both. A duplicate's row is
    held by its worker, and then released."""
    order_id = reconciled.place().order_id
    reconciled.claim(order_id, **FREE)
    own = reconciled.intent(order_id)
    if is_duplicate:
        reconciled.stack.stripe.v1.payment_intents.cancel(own, {"cancellation_reason": "duplicate"})
    before, document = reconciled.row(order_id), restored(reconciled, "--yes")
    assert (document["found"], reconciled.row(order_id)) == ([], before)


def test_an_order_that_was_charged_before_the_restored_time_is_not_charged_again(reconciled: OperatedStack) -> None:
    """Its row was put back to before the id was stored. Since then Stripe has executed an earlier create, late: that
    PaymentIntent is open, and the only one that is younger than the restored time."""
    with reconciled.hours_ago(10):
        order_id = reconciled.place().order_id
        reconciled.claim(order_id, **FREE)
        reconciled.intent(order_id, confirm="pm_card_visa")
    reconciled.intent(order_id)
    assert restored(reconciled, "--yes")["a_person_has_to_see_to"] == [order_id]
    assert reconciled.payment(order_id).payment_intent_id is None


def test_money_that_no_rule_explains_is_named(reconciled: OperatedStack) -> None:
    """A second PaymentIntent has charged; another shop's are left alone."""
    order_id = reconciled.pay().order_id
    second = reconciled.intent(order_id, confirm="pm_card_visa")
    reconciled.intent(OTHER_ID, confirm="pm_card_visa", metadata={"shop": "another", "order_id": OTHER_ID})
    document = restored(reconciled, "--yes")
    assert document["a_person_has_to_see_to"] == [order_id]
    assert [each["what"] for each in document["found"] if second in each["what"]] != []
    assert OTHER_ID not in str(document)


def test_a_stripe_that_fails_halfway_or_is_another_account_is_one_line(
    reconciled: OperatedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it can be repeated. Another account would show none of our PaymentIntents, as with `release`."""
    reconciled.delete("PaymentsTable", order_id=reconciled.pay().order_id)
    monkeypatch.setattr(PaymentIntents, "retrieve", lambda *_, **__: Response(failure=Failure(ResponseKind.NO_ANSWER)))
    with pytest.raises(Problem, match="run it again"):
        restored(reconciled, "--yes")
    monkeypatch.undo()
    reconciled.pay()
    reconciled.standin.assign_api_key("sk_test_operated", "acct_other")
    with pytest.raises(Problem, match="another account's"):
        restored(reconciled, "--yes")


# ---------------------------------------------------------------- outcomes of refunds


def test_the_outcomes_of_refunds_are_sent_again(reconciled: OperatedStack) -> None:
    """With Stripe's total, after the row has it; what a bank has returned as FAILED. A dry run sends nothing. What
    OrderRefunds has lost is named; what was made by hand, or by another shop, is none of ours."""
    order_id = reconciled.pay().order_id
    reconciled.put_refund(order_id, refund_id=REFUND_ID, amount_minor=400)
    made = reconciled.refund(order_id, 400, shop=SHOP, order_id=order_id, refund_id=REFUND_ID)
    reconciled.refund(order_id, 100)
    reconciled.refund(order_id, 100, shop="another", order_id=OTHER_ID, refund_id="rfd_" + "c" * 32)
    assert f"the outcome of {REFUND_ID} is sent again" in said(reconciled)
    assert reconciled.sns.published == []
    for event_type, total in ((EventType.REFUND_SUCCEEDED, 600), (EventType.REFUND_FAILED, 200)):
        restored(reconciled, "--yes")
        [event] = reconciled.sns.published
        assert (event.type, event.data.refund_id, event.data.stripe_refund_id) == (event_type, REFUND_ID, made)
        assert event.data.amount_refunded_minor == reconciled.payment(order_id).amount_refunded_minor == total
        reconciled.standin.fail_refund(made)
        reconciled.sns.published.clear()
    reconciled.delete("OrderRefundsTable", order_id=order_id, refund_id=REFUND_ID)
    assert restored(reconciled, "--yes")["a_person_has_to_see_to"] == [order_id]
    assert reconciled.sns.published == []


# ---------------------------------------------------------------- orders


def pair(shop: OperatedStack, number: int, status: str, seen: int, state: str, revision: int, **row: Any) -> str:
    """An order that has seen a revision of its payment, and the payment's row."""
    order_id = f"ord_{number:032x}"
    shop.place(order_id=order_id, status=status, payment_revision=seen)
    shop.claim(order_id, at=NOW - 7200, **FREE)
    shop.set_payment(order_id, state=state, revision=revision, finalized_at=NOW - 99, **row)
    return order_id


def test_what_an_order_has_not_seen_is_emitted_again(reconciled: OperatedStack) -> None:
    """Orders alone were restored: the customer paid since, and nothing else asks for an order that was declined. Or
    Payments alone, or another clock was ahead: what the row says counts again, above what the order has seen. An order
    that is lost is named, one that cannot be read is emitted all the same. Each row once, however many pages."""
    ahead = NOW + 1800
    unseen = pair(reconciled, 1, "PAYMENT_DECLINED", 5, "SUCCEEDED", 9)
    put_back = pair(reconciled, 2, "PAID", ahead, "SUCCEEDED", 5)
    unreadable = pair(reconciled, 3, "PAID", 8, "SUCCEEDED", 9)
    reconciled.set_order(unreadable, currency="nonsense")
    quiet = [pair(reconciled, 4, "PAID", 9, "SUCCEEDED", 9), pair(reconciled, 5, "PENDING", 0, "PENDING", 9)]
    lost = [f"ord_{number:032x}" for number in range(100, 201)]
    for order_id in lost:
        reconciled.put("PaymentsTable", **{**reconciled.row(quiet[1]), "order_id": order_id})
    rows = {each: reconciled.row(each) for each in (unseen, put_back, *quiet)}
    for words in ((), ("--yes",)):
        assert {each: reconciled.row(each) for each in rows} == rows
        document = restored(reconciled, *words)
        assert document["a_person_has_to_see_to"] == lost
        found = [(each["order_id"], each["what"]) for each in document["found"] if each["order_id"] not in lost]
        assert sorted(found) == [(each, EMITTED) for each in (unseen, put_back, unreadable)]
    assert min(reconciled.row(unseen)[name] for name in ("revision", "last_emitted_at")) >= NOW
    assert reconciled.row(put_back)["revision"] > ahead
    assert {each: reconciled.row(each) for each in quiet} == {each: rows[each] for each in quiet}


def test_a_row_that_was_put_back_says_first_what_stripe_says(reconciled: OperatedStack) -> None:
    """Its PaymentIntent and the refund by hand are older than the restored time, and the order knows the refund: the
    row's old total would let it be refunded again."""
    with reconciled.hours_ago(60 * 24):
        order_id = reconciled.pay().order_id
    reconciled.refund(order_id, 700)
    reconciled.set_order(order_id, payment_revision=NOW - 34 * 24 * HOUR, stripe_refunded_minor=700)
    before = reconciled.row(order_id)
    assert (said(reconciled), reconciled.row(order_id)) == ([EMITTED], before)
    assert said(reconciled, "--yes") == [EMITTED]
    row = reconciled.row(order_id)
    assert (row["amount_refunded_minor"], row["last_emitted_at"] >= NOW) == (700, True)


def test_a_row_that_names_a_duplicate_is_held_and_named(reconciled: OperatedStack) -> None:
    """However old it is, and though nothing is sent of it."""
    with reconciled.hours_ago(60 * 24):
        order_id = reconciled.place(status="PAID", payment_revision=NOW).order_id
        own = reconciled.intent(order_id)
        reconciled.claim(order_id, payment_intent_id=own, **FREE)
    reconciled.stack.stripe.v1.payment_intents.cancel(own, {"cancellation_reason": "duplicate"})
    assert (said(reconciled, "--yes"), reconciled.payment(order_id).held_because) == (["it is held"], DUPLICATE)


def test_a_row_that_changes_meanwhile_is_named(reconciled: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the scan and the write: whoever changed it has emitted it, or the next run does."""
    order_id = pair(reconciled, 1, "PAID", 8, "SUCCEEDED", 9)
    write = PaymentStore.write_if_unchanged

    def write_late(*given: Any, **named: Any) -> Payment:
        reconciled.set_payment(order_id, revision=10)
        return write(*given, **named)

    monkeypatch.setattr(PaymentStore, "write_if_unchanged", write_late)
    assert restored(reconciled, "--yes")["a_person_has_to_see_to"] == [order_id]
    assert reconciled.row(order_id)["revision"] == 10


# ---------------------------------------------------------------- events


def test_reconcile_reads_the_events_again(reconciled: OperatedStack) -> None:
    """Also those that Stripe created before the restored time, and that were applied later: what changed since of an
    older PaymentIntent is in them alone. A dry run changes nothing, and no event is skipped."""
    for words, hours_ago, since in (
        ((), 2, NOW - 60),
        (("--yes",), 2, NOW - 2 * HOUR - restore.EVENT_LATE_SECONDS),
        (("--yes",), 0, NOW - 2 * HOUR - restore.EVENT_LATE_SECONDS),
    ):
        restored(reconciled, *words, hours_ago=hours_ago)
        checkpoint = checkpoints(reconciled).read()
        assert checkpoint is not None
        assert checkpoint.since == since


def test_wrong_words_are_one_line(operated: OperatedStack) -> None:
    """A time without a zone could be hours off."""
    for wrong in ("2026-11-21T12:00:00", "yesterday"):
        with pytest.raises(Problem, match="is not a time with a zone"):
            operated.ops("restore", "rows", "--from", wrong)
