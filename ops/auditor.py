"""Compares all movements of a time: Stripe's, page by page, each with its row; then what only our rows have.

A row is found by the order that the movement names, never by its time: a charge a second before midnight may be
finalized a second after it. What our rows alone have within the time is looked up at Stripe, where it may belong to
another day. So a movement is a difference only if the other side does not have it at all.

What is kept in memory: the ids of what was seen, the totals, and the first differences.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rich.console import Console
from rich.progress import track

from onecharge.contract.refunds import RefundState
from onecharge.contract.states import PaymentState
from ops.books import Booked, Charged, Kind, Row, Rows, StripeBooks

DIFFERENCES_MAX = 1_000
"""How many differences are kept to be listed; all are counted, and all count in the totals."""


class Where(StrEnum):
    """On which side a movement is."""

    STRIPE_ONLY = "at Stripe only"
    OURS_ONLY = "ours only"
    DIFFERS = "amounts differ"


@dataclass(frozen=True)
class Difference:
    """A movement that the two sides do not agree on."""

    where: Where
    kind: Kind
    currency: str
    at_stripe_minor: int
    """0 if Stripe has none."""
    ours_minor: int
    """0 if we have none."""
    order_id: str | None
    stripe_id: str | None
    why: str

    @property
    def difference_minor(self) -> int:
        """What Stripe has more than we have."""
        return self.at_stripe_minor - self.ours_minor


@dataclass
class Total:
    """Of one kind of movement in one currency. Amounts in minor units, with their signs."""

    matched: int = 0
    matched_minor: int = 0
    stripe_only: int = 0
    ours_only: int = 0
    differing: int = 0
    at_stripe_minor: int = 0
    ours_minor: int = 0
    elsewhen: int = 0
    """Rows that were finalized within the time, and that Stripe has booked at another; on neither side of the sum."""

    @property
    def difference_minor(self) -> int:
        return self.at_stripe_minor - self.ours_minor


@dataclass
class Audited:
    """What an audit has found."""

    totals: defaultdict[tuple[Kind, str], Total] = field(default_factory=lambda: defaultdict(Total))
    differences: list[Difference] = field(default_factory=list)
    different: int = 0
    """How many there are, listed or not."""
    foreign: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Movements that are not ours, by type and currency: their number."""
    foreign_minor: Counter[tuple[str, str]] = field(default_factory=Counter)
    transactions: int = 0

    def match(self, booked: Booked) -> None:
        total = self.totals[booked.kind, booked.currency]
        total.matched += 1
        total.matched_minor += booked.amount_minor
        total.at_stripe_minor += booked.amount_minor
        total.ours_minor += booked.amount_minor

    def differ(self, difference: Difference) -> None:
        total = self.totals[difference.kind, difference.currency]
        total.at_stripe_minor += difference.at_stripe_minor
        total.ours_minor += difference.ours_minor
        total.stripe_only += difference.where is Where.STRIPE_ONLY
        total.ours_only += difference.where is Where.OURS_ONLY
        total.differing += difference.where is Where.DIFFERS
        self.different += 1
        if len(self.differences) < DIFFERENCES_MAX:
            self.differences.append(difference)

    def pass_by(self, booked: Booked) -> None:
        """It is not ours."""
        self.foreign[booked.stripe_type, booked.currency] += 1
        self.foreign_minor[booked.stripe_type, booked.currency] += booked.amount_minor


def compare(books: StripeBooks, payments: Rows, refunds: Rows, since: int, until: int) -> Audited:
    """Compare all that was booked from `since` until before `until`, in epoch seconds. It only reads.

    Raises:
        stripe.StripeError: Stripe does not answer, or refuses.
    """
    found, seen = Audited(), set[str]()
    console = Console(stderr=True)
    pages = books.pages(since, until)
    for page in track(
        pages, "Stripe's balance transactions", console=console, transient=True, disable=not console.is_terminal
    ):
        found.transactions += len(page)
        _compare_page(books, payments, refunds, page, found, seen)
    for row in payments.succeeded(since, until):
        if row.get("payment_intent_id") not in seen:
            _charge_is_ours_only(books, row, since, until, found)
    for row in refunds.succeeded(since, until):
        if row.get("stripe_refund_id") not in seen:
            _refund_is_ours_only(books, row, since, until, found)
    return found


