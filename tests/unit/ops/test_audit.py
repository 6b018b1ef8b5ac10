"""`audit`: Stripe's balance transactions against our rows; what is tampered with is found, to the cent."""

import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import stripe

from local.stripe_standin.server import running_standin
from onecharge.contract.states import PaymentState
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charges.event_handler import ChargeEventHandler
from onecharge.payments.charges.gateway import StripeGateway
from ops.auditing.auditor import DIFFERENCES_MAX, Audited, Auditor
from ops.auditing.booked import Booked, Charged, Kind, StripeBooks, booked_of
from ops.auditing.rows import PaymentRow
from testing.dlq_stack import DlqStack


@pytest.fixture(scope="module")
def stripe_base() -> Iterator[str]:
    with running_standin() as standin:
        yield standin.base_url


@pytest.fixture
def shop(aws: None, stripe_base: str) -> DlqStack:
    made = DlqStack(stripe_base)
    made.standin.reset()
    return made


def audit(
    shop: DlqStack, since: int = -1, until: int = 1, *, today: datetime | None = None
) -> tuple[int, dict[str, Any], str]:
    """From yesterday until tomorrow, so that no test depends on the hour that it runs in."""
    today = today or datetime.now(UTC)
    since_day, until_day = (f"{today + timedelta(days=offset):%Y-%m-%d}" for offset in (since, until))
    return shop.ops("audit", "--from", since_day, "--to", until_day)


def only(document: dict[str, Any]) -> dict[str, Any]:
    """The one difference; the totals explain it."""
    [difference] = document["differences"]
    assert document["different"] == 1
    assert sum(total["difference_minor"] for total in document["totals"]) == difference["difference_minor"]
    found: dict[str, Any] = difference
    return found


def pay_by_hand(shop: DlqStack, amount: int = 999, currency: str = "eur", **metadata: str) -> stripe.PaymentIntent:
    """A charge of the same account that nobody here has made."""
    return shop.stack.stripe.v1.payment_intents.create(
        {
            "amount": amount,
            "currency": currency,
            "payment_method": "pm_card_visa",
            "confirm": True,
            "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
            "metadata": metadata,
        }
    )


def set_row(shop: DlqStack, order: StoredOrder, **changes: Any) -> None:
    shop.set_payment(order.order_id, **changes)


# ---------------------------------------------------------------- it balances


def test_what_was_charged_balances(shop: DlqStack) -> None:
    """Each charge is matched with its row; exit status 0."""
    for _ in range(3):
        shop.pay()
    status, document, text = audit(shop)
    [total] = document["totals"]
    assert (status, document["different"], document["transactions"]) == (0, 0, 3)
    assert (total["what"], total["currency"], total["matched"]) == ("charge", "EUR", 3)
    assert (total["at_stripe_minor"], total["ours_minor"], total["difference_minor"]) == (7500, 7500, 0)
    assert text.strip().endswith("balanced to the cent")


def test_each_currency_is_summed_by_itself(shop: DlqStack) -> None:
    """Amounts of two currencies are never added."""
    shop.pay()
    shop.pay(currency="USD")
    _, document, _ = audit(shop)
    assert [(each["currency"], each["at_stripe_minor"]) for each in document["totals"]] == [
        ("EUR", 2500),
        ("USD", 2500),
    ]


def test_an_empty_time_balances(shop: DlqStack) -> None:
    """Nothing on either side."""
    shop.pay()
    status, document, _ = audit(shop, -9, -8)
    assert (status, document["transactions"], document["totals"]) == (0, 0, [])


def test_other_charges_of_the_account_are_no_difference(shop: DlqStack) -> None:
    """Without an order of ours in the metadata, or with another shop's; counted apart."""
    shop.pay()
    pay_by_hand(shop)
    pay_by_hand(shop, order_id="4711")
    status, document, text = audit(shop)
    assert (status, document["different"]) == (0, 0)
    assert document["not_ours"] == [{"type": "charge", "currency": "EUR", "number": 2, "minor": 1998}]
    assert "not ours, and no difference" in text


