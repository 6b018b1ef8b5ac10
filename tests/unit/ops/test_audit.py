"""`audit`: Stripe's balance transactions against our rows; what is tampered with is found, to the cent."""

import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import stripe

from onecharge.contract.refunds import RefundRequested, RefundRequestedEvent
from onecharge.orders.schema import StoredOrder
from ops.audit import DIFFERENCES_MAX, Audited, compare
from ops.books import Booked, Kind, StripeBooks, booked_of
from refund_charge.refund import refund_charge
from tests.shop.builders import SHOP
from tests.support.operated_stack import OperatedStack

REFUND_ID = "rfd_" + "b" * 32
DAY = timedelta(days=1)


def audit(shop: OperatedStack, since: int = -1, until: int = 1, *, today: datetime | None = None) -> dict[str, Any]:
    """From yesterday until tomorrow, so that no test depends on the hour that it runs in."""
    today = today or datetime.now(UTC)
    since_day, until_day = (f"{today + offset * DAY:%Y-%m-%d}" for offset in (since, until))
    status, document, text = shop.ops("audit", "--from", since_day, "--to", until_day)
    assert status == (1 if document["different"] or document["orders"] else 0)
    return document | {"text": text.strip()}


def only(shop: OperatedStack) -> dict[str, Any]:
    """The one difference; the totals explain it."""
    document = audit(shop)
    [difference] = document["differences"]
    assert document["different"] == 1
    assert sum(total["difference_minor"] for total in document["totals"]) == difference["difference_minor"]
    found: dict[str, Any] = difference
    return found


def sums(document: dict[str, Any]) -> dict[str, int]:
    """Stripe's, of what balances."""
    assert document["different"] == 0
    return {total["what"]: total["at_stripe_minor"] for total in document["totals"]}


def pay_by_hand(operated: OperatedStack, amount: int = 999, **metadata: str) -> stripe.PaymentIntent:
    """A charge of the same account that this application has not made."""
    intent = operated.intent("", amount=amount, confirm="pm_card_visa", metadata=metadata)
    return operated.stack.stripe.v1.payment_intents.retrieve(intent)


# ---------------------------------------------------------------- orders


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"status": "PAYMENT_DECLINED"}, "the payment succeeded, and the order is PAYMENT_DECLINED"),
        ({"amount_minor": 1}, "the payment succeeded with other money than the order's"),
        ({"status": "PAID"}, None),
    ],
)
def test_an_order_that_is_not_paid_although_it_is_charged_is_found(
    operated: OperatedStack, changes: dict[str, Any], why: str | None
) -> None:
    """As after a restore of the Orders table alone: no money differs."""
    order = operated.pay()
    operated.set_order(order.order_id, **changes)
    document = audit(operated)
    assert (document["different"], [each["why"] for each in document["orders"]]) == (0, [why] if why else [])


def test_an_order_that_is_paid_without_a_charge_is_found(operated: OperatedStack) -> None:
    """Its payment is lost, or an older one; so is a payment whose order is lost."""
    paid, lost = operated.pay(), operated.pay()
    for order in (paid, lost):
        operated.set_order(order.order_id, paid_at=datetime.now(UTC).isoformat())
    operated.set_payment(paid.order_id, state="PENDING")
    operated.delete("OrdersTable", order_id=lost.order_id)
    differing = {each["order_id"]: each["why"] for each in audit(operated)["orders"]}
    assert differing == {
        paid.order_id: "the order is PAID, its payment PENDING",
        lost.order_id: "the payment succeeded, and the order is lost",
    }


# ---------------------------------------------------------------- it balances


def test_what_was_charged_balances(operated: OperatedStack) -> None:
    """Each charge is matched with its row."""
    for _ in range(3):
        operated.pay()
    document = audit(operated)
    [total] = document["totals"]
    assert (document["different"], document["transactions"]) == (0, 3)
    assert (total["what"], total["currency"], total["matched"]) == ("charge", "EUR", 3)
    assert (total["at_stripe_minor"], total["ours_minor"], total["difference_minor"]) == (7500, 7500, 0)
    assert "75.00 EUR" in document["text"]
    assert document["text"].endswith("balanced to the cent")
    elsewhen = audit(operated, -9, -8)
    assert (elsewhen["transactions"], elsewhen["totals"]) == (0, [])


