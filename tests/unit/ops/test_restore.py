"""`restore`: lost rows come back, and rows, orders and Stripe agree again, whichever of them was set back."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from onecharge.contract.events import EventType
from onecharge.contract.states import PaymentState
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.schema import StoredOrder
from onecharge.payments.payment_intents import PaymentIntents, Response
from onecharge.payments.stripe_events import ReconcileCheckpoint
from onecharge.payments.stripe_responses import Failure, ResponseKind
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import to_item
from ops import restore
from ops.errors import Problem
from tests.shop.builders import SHOP
from tests.support.harness import create_table
from tests.support.operated_stack import FREE, HOUR, OperatedStack

NOW = int(time.time())
REFUND_ID = "rfd_" + "b" * 32
COPY = ("restore", "copy", "--table", "PaymentsTable", "--from", "restored")


def put_restored(shop: OperatedStack, order_id: str, **values: Any) -> None:
    item = to_item({"order_id": order_id, "state": "SUCCEEDED", "revision": 3} | values)
    shop.dynamodb.put_item(TableName="restored", Item=item)


@pytest.fixture
def shop(operated: OperatedStack) -> OperatedStack:
    """A stack that has lost its payments, and the table that DynamoDB restored beside it."""
    create_table(operated.dynamodb, "restored", "PaymentsTable")
    for number in range(40):
        put_restored(operated, f"ord_{number}")
    return operated


def rows(shop: OperatedStack) -> dict[str, str]:
    items = shop.dynamodb.scan(TableName=shop.stack.resource("PaymentsTable"))["Items"]
    return {each["order_id"]["S"]: each["state"]["S"] for each in items}


def test_lost_rows_come_back(shop: OperatedStack) -> None:
    """A dry run only counts them; a second run has nothing left to do."""
    status, document, _ = shop.ops(*COPY)
    assert (status, document["rows"], rows(shop)) == (1, {restore.MISSING: 40}, {})
    assert shop.ops(*COPY, "--yes")[1]["rows"] == {restore.COPIED: 40}
    assert rows(shop) == {f"ord_{number}": "SUCCEEDED" for number in range(40)}
    status, document, _ = shop.ops(*COPY, "--yes")
    assert (status, document["rows"]) == (0, {restore.SAME: 40})


def test_a_row_that_exists_is_never_touched(shop: OperatedStack) -> None:
    """Whatever its state and its revision: its writer knew what happened since. It is named."""
    shop.put("PaymentsTable", order_id="ord_1", state="SUCCEEDED", revision=9)
    shop.put("PaymentsTable", order_id="ord_2", state="PENDING", revision=1)
    for words in (COPY, (*COPY, "--yes")):
        document = shop.ops(*words)[1]
        assert document["rows"][restore.DIFFERENT] == 2
        assert sorted(document["different"]) == ["ord_1", "ord_2"]
    assert rows(shop)["ord_2"] == "PENDING"
    assert len(rows(shop)) == 40


def test_a_row_that_appears_meanwhile_is_not_touched(shop: OperatedStack) -> None:
    """Between the scan and the write: a worker has claimed the order."""
    page = shop.dynamodb.scan(TableName="restored", Limit=2)["Items"]
    shop.put("PaymentsTable", order_id=page[0]["order_id"]["S"], state="PENDING", revision=1)
    target = shop.stack.resource("PaymentsTable")
    results = [restore.copy(shop.stack, target, ["order_id"], item, is_dry_run=False) for item in page]
    assert results == [restore.DIFFERENT, restore.COPIED]


def test_a_row_loses_its_release(shop: OperatedStack) -> None:
    """A later release may have let a PaymentIntent be created under other keys; a second run sees the same row."""
    put_restored(shop, "ord_released", state="PENDING", released_at=NOW - 3600)
    for result in (restore.COPIED, restore.SAME):
        assert shop.ops(*COPY, "--yes")[1]["rows"] == {result: 41}
        assert "released_at" not in shop.row("ord_released")


def test_an_expired_row_is_not_copied(shop: OperatedStack) -> None:
    """DynamoDB would delete it again."""
    put_restored(shop, "ord_old", expires_at=NOW - 1)
    put_restored(shop, "ord_new", expires_at=NOW + 24 * 3600)
    assert shop.ops(*COPY, "--yes")[1]["rows"] == {restore.COPIED: 41, restore.EXPIRED: 1}


@pytest.mark.parametrize("table", restore.TABLES)
def test_only_a_table_of_the_same_indexes_is_copied(operated: OperatedStack, table: str) -> None:
    """Orders and Payments have the same key, and the other one's rows would keep the right ones from coming back."""
    for other in {*restore.TABLES} - {table}:
        create_table(operated.dynamodb, f"restored-{other}", other)
        with pytest.raises(Problem, match="has other keys or indexes"):
            operated.ops("restore", "copy", "--table", table, "--from", f"restored-{other}", "--yes")
    with pytest.raises(Problem, match="the stack's own table"):
        operated.ops("restore", "copy", "--table", table, "--from", operated.stack.resource(table), "--yes")