@pytest.mark.parametrize("finalized", [-1, 1])
def test_midnight_is_no_difference(shop: DlqStack, finalized: int) -> None:
    """Booked on one day, finalized on another: looked up by its PaymentIntent, matched or counted apart."""
    order = shop.pay()
    payment = shop.payment(order.order_id)
    assert payment.finalized_at is not None
    set_row(shop, order, finalized_at=payment.finalized_at + finalized * 2 * 86400)
    that_day = datetime.fromtimestamp(payment.finalized_at, UTC)
    status, document, _ = audit(shop, today=that_day)
    assert (status, document["totals"][0]["matched"]) == (0, 1)
    status, document, text = audit(shop, 2 * finalized, 2 * finalized, today=that_day)
    assert (status, document["different"], document["totals"][0]["elsewhen"]) == (0, 0, 1)
    assert document["totals"][0]["at_stripe_minor"] == 0
    assert "1 of our rows were finalized within this time, and are booked at Stripe at another" in text


# ---------------------------------------------------------------- what is found


def test_a_second_charge_of_an_order_is_found(shop: DlqStack) -> None:
    """Made by hand at Stripe, with the order's id: with the command that explains the order."""
    order = shop.pay()
    by_hand = pay_by_hand(shop, amount=2500, order_id=order.order_id)
    status, document, text = audit(shop)
    difference = only(document)
    assert (status, difference["where"], difference["difference_minor"]) == (1, "at Stripe only", 2500)
    assert (difference["order_id"], difference["stripe_id"]) == (order.order_id, by_hand.latest_charge)
    assert "charged twice, or by hand" in difference["why"]
    assert f"python -m ops explain {order.order_id}" in text
    assert text.strip().endswith("1 differences")


def test_a_lost_row_is_found(shop: DlqStack) -> None:
    """Charged at Stripe, and the table knows nothing of it."""
    order = shop.pay()
    shop.lose(order.order_id)
    _, document, _ = audit(shop)
    assert (only(document)["where"], only(document)["difference_minor"]) == ("at Stripe only", 2500)


@pytest.mark.parametrize("state", [PaymentState.DECLINED, PaymentState.CANCELED, PaymentState.PENDING])
def test_a_row_that_does_not_know_its_charge_is_found(shop: DlqStack, state: PaymentState) -> None:
    """The row's state says that no money was taken."""
    order = shop.pay()
    set_row(shop, order, state=state)
    _, document, _ = audit(shop)
    assert (only(document)["where"], only(document)["why"]) == ("at Stripe only", f"the row is {state}")


@pytest.mark.parametrize(
    ("changes", "difference_minor"),
    [({"amount_minor": 2499}, 1), ({"amount_minor": 2501}, -1), ({"currency": "USD"}, 2500)],
)
def test_a_cent_is_found(shop: DlqStack, changes: dict[str, Any], difference_minor: int) -> None:
    """The row has frozen another amount, or another currency."""
    order = shop.pay()
    set_row(shop, order, **changes)
    _, document, _ = audit(shop)
    assert (only(document)["where"], only(document)["difference_minor"]) == ("amounts differ", difference_minor)


def test_a_row_that_stripe_does_not_know_is_found(shop: DlqStack) -> None:
    """SUCCEEDED, with a PaymentIntent that is not there, that is not paid, or without one."""
    unknown, unpaid, none = shop.pay(), shop.pay(), shop.pay()
    declined = shop.stack.stripe.v1.payment_intents.create({"amount": 2500, "currency": "eur"})
    set_row(shop, unknown, payment_intent_id="pi_unknown")
    set_row(shop, unpaid, payment_intent_id=declined.id)
    shop.dynamodb.update_item(
        TableName=shop.stack.resource("PaymentsTable"),
        Key={"order_id": {"S": none.order_id}},
        UpdateExpression="REMOVE payment_intent_id",
    )
    _, document, _ = audit(shop)
    ours = [each for each in document["differences"] if each["where"] == "ours only"]
    assert {each["order_id"] for each in ours} == {unknown.order_id, unpaid.order_id, none.order_id}
    # Each was charged with another PaymentIntent than its row names.
    assert document["different"] == 6
    [total] = document["totals"]
    assert (total["at_stripe_minor"], total["ours_minor"]) == (7500, 7500)


def test_a_charge_without_the_order_in_its_metadata_is_found(shop: DlqStack) -> None:
    """Somebody has changed the metadata: Stripe's transaction is not recognized, so our row is alone."""
    order = shop.pay()
    stranger = pay_by_hand(shop, amount=2500)
    shop.lose(order.order_id)
    other = shop.place()
    shop.send("PaymentsQueue", shop.message(other))
    shop.charge()
    set_row(shop, other, payment_intent_id=stranger.id)
    _, document, _ = audit(shop)
    whys = {each["why"] for each in document["differences"]}
    assert "its charge does not name the order in its metadata" in whys