def test_each_currency_is_summed_by_itself(operated: OperatedStack) -> None:
    """Amounts of two currencies are never added."""
    operated.pay()
    operated.pay(currency="USD")
    found = [(each["currency"], each["at_stripe_minor"]) for each in audit(operated)["totals"]]
    assert found == [("EUR", 2500), ("USD", 2500)]


def test_other_charges_of_the_account_are_no_difference(operated: OperatedStack) -> None:
    """Without an order of ours in the metadata, or with another shop's; counted apart."""
    operated.pay()
    pay_by_hand(operated)
    pay_by_hand(operated, order_id="4711")
    of_another_shop = pay_by_hand(operated, order_id="ord_" + "c" * 32, shop="another")
    refund: Any = {"payment_intent": of_another_shop.id, "metadata": {"order_id": "ord_" + "c" * 32}}
    operated.stack.stripe.v1.refunds.create(refund)
    document = audit(operated)
    assert document["different"] == 0
    assert [(each["type"], each["number"], each["sum_minor"]) for each in document["not_ours"]] == [
        ("charge", 3, 2997),
        ("refund", 1, -999),
    ]
    assert "not ours, and not a difference" in document["text"]


@pytest.mark.parametrize("finalized", [-1, 1])
def test_midnight_is_no_difference(operated: OperatedStack, finalized: int) -> None:
    """Booked on one day, finalized on another: looked up by its PaymentIntent, matched or counted apart."""
    order_id = operated.pay().order_id
    finalized_at = operated.row(order_id)["finalized_at"]
    operated.set_payment(order_id, finalized_at=finalized_at + finalized * 2 * 86400)
    that_day = datetime.fromtimestamp(finalized_at, UTC)
    assert audit(operated, today=that_day)["totals"][0]["matched"] == 1
    document = audit(operated, 2 * finalized, 2 * finalized, today=that_day)
    [total] = document["totals"]
    assert (document["different"], total["elsewhen"], total["at_stripe_minor"]) == (0, 1, 0)
    assert "1 of our rows were finalized within this time, and are booked at Stripe at another" in document["text"]


# ---------------------------------------------------------------- what is found


def test_a_second_charge_of_an_order_is_found(operated: OperatedStack) -> None:
    """Made by hand at Stripe, with the order's id: with the command that explains the order."""
    order = operated.pay()
    by_hand = pay_by_hand(operated, amount=2500, order_id=order.order_id)
    difference = only(operated)
    assert (difference["where"], difference["difference_minor"]) == ("at Stripe only", 2500)
    assert (difference["order_id"], difference["stripe_id"]) == (order.order_id, by_hand.latest_charge)
    assert "charged twice, or by hand" in difference["why"]
    text = audit(operated)["text"]
    assert f"python -m ops explain {order.order_id}" in text
    assert text.endswith("1 differences")


def test_a_row_that_was_lost_or_tampered_with_is_found(operated: OperatedStack) -> None:
    """No row, a state that says that no money was taken, another amount or currency."""
    order_id = operated.pay().order_id
    row = operated.row(order_id)
    found = {}
    tampered: dict[str, dict[str, Any]] = {
        "declined": {"state": "DECLINED"},
        "canceled": {"state": "CANCELED"},
        "pending": {"state": "PENDING"},
        "a cent less": {"amount_minor": 2499},
        "a cent more": {"amount_minor": 2501},
        "dollars": {"currency": "USD"},
    }
    for name, changes in tampered.items():
        operated.put("PaymentsTable", **(row | changes))
        found[name] = (only(operated)["where"], only(operated)["difference_minor"])
    operated.delete("PaymentsTable", order_id=order_id)
    found["lost"] = (only(operated)["where"], only(operated)["difference_minor"])
    assert found == {
        **dict.fromkeys(("declined", "canceled", "pending", "lost"), ("at Stripe only", 2500)),
        "a cent less": ("amounts differ", 1),
        "a cent more": ("amounts differ", -1),
        "dollars": ("amounts differ", 2500),
    }