# ---------------------------------------------------------------- rows, by Stripe's list


def checkpoints(shop: OperatedStack) -> CheckpointStore[ReconcileCheckpoint]:
    return CheckpointStore(shop.dynamodb, shop.stack.resource("PaymentsStateTable"), ReconcileCheckpoint)


def restored(shop: OperatedStack, *words: str, hours_ago: float = 2) -> tuple[int, dict[str, Any]]:
    """The command, with the mappings of the stack disabled."""
    at = datetime.fromtimestamp(NOW - hours_ago * HOUR, UTC).isoformat()
    return shop.ops("restore", "rows", "--from", at, *words)[:2]


def said(shop: OperatedStack, *words: str) -> list[str]:
    return [each["what"] for each in restored(shop, *words)[1]["found"]]


@pytest.fixture
def reconciled(operated: OperatedStack) -> OperatedStack:
    """A stack whose reconcile has run until a minute ago."""
    checkpoints(operated).write(ReconcileCheckpoint(since=NOW - 60))
    return operated


def put_back(shop: OperatedStack, order: StoredOrder, **row: Any) -> None:
    """The row is an older version of itself."""
    shop.set_payment(order.order_id, **{"state": "PENDING", "finalized_at": None, "expires_at": None, **row})


def test_a_row_that_is_missing_or_behind_is_written(reconciled: OperatedStack) -> None:
    """As sync would; with its refunds and its dispute. A dry run says the same, and changes nothing; so does a second
    run, which has nothing left to say."""
    lost, behind, disputed = reconciled.pay(), reconciled.pay(), reconciled.pay()
    later = reconciled.standin.open_dispute(str(reconciled.payment(disputed.order_id).payment_intent_id))
    own = str(reconciled.payment(behind.order_id).payment_intent_id)
    reconciled.stack.stripe.v1.refunds.create({"payment_intent": own, "amount": 400})
    dispute = reconciled.standin.open_dispute(own)
    reconciled.delete("PaymentsTable", order_id=lost.order_id)
    put_back(reconciled, behind)
    before = reconciled.row(behind.order_id)
    status, dry = restored(reconciled)
    assert (status, reconciled.row(behind.order_id), len(rows(reconciled))) == (1, before, 2)
    status, done = restored(reconciled, "--yes")
    assert (status, done["left"], done["found"]) == (0, [], dry["found"])
    assert {each["order_id"] for each in done["found"]} == {lost.order_id, behind.order_id, disputed.order_id}
    assert reconciled.payment(disputed.order_id).dispute == (later, "needs_response")
    row = reconciled.payment(behind.order_id)
    assert (row.state, row.amount_refunded_minor, row.dispute) == ("SUCCEEDED", 400, (dispute, "needs_response"))
    assert reconciled.payment(lost.order_id).state is PaymentState.SUCCEEDED
    assert said(reconciled, "--yes") == []


@pytest.mark.parametrize("card", [None, "pm_card_visa"])
def test_the_id_of_the_one_payment_intent_is_stored(reconciled: OperatedStack, card: str | None) -> None:
    """The row was put back to before it was stored: even if its 22 hours are over, it is not held. If it was charged,
    the row says so."""
    with reconciled.hours_ago(30):
        order = reconciled.place()
        reconciled.claim(order.order_id, **FREE)
        own = reconciled.intent(order.order_id, confirm=card) if card else reconciled.intent(order.order_id)
    assert restored(reconciled, hours_ago=30)[1]["found"][0]["what"].startswith(f"its row names {own}")
    assert reconciled.payment(order.order_id).payment_intent_id is None
    assert restored(reconciled, "--yes", hours_ago=30)[0] == 0
    row = reconciled.payment(order.order_id)
    assert (row.payment_intent_id, row.state) == (own, "SUCCEEDED" if card else "PENDING")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (({}, {}), "a PaymentIntent too many is open"),
        (({"amount": 100},), "do not agree"),
        (({"metadata": {"order_id": "ord_" + "b" * 32}},), "do not agree"),
        (({"confirm": "pm_card_visa"}, {"confirm": "pm_card_visa"}), "succeeded"),
    ],
    ids=str,
)
def test_what_is_not_certain_is_named_and_left(
    reconciled: OperatedStack, made: tuple[dict[str, Any], ...], says: str
) -> None:
    """Several PaymentIntents, or one that does not agree exactly: a person releases the order."""
    reconciled.intent("ord_" + "e" * 32)
    order = reconciled.place()
    reconciled.claim(order.order_id, **FREE)
    for each in made:
        reconciled.intent(order.order_id, **each)
    before = reconciled.row(order.order_id)
    status, document = restored(reconciled, "--yes")
    assert (status, document["left"], reconciled.row(order.order_id)) == (1, [order.order_id], before)
    assert says in document["found"][0]["what"]