# ---------------------------------------------------------------- refunds by hand, disputes


def events_of(shop: DlqStack) -> ChargeEventHandler:
    """What the reconciler does with a charge's events."""
    return ChargeEventHandler(shop.payments, StripeGateway(shop.stack.stripe), shop.tools().instruments)


def refund_by_hand(shop: DlqStack, order: StoredOrder, amount: int) -> str:
    intent = str(shop.payment(order.order_id).payment_intent_id)
    return shop.stack.stripe.v1.refunds.create({"payment_intent": intent, "amount": amount}).id


def test_a_refund_by_hand_is_matched_by_its_total(shop: DlqStack) -> None:
    """Known once the event has come; until then it is a difference."""
    order = shop.pay()
    refund_by_hand(shop, order, 400)
    _, document, _ = audit(shop)
    assert only(document)["kind"] == "refund"
    assert only(document)["difference_minor"] == -400
    set_row(shop, order, amount_refunded_minor=400)
    status, document, _ = audit(shop)
    assert (status, [(each["what"], each["at_stripe_minor"]) for each in document["totals"]]) == (
        0,
        [("charge", 2500), ("refund", -400)],
    )


def test_a_refund_that_failed_is_booked_both_ways(shop: DlqStack) -> None:
    """By hand, and back: the two sum up to nothing."""
    order = shop.pay()
    shop.standin.fail_refund(refund_by_hand(shop, order, 400))
    status, document, _ = audit(shop)
    sums = {each["what"]: each["at_stripe_minor"] for each in document["totals"]}
    assert (status, sums) == (0, {"charge": 2500, "refund": -400, "refund that failed": 400})


def test_a_dispute_that_the_row_does_not_know_is_found(shop: DlqStack) -> None:
    """It has no metadata: its order is found by the PaymentIntent."""
    order = shop.pay()
    dispute = shop.standin.open_dispute(str(shop.payment(order.order_id).payment_intent_id))
    _, document, _ = audit(shop)
    assert (only(document)["kind"], only(document)["difference_minor"]) == ("dispute", -2500)
    assert only(document)["order_id"] == order.order_id
    set_row(shop, order, dispute_status="needs_response")
    shop.standin.close_dispute(dispute, status="won")
    status, document, _ = audit(shop)
    assert (status, {each["what"] for each in document["totals"]}) == (0, {"charge", "dispute", "dispute that was won"})


# ---------------------------------------------------------------- Stripe's side


def transaction(**changes: Any) -> Any:
    """A balance transaction in the SDK's objects."""
    source = {
        "object": "charge",
        "id": "ch_1",
        "amount": 1000,
        "currency": "eur",
        "payment_intent": "pi_1",
        "metadata": {"order_id": "ord_" + "a" * 32},
        "status": "succeeded",
    }
    made = {"object": "balance_transaction", "id": "txn_1", "amount": 1000, "currency": "eur", "created": 5}
    return stripe.BalanceTransaction.construct_from({**made, "type": "charge", "source": source, **changes}, None)


def test_a_converted_charge_counts_in_the_customers_currency() -> None:
    """The account is settled in USD: our row knows the euros."""
    booked = booked_of(transaction(amount=1234, currency="usd"))
    assert (booked.amount_minor, booked.currency) == (1000, "EUR")


def test_what_is_no_customers_money_is_other() -> None:
    """A fee has no source, a payout another one; a charge that is taken back is no charge."""
    assert booked_of(transaction(source=None, type="stripe_fee", amount=-5)).kind is Kind.OTHER
    assert booked_of(transaction(source="po_1", type="payout", amount=-5)).kind is Kind.OTHER
    assert booked_of(transaction(amount=-1000)).kind is Kind.REVERSAL


def test_a_request_that_stripe_does_not_answer_is_repeated() -> None:
    """Six times, with growing pauses; then it is given up."""
    pauses: list[float] = []
    answers: list[Any] = [stripe.RateLimitError("slow down"), stripe.APIConnectionError("?")]

    def list_(_: Any) -> Any:
        if answers:
            raise answers.pop()
        return SimpleNamespace(data=[transaction()], has_more=False)

    client: Any = SimpleNamespace(v1=SimpleNamespace(balance_transactions=SimpleNamespace(list=list_)))
    [page] = StripeBooks(client, pauses.append).pages(0, 10)
    assert (len(page), pauses) == (1, [2.0, 4.0])
    answers = [stripe.RateLimitError("slow down")] * 9
    with pytest.raises(stripe.RateLimitError):
        list(StripeBooks(client, pauses.append).pages(0, 10))