def test_a_row_that_stripe_does_not_know_is_found(operated: OperatedStack) -> None:
    """SUCCEEDED, with a PaymentIntent that is not there, that is not paid, or without one."""
    orders = [operated.pay().order_id for _ in range(3)]
    unpaid = operated.stack.stripe.v1.payment_intents.create({"amount": 2500, "currency": "eur"}).id
    for order_id, intent in zip(orders, ("pi_unknown", unpaid, None), strict=True):
        operated.set_payment(order_id, payment_intent_id=intent)
    document = audit(operated)
    ours = [each for each in document["differences"] if each["where"] == "ours only"]
    assert {each["order_id"] for each in ours} == set(orders)
    # Each was charged with another PaymentIntent than its row names.
    assert document["different"] == 6
    [total] = document["totals"]
    assert (total["at_stripe_minor"], total["ours_minor"]) == (7500, 7500)


def test_a_charge_without_the_order_in_its_metadata_is_found(operated: OperatedStack) -> None:
    """The metadata were changed: Stripe's transaction is not recognized, so our row is alone."""
    order = operated.pay()
    operated.set_payment(order.order_id, payment_intent_id=pay_by_hand(operated, amount=2500).id)
    whys = {each["why"] for each in audit(operated)["differences"]}
    assert "its charge does not name the order in its metadata" in whys


# ---------------------------------------------------------------- refunds by hand, disputes


def refund_by_hand(shop: OperatedStack, order: StoredOrder, amount: int, **metadata: str) -> str:
    intent = str(shop.payment(order.order_id).payment_intent_id)
    parameters: Any = {"payment_intent": intent, "amount": amount, "metadata": metadata}
    return shop.stack.stripe.v1.refunds.create(parameters).id


def test_a_refund_by_hand_is_matched_by_its_total(operated: OperatedStack) -> None:
    """Known once the event has come; until then it is a difference."""
    order = operated.pay()
    refund_by_hand(operated, order, 400)
    assert (only(operated)["kind"], only(operated)["difference_minor"]) == ("refund", -400)
    operated.set_payment(order.order_id, amount_refunded_minor=400)
    assert sums(audit(operated)) == {"charge": 2500, "refund": -400}


def test_a_refund_that_failed_is_booked_both_ways(operated: OperatedStack) -> None:
    """By hand, and back: the two sum up to nothing."""
    operated.standin.fail_refund(refund_by_hand(operated, operated.pay(), 400))
    assert sums(audit(operated)) == {"charge": 2500, "refund": -400, "refund that failed": 400}


def test_a_dispute_that_the_row_does_not_know_is_found(operated: OperatedStack) -> None:
    """It has no metadata: its order is found by the PaymentIntent."""
    order = operated.pay()
    dispute = operated.standin.open_dispute(str(operated.payment(order.order_id).payment_intent_id))
    difference = only(operated)
    assert (difference["kind"], difference["difference_minor"]) == ("dispute", -2500)
    assert difference["order_id"] == order.order_id
    operated.set_payment(order.order_id, dispute_status="needs_response")
    operated.standin.close_dispute(dispute, status="won")
    assert set(sums(audit(operated))) == {"charge", "dispute", "dispute that was won"}


# ---------------------------------------------------------------- refunds that were requested here


def refunded(shop: OperatedStack) -> StoredOrder:
    """An order of which refund_charge has refunded 5.00 EUR."""
    order = shop.pay()
    names = {"order_id": order.order_id, "refund_id": REFUND_ID, "attempt": 1}
    money = {"amount_minor": 500, "currency": "EUR", "requested_at": datetime.fromtimestamp(shop.now(), UTC)}
    requested = RefundRequested.model_validate(names | money)
    refund_charge(RefundRequestedEvent.of(requested, correlation_id="c"), shop.refund_tools())
    return order