@pytest.mark.parametrize(("status", "state"), [("PAYMENT_DECLINED", "DECLINED"), ("CANCELED", "PENDING")])
def test_an_order_that_has_ended_is_not_confirmed(reconciled: OperatedStack, status: str, state: str) -> None:
    """A late message would charge it: a declined one waits for a card, a canceled one for a person."""
    order = reconciled.place(status=status)
    reconciled.claim(order.order_id, **FREE)
    own = reconciled.intent(order.order_id)
    is_left = status == "CANCELED"
    assert restored(reconciled, "--yes")[1]["left"] == [order.order_id] * is_left
    row = reconciled.payment(order.order_id)
    assert (row.state, row.payment_intent_id) == (state, None if is_left else own)


def test_an_order_that_was_charged_before_the_restored_time_is_not_charged_again(reconciled: OperatedStack) -> None:
    """Its row was put back to before the id was stored. Since then Stripe has executed an earlier create, late: that
    PaymentIntent is open, and the only one that is younger than the restored time."""
    with reconciled.hours_ago(10):
        order = reconciled.place()
        reconciled.claim(order.order_id, **FREE)
        reconciled.intent(order.order_id, confirm="pm_card_visa")
    late = reconciled.intent(order.order_id)
    status, document = restored(reconciled, "--yes")
    assert (status, document["left"]) == (1, [order.order_id])
    assert reconciled.payment(order.order_id).payment_intent_id is None, late


def test_money_that_no_rule_explains_is_named(reconciled: OperatedStack) -> None:
    """A second PaymentIntent has charged; another shop's are left alone."""
    order = reconciled.pay()
    second = reconciled.intent(order.order_id, confirm="pm_card_visa")
    other = "ord_" + "c" * 32
    reconciled.intent(other, confirm="pm_card_visa", metadata={"shop": "another", "order_id": other})
    status, document = restored(reconciled, "--yes")
    assert (status, document["left"]) == (1, [order.order_id])
    assert [second in each["what"] for each in document["found"]] == [True]


