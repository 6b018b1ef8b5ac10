"""`restore`: lost rows come back, and rows, orders and Stripe agree again, whichever of them was set back."""

import time
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from onecharge.contract.states import PaymentState
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.payments_table import Payment, PaymentStore
from onecharge.payments.stripe_events import ReconcileCheckpoint
from onecharge.payments.stripe_responses import Failure, Response, ResponseKind
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import to_item
from ops import restore
from ops.errors import Problem
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
    """A dry run only counts. A row that exists was written since, and stays. What was released may have been released
    again since: the copy is not."""
    changes: dict[str, Any] = {"ord_1": {}, "ord_2": {"released_at": NOW - 3600}, "ord_3": {}}
    rows = {id_: {"order_id": id_, "state": "PENDING", "revision": 3, **values} for id_, values in changes.items()}
    for row in rows.values():
        shop.dynamodb.put_item(TableName="restored", Item=to_item(row))
    shop.put("PaymentsTable", order_id="ord_1", state="SUCCEEDED")
    of = {"table": "PaymentsTable"}
    assert shop.ops(*COPY)[:2] == (1, {**of, "left_as_it_is": 1, "missing": 2})
    assert shop.row("ord_2") == {}
    assert shop.ops(*COPY, "--yes")[:2] == (0, {**of, "left_as_it_is": 1, "copied": 2})
    del rows["ord_2"]["released_at"]
    after = {each: shop.row(each) for each in rows}
    assert after == rows | {"ord_1": {"order_id": "ord_1", "state": "SUCCEEDED"}}
    assert shop.ops(*COPY, "--yes")[:2] == (0, {**of, "left_as_it_is": 3})


@pytest.mark.parametrize("table", restore.TABLES)
def test_only_a_table_of_the_same_indexes_is_copied(shop: OperatedStack, table: str) -> None:
    """Orders and Payments have the same key, and the other one's rows would keep the right ones from coming back."""
    other = create_table(shop.dynamodb, "another", next(each for each in restore.TABLES if each != table))
    for source in (other, shop.stack.resource(table)):
        with pytest.raises(Problem, match="has other keys or indexes"):
            shop.ops("restore", "copy", "--table", table, "--from", source, "--yes")


# ---------------------------------------------------------------- rows, by Stripe's list


def checkpoints(shop: OperatedStack) -> CheckpointStore[ReconcileCheckpoint]:
    return CheckpointStore(shop.dynamodb, shop.stack.resource("PaymentsStateTable"), ReconcileCheckpoint)


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


def test_a_row_that_was_put_back_to_before_its_id_is_named_and_released(reconciled: OperatedStack) -> None:
    """Its order does not wait, so no message comes for it: `release` looks at Stripe, and stores what was charged."""
    order_id = reconciled.place(status="PAID").order_id
    reconciled.claim(order_id, **FREE)
    own, before = reconciled.intent(order_id, confirm="pm_card_visa"), reconciled.row(order_id)
    assert restored(reconciled, "--yes")["a_person_has_to_see_to"] == [order_id]
    assert reconciled.row(order_id) == before
    assert reconciled.ops("release", order_id, "--yes")[0] == 0
    assert reconciled.row(order_id).items() >= {"state": "SUCCEEDED", "payment_intent_id": own}.items()


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