def refund_row(shop: OperatedStack, order: StoredOrder) -> dict[str, Any]:
    return shop.get("RefundsTable", order_id=order.order_id, refund_id=REFUND_ID)


def test_a_refund_balances_whichever_day_its_row_is_of(operated: OperatedStack) -> None:
    """The charge and its refund are matched; their sums have their signs."""
    order = refunded(operated)
    assert sums(audit(operated)) == {"charge": 2500, "refund": -500}
    operated.put("RefundsTable", **refund_row(operated, order) | {"finalized_at": int(operated.now()) + 3 * 86400})
    document = audit(operated, 3, 3)
    assert (document["different"], document["totals"][0]["elsewhen"]) == (0, 1)


def test_a_refund_that_failed_balances_if_the_row_knows(operated: OperatedStack) -> None:
    """Booked both ways; a row that still says SUCCEEDED is a difference."""
    order = refunded(operated)
    row = refund_row(operated, order)
    operated.standin.fail_refund(row["stripe_refund_id"])
    document = audit(operated)
    assert document["different"] == 2
    assert {each["why"] for each in document["differences"]} == {
        "the row is SUCCEEDED, and Stripe shows the refund as failed"
    }
    operated.put("RefundsTable", **row | {"state": "FAILED"})
    assert sums(audit(operated)) == {"charge": 2500, "refund": -500, "refund that failed": 500}


def test_a_refund_row_that_was_lost_or_tampered_with_is_found(operated: OperatedStack) -> None:
    """Another amount, a state that says that no money went back, no row; a refund that Stripe does not know."""
    order = refunded(operated)
    row = refund_row(operated, order)
    found = {}
    tampered: dict[str, dict[str, Any]] = {
        "a cent": {"amount_minor": 499},
        "pending": {"state": "PENDING"},
        "failed": {"state": "FAILED"},
    }
    for name, changes in tampered.items():
        operated.put("RefundsTable", **row | changes)
        found[name] = (only(operated)["where"], only(operated)["difference_minor"])
    operated.delete("RefundsTable", order_id=order.order_id, refund_id=REFUND_ID)
    found["lost"] = (only(operated)["where"], only(operated)["difference_minor"])
    assert found == {
        "a cent": ("amounts differ", -1),
        **dict.fromkeys(("pending", "failed", "lost"), ("at Stripe only", -500)),
    }
    operated.put("RefundsTable", **row | {"stripe_refund_id": "re_unknown"})
    assert {(each["where"], each["stripe_id"]) for each in audit(operated)["differences"]} == {
        ("at Stripe only", row["stripe_refund_id"]),
        ("ours only", "re_unknown"),
    }


def test_a_second_refund_of_one_id_is_found(operated: OperatedStack) -> None:
    """Made by hand, with the metadata of ours: the money went back twice."""
    order = refunded(operated)
    second = refund_by_hand(operated, order, 500, order_id=order.order_id, refund_id=REFUND_ID)
    difference = only(operated)
    assert (difference["stripe_id"], difference["difference_minor"]) == (second, -500)


# ---------------------------------------------------------------- Stripe's side


def transaction(**changes: Any) -> Any:
    """A balance transaction in the SDK's objects."""
    charge = {"object": "charge", "id": "ch_1", "amount": 1000, "currency": "eur", "payment_intent": "pi_1"}
    source = charge | {"metadata": {"order_id": "ord_" + "a" * 32}, "status": "succeeded"}
    made = {"object": "balance_transaction", "id": "txn_1", "amount": 1000, "currency": "eur", "created": 5}
    return stripe.BalanceTransaction.construct_from({**made, "type": "charge", "source": source, **changes}, None)


def test_a_converted_charge_counts_in_the_customers_currency() -> None:
    """The account is settled in USD: our row knows the euros."""
    booked = booked_of(transaction(amount=1234, currency="usd"), SHOP)
    assert (booked.amount_minor, booked.currency) == (1000, "EUR")