def test_a_stripe_that_fails_halfway_is_one_line(reconciled: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it can be repeated."""
    reconciled.delete("PaymentsTable", order_id=reconciled.pay().order_id)

    def no_answer(*_: Any, **__: Any) -> Response:
        return Response(failure=Failure(ResponseKind.NO_ANSWER))

    monkeypatch.setattr(PaymentIntents, "retrieve", no_answer)
    with pytest.raises(Problem, match="run it again"):
        restored(reconciled, "--yes")


def test_another_accounts_key_restores_nothing(reconciled: OperatedStack) -> None:
    """As with `release`: it would show none of our PaymentIntents."""
    reconciled.pay()
    reconciled.standin.assign_api_key("sk_test_operated", "acct_other")
    with pytest.raises(Problem, match="another account's"):
        restored(reconciled, "--yes")


# ---------------------------------------------------------------- outcomes of refunds


def refunded(shop: OperatedStack, **of_refund: Any) -> tuple[str, str]:
    """An order that is paid, and refunded by us; returns its id, and the refund's at Stripe."""
    order_id = shop.pay().order_id
    names = {"order_id": order_id, "refund_id": REFUND_ID}
    known = {"attempt": 1, "amount_minor": 400, "currency": "EUR", "fingerprint": "f", "correlation_id": "c"}
    shop.put("OrderRefundsTable", **names, **known, status="PENDING", requested_at="2026-11-21T12:00:00Z", **of_refund)
    own = shop.payment(order_id).payment_intent_id
    parameters: Any = {"payment_intent": own, "amount": 400, "metadata": {"shop": SHOP, **names}}
    return order_id, shop.stack.stripe.v1.refunds.create(parameters).id


def test_the_outcomes_of_refunds_are_sent_again(reconciled: OperatedStack) -> None:
    """With Stripe's total, after the row has it; what a bank has returned as FAILED. A dry run sends nothing."""
    order_id, made = refunded(reconciled)
    assert f"the outcome of {REFUND_ID} is sent again" in said(reconciled)
    assert reconciled.sns.published == []
    for event_type, total in ((EventType.REFUND_SUCCEEDED, 400), (EventType.REFUND_FAILED, 0)):
        assert restored(reconciled, "--yes")[0] == 0
        event = reconciled.sns.published.pop()
        assert (event.type, event.data.refund_id, event.data.stripe_refund_id) == (event_type, REFUND_ID, made)
        row = reconciled.payment(order_id)
        assert event.data.amount_refunded_minor == row.amount_refunded_minor == total
        reconciled.standin.fail_refund(made)


def test_a_refund_that_our_tables_lost_is_named(reconciled: OperatedStack) -> None:
    """Nothing would take its outcome. One that was made by hand, or by another shop, is none of ours."""
    order_id, _ = refunded(reconciled)
    own, refunds = str(reconciled.payment(order_id).payment_intent_id), reconciled.stack.stripe.v1.refunds
    refunds.create({"payment_intent": own, "amount": 100})
    names = {"shop": "another", "order_id": "ord_" + "c" * 32, "refund_id": "rfd_" + "c" * 32}
    refunds.create({"payment_intent": own, "amount": 100, "metadata": names})
    reconciled.delete("OrderRefundsTable", order_id=order_id, refund_id=REFUND_ID)
    assert restored(reconciled, "--yes")[1]["left"] == [order_id]
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
    """Orders alone were restored: the customer paid since, and nothing else asks for an order that was declined."""
    unseen = pair(reconciled, 1, "PAYMENT_DECLINED", 5, "SUCCEEDED", 9)
    seen = pair(reconciled, 2, "PAID", 9, "SUCCEEDED", 9)
    pending = pair(reconciled, 3, "PENDING", 0, "PENDING", 9)
    before = {each: reconciled.row(each) for each in (unseen, seen, pending)}
    status, dry = restored(reconciled)
    assert (status, dry["payments"]) == (1, {restore.EMITTED: 1, restore.SEEN: 2})
    assert {each: reconciled.row(each) for each in before} == before
    status, done = restored(reconciled, "--yes")
    assert (status, done["payments"]) == (0, dry["payments"])
    row = reconciled.row(unseen)
    assert (row["state"], row["last_emitted_at"] >= NOW, row["revision"] >= NOW) == ("SUCCEEDED", True, True)
    assert {each: reconciled.row(each) for each in (seen, pending)} == {each: before[each] for each in (seen, pending)}


@pytest.mark.parametrize("ahead_seconds", [-50, 1800])
def test_a_revision_is_raised_above_what_the_order_has_seen(reconciled: OperatedStack, ahead_seconds: int) -> None:
    """Payments alone were restored, or another clock was ahead: what the row says counts again."""
    seen = NOW + ahead_seconds
    order_id = pair(reconciled, 1, "PAID", seen, "SUCCEEDED", 5)
    pair(reconciled, 2, "PENDING", seen, "PENDING", 5)
    assert restored(reconciled, "--yes")[1]["payments"] == {restore.EMITTED: 1, restore.SEEN: 1}
    assert reconciled.row(order_id)["revision"] > seen


def test_a_row_that_was_put_back_says_first_what_stripe_says(reconciled: OperatedStack) -> None:
    """Its PaymentIntent and the refund by hand are older than the restored time, and the order knows the refund: the
    row's old total would let it be refunded again."""
    with reconciled.hours_ago(60 * 24):
        order_id = reconciled.pay().order_id
    own = reconciled.payment(order_id).payment_intent_id
    reconciled.stack.stripe.v1.refunds.create({"payment_intent": str(own), "amount": 700})
    reconciled.set_order(order_id, payment_revision=NOW - 34 * 24 * HOUR, stripe_refunded_minor=700)
    before = reconciled.row(order_id)
    assert restored(reconciled)[1]["payments"] == {restore.EMITTED: 1}
    assert reconciled.row(order_id) == before
    assert restored(reconciled, "--yes")[1]["payments"] == {restore.EMITTED: 1}
    row = reconciled.row(order_id)
    assert (row["amount_refunded_minor"], row["last_emitted_at"] >= NOW) == (700, True)


def test_payments_whose_order_is_lost_are_listed(reconciled: OperatedStack) -> None:
    """Their outcome would move nothing."""
    order_id = reconciled.pay().order_id
    reconciled.delete("OrdersTable", order_id=order_id)
    status, document = restored(reconciled, "--yes")
    assert (status, document["payments"], document["left"]) == (1, {restore.ORDER_LOST: 1}, [order_id])


@pytest.mark.parametrize(
    ("stored", "refunds", "becomes"),
    [
        (None, {"PENDING": 400, "SUCCEEDED": 300, "FAILED": 100}, 400),
        (400, {"FAILED": 400}, 0),
        (400, {"PENDING": 400}, 400),
        (None, {}, None),
        (400, {}, 0),
    ],
)
def test_the_sum_of_pending_refunds_is_counted_again(
    reconciled: OperatedStack, stored: int | None, refunds: dict[str, int], becomes: int | None
) -> None:
    """One of both tables was restored: what is left to refund follows from this sum."""
    order_id = pair(reconciled, 1, "PAID", 9, "SUCCEEDED", 9)
    reconciled.set_order(order_id, pending_refunds_minor=stored)
    for number, (status, amount) in enumerate(refunds.items()):
        known = {"order_id": order_id, "refund_id": f"rfd_{number:032x}", "attempt": 1, "amount_minor": amount}
        given = {"currency": "EUR", "fingerprint": "f", "requested_at": "2026-11-21T12:00:00Z", "correlation_id": "c"}
        reconciled.put("OrderRefundsTable", **known, **given, status=status)
    for words, then in (((), stored), (("--yes",), becomes)):
        assert restored(reconciled, *words)[1]["payments"].get(restore.COUNTED, 0) == (becomes != stored)
        assert reconciled.get("OrdersTable", order_id=order_id).get("pending_refunds_minor") == then


def test_a_sum_that_changes_meanwhile_is_left(reconciled: OperatedStack) -> None:
    """Staff requests a refund between the reads and the write."""
    order_id = pair(reconciled, 1, "PAID", 9, "SUCCEEDED", 9)
    refunds = OrderRefundStore(
        reconciled.dynamodb, reconciled.stack.resource("OrderRefundsTable"), reconciled.orders.table
    )
    # The sum may be the same again: another refund ended.
    for stored in (None, 400, 300):
        reconciled.set_order(order_id, pending_refunds_minor=stored)
        before = reconciled.order(order_id)
        reconciled.set_order(order_id, pending_refunds_minor=300, refunds_revision=before.refunds_revision + 1)
        assert not refunds.count(before, [])
        assert reconciled.order(order_id).pending_refunds_minor == 300


def test_an_order_that_cannot_be_read_stops_no_restore(reconciled: OperatedStack) -> None:
    """Its pending refunds are not counted, which is said; its payment is emitted all the same."""
    order_id = pair(reconciled, 1, "PAID", 8, "SUCCEEDED", 9)
    reconciled.set_order(order_id, currency="nonsense")
    found = restored(reconciled, "--yes")[1]["payments"]
    assert (found[restore.UNREADABLE], found[restore.EMITTED]) == (1, 1)


def test_more_rows_than_one_request_reads_are_compared(reconciled: OperatedStack) -> None:
    """Each once."""
    reconciled.claim("ord_" + "0" * 32, **FREE)
    row = reconciled.row("ord_" + "0" * 32)
    for number in range(1, 101):
        reconciled.put("PaymentsTable", **{**row, "order_id": f"ord_{number:032x}"})
    assert restored(reconciled, "--yes")[1]["payments"] == {restore.ORDER_LOST: 101}


# ---------------------------------------------------------------- events


def test_reconcile_reads_the_events_again(reconciled: OperatedStack) -> None:
    """Also those that Stripe created before the restored time, and that were applied later: what changed since of an
    older PaymentIntent is in them alone. A dry run changes nothing, and no event is skipped."""

    def since() -> int:
        checkpoint = checkpoints(reconciled).read()
        assert checkpoint is not None
        return checkpoint.since

    restored(reconciled)
    assert since() == NOW - 60
    for hours_ago in (2, 0):
        restored(reconciled, "--yes", hours_ago=hours_ago)
        assert since() == NOW - 2 * HOUR - restore.EVENT_LATE_SECONDS


def test_a_time_without_a_zone_is_refused(operated: OperatedStack) -> None:
    """It could be hours off."""
    with pytest.raises(SystemExit):
        operated.ops("restore", "rows", "--from", "2026-11-21T12:00:00")