# ---------------------------------------------------------------- Stripe's movements


def _compare_page(
    books: StripeBooks, payments: Rows, refunds: Rows, page: Iterable[Booked], found: Audited, seen: set[str]
) -> None:
    ours: list[Booked] = []
    for booked in page:
        order_id = _order_of(books, booked)
        if order_id is None:
            found.pass_by(booked)
        else:
            ours.append(replace(booked, order_id=order_id))
    rows = {row["order_id"]: row for row in payments.of([{"order_id": each} for each in _orders_of(ours)])}
    refund_keys = {(str(each.order_id), each.refund_id) for each in ours if each.refund_id}
    wanted = [{"order_id": order_id, "refund_id": refund_id} for order_id, refund_id in sorted(refund_keys)]
    refund_rows = {row["refund_id"]: row for row in refunds.of(wanted)}
    for booked in ours:
        seen.add(str(booked.payment_intent_id if booked.kind is Kind.CHARGE else booked.source_id))
        row = rows.get(booked.order_id)
        match booked.kind:
            case Kind.CHARGE:
                difference = _compare_charge(booked, row)
            case Kind.REFUND | Kind.REFUND_FAILURE if booked.refund_id is not None:
                difference = _compare_refund(booked, refund_rows.get(booked.refund_id))
            case Kind.REFUND | Kind.REFUND_FAILURE:
                refunded = books.amount_refunded(str(booked.payment_intent_id))
                difference = _compare_refund_by_hand(booked, row, refunded)
            case Kind.DISPUTE | Kind.DISPUTE_REVERSAL:
                difference = _compare_dispute(booked, row)
            case _:
                difference = _stripe_only(booked, "no rule of ours takes a charge back")
        if difference is None:
            found.match(booked)
        else:
            found.differ(difference)


def _orders_of(ours: Iterable[Booked]) -> list[str]:
    return sorted({str(booked.order_id) for booked in ours})


def _order_of(books: StripeBooks, booked: Booked) -> str | None:
    """The order of a movement; None if it is not ours."""
    if booked.kind is Kind.OTHER or booked.order_id is not None:
        return booked.order_id
    if booked.kind is Kind.CHARGE or booked.payment_intent_id is None:
        return None  # A Charge has the metadata that its PaymentIntent had.
    return books.order_of(booked.payment_intent_id)


def _compare_charge(booked: Booked, row: Row | None) -> Difference | None:
    """A charge against its order's row; None if they are the same."""
    if row is None:
        return _stripe_only(booked, "the order has no payment row: lost, or charged by hand")
    if row.get("payment_intent_id") != booked.payment_intent_id:
        payment = f"{row.get('payment_intent_id')}, {row['state']}"
        return _stripe_only(booked, f"the order's payment is {payment}: charged twice, or by hand")
    if (row["amount_minor"], row["currency"]) != (booked.amount_minor, booked.currency):
        why = f"the row has frozen {row['amount_minor']} {row['currency']}, and is {row['state']}"
        return _differs(booked, row["amount_minor"], row["currency"], why)
    return None if row["state"] == PaymentState.SUCCEEDED else _stripe_only(booked, f"the row is {row['state']}")


def _compare_refund(booked: Booked, row: Row | None) -> Difference | None:
    """A refund that was requested here, or its failure, against its row; None if they are the same."""
    if row is None:
        return _stripe_only(booked, "the refund has no row: lost?")
    ours = -row["amount_minor"] if booked.kind is Kind.REFUND else row["amount_minor"]
    if (ours, row["currency"]) != (booked.amount_minor, booked.currency):
        why = f"the row has {row['amount_minor']} {row['currency']}, and is {row['state']}"
        return _differs(booked, ours, row["currency"], why)
    if row.get("stripe_refund_id") not in (None, booked.source_id):
        return _stripe_only(booked, f"the row's refund is {row['stripe_refund_id']}: refunded twice, or by hand")
    is_failed = booked.source_status in ("failed", "canceled")
    if row["state"] != (RefundState.FAILED if is_failed else RefundState.SUCCEEDED):
        return _stripe_only(booked, f"the row is {row['state']}, and Stripe shows the refund as {booked.source_status}")
    return None