def test_what_is_not_a_customers_money_is_other() -> None:
    """A fee has no source, a payout another one; a charge that is taken back is not a charge."""
    assert booked_of(transaction(source=None, type="stripe_fee", amount=-5), SHOP).kind is Kind.OTHER
    assert booked_of(transaction(source="po_1", type="payout", amount=-5), SHOP).kind is Kind.OTHER
    assert booked_of(transaction(amount=-1000), SHOP).kind is Kind.REVERSAL


def test_a_request_that_stripe_does_not_answer_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six times, with growing pauses; then it is given up."""
    pauses: list[float] = []
    monkeypatch.setattr("ops.books.time.sleep", pauses.append)
    answers: list[Any] = [stripe.RateLimitError("slow down"), stripe.APIConnectionError("?")]

    def list_(_: Any) -> Any:
        if answers:
            raise answers.pop()
        return SimpleNamespace(data=[transaction()], has_more=False)

    client: Any = SimpleNamespace(v1=SimpleNamespace(balance_transactions=SimpleNamespace(list=list_)))
    [page] = StripeBooks(client, SHOP).pages(0, 10)
    assert (len(page), pauses) == (1, [2.0, 4.0])
    answers = [stripe.RateLimitError("slow down")] * 9
    with pytest.raises(stripe.RateLimitError):
        list(StripeBooks(client, SHOP).pages(0, 10))
    assert len(answers) == 3


# ---------------------------------------------------------------- many


@dataclass
class ManyBooks:
    """An account with so many charges, of which each page is made when it is read."""

    charges: int

    def pages(self, since: int, until: int) -> Iterator[list[Booked]]:
        for start in range(0, self.charges, 100):
            yield [
                Booked(Kind.CHARGE, "charge", 1000, "EUR", each, f"ch_{each}", f"pi_{each}", f"ord_{each}")
                for each in range(start, min(start + 100, self.charges))
            ]


@dataclass
class ManyRows:
    """Their rows, made when they are read."""

    rows: int
    read: list[int] = field(default_factory=list)

    def of(self, keys: Iterable[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
        numbers = [int(key["order_id"].removeprefix("ord_")) for key in keys]
        self.read.append(len(numbers))
        return (self._row(each) for each in numbers if each < self.rows)

    def succeeded(self, since: int, until: int) -> Iterator[dict[str, Any]]:
        return map(self._row, range(self.rows))

    @staticmethod
    def _row(number: int) -> dict[str, Any]:
        paid = {"state": "SUCCEEDED", "amount_minor": 1000, "currency": "EUR"}
        return {"order_id": f"ord_{number}", "payment_intent_id": f"pi_{number}", **paid}


def audited(charges: int, rows: ManyRows) -> Audited:
    stripes: Any = ManyBooks(charges)
    payments: Any = rows
    refunds: Any = ManyRows(0)
    return compare(stripes, payments, refunds, 0, 100_000)


def test_many_transactions_need_little_memory() -> None:
    """A page at a time, one request for the rows of a page; what is kept is an id for each charge."""
    tracemalloc.start()
    rows = ManyRows(20_000)
    found = audited(20_000, rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.transactions, found.different) == (20_000, 0)
    assert found.totals[Kind.CHARGE, "EUR"].matched_minor == 20_000_000
    assert (len(rows.read), max(rows.read)) == (200, 100)
    assert peak < 8 * 1024**2


def test_all_differences_count_and_the_first_are_listed() -> None:
    """Every row of 5,000 is lost, as with another stack's tables: the totals are whole, the list is short."""
    found = audited(5_000, ManyRows(0))
    total = found.totals[Kind.CHARGE, "EUR"]
    assert (found.different, len(found.differences)) == (5_000, DIFFERENCES_MAX)
    assert (total.different, total.difference_minor) == (5_000, 5_000_000)


def test_a_wrong_day_is_refused(operated: OperatedStack) -> None:
    """Not a day, or the days in the wrong order."""
    with pytest.raises(Exception, match="--to is before --from"):
        operated.ops("audit", "--from", "2026-11-02", "--to", "2026-11-01")
    with pytest.raises(SystemExit):
        operated.ops("audit", "--from", "yesterday")