# ---------------------------------------------------------------- many


@dataclass
class ManyBooks:
    """An account with so many charges, of which each page is made when it is read."""

    charges: int
    foreign: frozenset[int] = frozenset()

    def pages(self, since: int, until: int) -> Iterator[list[Booked]]:
        for start in range(0, self.charges, 100):
            yield [self._charge(number) for number in range(start, min(start + 100, self.charges))]

    def _charge(self, number: int) -> Booked:
        order_id = f"ord_{number:032x}"
        return Booked(
            *(f"txn_{number}", Kind.CHARGE, "charge", 1000, "EUR", number, f"ch_{number}", f"pi_{number:024x}"),
            order_id=order_id,
        )

    def charged(self, *_: Any) -> tuple[Charged, int, str]:
        raise AssertionError("nothing is looked up that was seen")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


@dataclass
class ManyRows:
    """Their rows, made when they are read; these are lost."""

    rows: int
    lost: frozenset[int] = frozenset()
    read: list[int] = field(default_factory=list)

    def of_orders(self, order_ids: Iterable[str]) -> Mapping[str, PaymentRow]:
        numbers = [int(order_id[4:], 16) for order_id in order_ids]
        self.read.append(len(numbers))
        return {row.order_id: row for row in (self._row(each) for each in numbers if each not in self.lost)}

    def succeeded(self, since: int, until: int) -> Iterator[PaymentRow]:
        return (self._row(number) for number in range(self.rows) if number not in self.lost)

    def of_refunds(self, _: Any) -> Mapping[str, Any]:
        return {}

    def _row(self, number: int) -> PaymentRow:
        return PaymentRow(f"ord_{number:032x}", PaymentState.SUCCEEDED, 1000, "EUR", f"pi_{number:024x}")


@dataclass
class NoRefunds:
    def of_refunds(self, _: Any) -> Mapping[str, Any]:
        return {}

    def succeeded(self, since: int, until: int) -> Iterator[Any]:
        return iter(())


def audited(books: Any, rows: Any, **more: Any) -> Audited:
    return Auditor(
        books,
        rows,
        refunds=NoRefunds(),  # type: ignore[arg-type]
        **more,
    ).audit(0, 100_000)


def test_a_hundred_thousand_transactions_need_little_memory() -> None:
    """A page at a time, one request for the rows of a page; what is kept is an id for each charge."""
    tracemalloc.start()
    rows = ManyRows(100_000)
    found = audited(ManyBooks(100_000), rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.transactions, found.different) == (100_000, 0)
    assert found.totals[Kind.CHARGE, "EUR"].matched_minor == 100_000_000
    assert (len(rows.read), max(rows.read)) == (1_000, 100)
    assert peak < 40 * 1024**2


def test_all_differences_count_and_the_first_are_listed() -> None:
    """Every row of 5,000 is lost, as with another stack's tables: the totals are whole, the list is short."""
    found = audited(ManyBooks(5_000), ManyRows(0, lost=frozenset(range(5_000))))
    total = found.totals[Kind.CHARGE, "EUR"]
    assert (found.different, len(found.differences)) == (5_000, DIFFERENCES_MAX)
    assert (total.stripe_only, total.difference_minor) == (5_000, 5_000_000)


def test_the_progress_goes_from_nothing_to_all() -> None:
    """By the time of the transactions, which are newest first."""
    parts: list[float] = []
    books = ManyBooks(1_000)
    newest_first = list(reversed(list(books.pages(0, 0))))
    audited(
        SimpleNamespace(pages=lambda *_: iter(newest_first), charged=books.charged),
        ManyRows(1_000),
        on_progress=lambda what, part: parts.append(part) if what.startswith("Stripe") else None,
    )
    assert parts == sorted(parts)
    assert parts[-1] > 0.9


def test_a_wrong_day_is_refused(shop: DlqStack) -> None:
    """Not a day, or the days in the wrong order."""
    with pytest.raises(Exception, match="--to is before --from"):
        shop.ops("audit", "--from", "2026-11-02", "--to", "2026-11-01")
    with pytest.raises(SystemExit):
        shop.ops("audit", "--from", "yesterday")
