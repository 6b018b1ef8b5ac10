"""All movements of a time: Stripe's, page by page, each looked up in our rows; then what only our rows have.

A row is found by the order that the movement names, never by its time: a charge a second before midnight may be
finalized a second after it. What our rows alone have within the time is looked up at Stripe, where it may belong to
another day. So a movement is a difference only if the other side does not have it at all.

What is kept in memory: the ids of what was seen, the totals, and the first differences.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ops.auditing.booked import Booked, Charged, Kind, StripeBooks
from ops.auditing.compare import (
    Difference,
    Where,
    compare_charge,
    compare_dispute,
    compare_refund_by_hand,
    ours_only,
    stripe_only,
)
from ops.auditing.refunds import RefundRows, compare_refund, refund_ours_only
from ops.auditing.rows import PaymentRow, PaymentRows

DIFFERENCES_MAX = 1_000
"""How many differences are kept to be listed; all are counted, and all count in the totals."""


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


@dataclass(frozen=True)
class Auditor:
    """Audits one Stripe account against the tables of one stack. It only reads."""

    books: StripeBooks
    payments: PaymentRows
    refunds: RefundRows
    on_progress: Callable[[str, float], None] = lambda _, __: None
    """Called with what is read, and how much of it, from 0 to 1."""

    def audit(self, since: int, until: int) -> Audited:
        """Compare all that was booked from `since` until before `until`, in epoch seconds.

        Raises:
            stripe.StripeError: Stripe does not answer, or refuses.
        """
        found = Audited()
        seen: set[str] = set()
        for page in self.books.pages(since, until):
            found.transactions += len(page)
            self._compare_page(page, found, seen)
            oldest = page[-1].created if page else since
            self.on_progress("Stripe's balance transactions", (until - oldest) / (until - since))
        self._find_ours_only(since, until, found, seen)
        return found

    def _compare_page(self, page: Iterable[Booked], found: Audited, seen: set[str]) -> None:
        ours: list[Booked] = []
        for booked in page:
            owned = self._owned(booked)
            if owned is None:
                found.pass_by(booked)
            else:
                ours.append(owned)
        rows = self.payments.of_orders(str(booked.order_id) for booked in ours)
        refunds = self.refunds.of_refunds(ours)
        for booked in ours:
            row = rows.get(str(booked.order_id))
            match booked.kind:
                case Kind.CHARGE:
                    seen.add(str(booked.payment_intent_id))
                    difference = compare_charge(booked, row)
                case Kind.REFUND | Kind.REFUND_FAILURE if booked.refund_id is not None:
                    seen.add(str(booked.source_id))
                    difference = compare_refund(booked, refunds.get(booked.refund_id))
                case Kind.REFUND | Kind.REFUND_FAILURE:
                    total = self.books.amount_refunded(str(booked.payment_intent_id))
                    difference = compare_refund_by_hand(booked, row, total)
                case Kind.DISPUTE | Kind.DISPUTE_REVERSAL:
                    difference = compare_dispute(booked, row)
                case _:
                    difference = stripe_only(booked, "no rule of ours takes a charge back")
            if difference is None:
                found.match(booked)
            else:
                found.differ(difference)

    def _owned(self, booked: Booked) -> Booked | None:
        """The movement with its order; None if it is of none of ours."""
        if booked.kind is Kind.OTHER:
            return None
        if booked.order_id is not None:
            return booked
        if booked.kind is Kind.CHARGE or booked.payment_intent_id is None:
            # A Charge has the metadata that its PaymentIntent had.
            return None
        order_id = self.books.order_of(booked.payment_intent_id)
        return Booked(**{**vars(booked), "order_id": order_id}) if order_id else None

    # ------------------------------------------------------------ what only our rows have

    def _find_ours_only(self, since: int, until: int, found: Audited, seen: set[str]) -> None:
        for number, row in enumerate(self.payments.succeeded(since, until)):
            if number % 1_000 == 0:
                self.on_progress("our payments", 0.0)
            if row.payment_intent_id not in seen:
                self._look_up(row, since, until, found)
        for refund in self.refunds.succeeded(since, until):
            if refund.stripe_refund_id in seen:
                continue
            booked_at = self.books.refund_booked_at(refund.stripe_refund_id) if refund.stripe_refund_id else None
            if booked_at is None:
                found.differ(refund_ours_only(refund, "the row is SUCCEEDED, and Stripe has no such refund"))
            elif since <= booked_at < until:
                found.differ(refund_ours_only(refund, "Stripe's refund names no refund id of ours"))
            else:
                found.totals[Kind.REFUND, refund.currency].elsewhen += 1

    def _look_up(self, row: PaymentRow, since: int, until: int, found: Audited) -> None:
        """A row whose charge was not among Stripe's transactions of the time."""
        if row.payment_intent_id is None:
            found.differ(ours_only(row, "the row is SUCCEEDED without a PaymentIntent"))
            return
        charged, amount_minor, currency = self.books.charged(row.payment_intent_id, since, until)
        if charged is Charged.OUTSIDE and (amount_minor, currency) == (row.amount_minor, row.currency):
            found.totals[Kind.CHARGE, row.currency].elsewhen += 1
        elif charged is Charged.OUTSIDE:
            why = f"charged at another time, with {amount_minor} {currency}"
            found.differ(ours_only(row, why))
        elif charged is Charged.NOT:
            found.differ(ours_only(row, "the row is SUCCEEDED, and Stripe shows no such charge"))
        else:
            found.differ(ours_only(row, "its charge does not name the order in its metadata"))