def _compare_refund_by_hand(booked: Booked, row: Row | None, refunded_minor: int | None) -> Difference | None:
    """A refund that was not requested here, by the total that the row knows.

    Args:
        refunded_minor: Stripe's total of the PaymentIntent; None if it cannot be read completely.
    """
    if row is None:
        return _stripe_only(booked, "made by hand; the order has no payment row")
    if refunded_minor is None:
        return _stripe_only(booked, "made by hand; the PaymentIntent has too many refunds to be read")
    known = row.get("amount_refunded_minor", 0)
    if known != refunded_minor:
        return _stripe_only(booked, f"made by hand; the row knows {known} as refunded, Stripe shows {refunded_minor}")
    return None


def _compare_dispute(booked: Booked, row: Row | None) -> Difference | None:
    """A dispute, or its reversal, against what the row knows of disputes."""
    if row is None:
        return _stripe_only(booked, "the order has no payment row")
    return None if row.get("dispute_status") else _stripe_only(booked, "the row knows of no dispute")


def _stripe_only(booked: Booked, why: str) -> Difference:
    return _difference(Where.STRIPE_ONLY, booked, 0, why)


def _differs(booked: Booked, ours_minor: int, currency: str, why: str) -> Difference:
    """In another currency, our amount does not count: `why` has it."""
    return _difference(Where.DIFFERS, booked, ours_minor if currency == booked.currency else 0, why)


def _difference(where: Where, booked: Booked, ours_minor: int, why: str) -> Difference:
    at_stripe = booked.amount_minor
    return Difference(
        where, booked.kind, booked.currency, at_stripe, ours_minor, booked.order_id, booked.source_id, why
    )


# ---------------------------------------------------------------- what only our rows have


def _charge_is_ours_only(books: StripeBooks, row: Row, since: int, until: int, found: Audited) -> None:
    """A row whose charge was not among Stripe's transactions of the time."""
    intent_id, amount, currency = row.get("payment_intent_id"), row["amount_minor"], row["currency"]
    charged, charged_minor, charged_currency = Charged.NOT, 0, ""
    if intent_id is not None:
        charged, charged_minor, charged_currency = books.charged(intent_id, since, until)
    is_same = (charged_minor, charged_currency) == (amount, currency)
    if charged is Charged.OUTSIDE and is_same:
        found.totals[Kind.CHARGE, currency].elsewhen += 1
        return
    if intent_id is None:
        why = "the row is SUCCEEDED without a PaymentIntent"
    elif charged is Charged.OUTSIDE:
        why = f"charged at another time, with {charged_minor} {charged_currency}"
    elif charged is Charged.WITHIN:
        why = "its charge does not name the order in its metadata"
    else:
        why = "the row is SUCCEEDED, and Stripe shows no such charge"
    found.differ(Difference(Where.OURS_ONLY, Kind.CHARGE, currency, 0, amount, row["order_id"], intent_id, why))


def _refund_is_ours_only(books: StripeBooks, row: Row, since: int, until: int, found: Audited) -> None:
    """A row whose refund was not among Stripe's transactions of the time."""
    refund_id, currency = row.get("stripe_refund_id"), row["currency"]
    booked_at = books.refund_booked_at(refund_id) if refund_id else None
    if booked_at is not None and not since <= booked_at < until:
        found.totals[Kind.REFUND, currency].elsewhen += 1
        return
    why = "the row is SUCCEEDED, and Stripe has no such refund"
    if booked_at is not None:
        why = "Stripe's refund names no refund id of ours"
    amount = -row["amount_minor"]
    found.differ(Difference(Where.OURS_ONLY, Kind.REFUND, currency, 0, amount, row["order_id"], refund_id, why))
