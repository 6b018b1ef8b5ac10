"""One movement that Stripe has booked against one row of ours: the same to the cent, or not, and why. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from onecharge.contract.states import PaymentState
from ops.auditing.booked import Booked, Kind
from ops.auditing.rows import PaymentRow


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


def stripe_only(booked: Booked, why: str) -> Difference:
    """We do not know this movement."""
    return Difference(
        Where.STRIPE_ONLY,
        booked.kind,
        booked.currency,
        booked.amount_minor,
        0,
        booked.order_id,
        booked.source_id,
        why,
    )


def ours_only(row: PaymentRow, why: str) -> Difference:
    """Stripe does not know this charge."""
    return Difference(
        Where.OURS_ONLY, Kind.CHARGE, row.currency, 0, row.amount_minor, row.order_id, row.payment_intent_id, why
    )


def differs(booked: Booked, ours_minor: int, currency: str, why: str) -> Difference:
    """Both have the movement, with other amounts. In another currency, our amount does not count: why has it."""
    ours = ours_minor if currency == booked.currency else 0
    return Difference(
        Where.DIFFERS,
        booked.kind,
        booked.currency,
        booked.amount_minor,
        ours,
        booked.order_id,
        booked.source_id,
        why,
    )


def compare_charge(booked: Booked, row: PaymentRow | None) -> Difference | None:
    """A charge against its order's row; None if they are the same."""
    if row is None:
        return stripe_only(booked, "the order has no payment row: lost, or charged by hand")
    if row.payment_intent_id != booked.payment_intent_id:
        return stripe_only(
            booked, f"the order's payment is {row.payment_intent_id}, {row.state}: charged twice, or by hand"
        )
    same = (row.amount_minor, row.currency) == (booked.amount_minor, booked.currency)
    if not same:
        why = f"the row has frozen {row.amount_minor} {row.currency}, and is {row.state}"
        return differs(booked, row.amount_minor, row.currency, why)
    if row.state is not PaymentState.SUCCEEDED:
        return stripe_only(booked, f"the row is {row.state}")
    return None


def compare_dispute(booked: Booked, row: PaymentRow | None) -> Difference | None:
    """A dispute, or its reversal, against what the row knows of disputes."""
    if row is None:
        return stripe_only(booked, "the order has no payment row")
    if row.dispute_status is None:
        return stripe_only(booked, "the row knows of no dispute")
    return None


def compare_refund_by_hand(booked: Booked, row: PaymentRow | None, refunded_minor: int | None) -> Difference | None:
    """A refund that was not requested here, by the total that the row knows.

    Args:
        refunded_minor: Stripe's total of the PaymentIntent; None if it cannot be read completely.
    """
    if row is None:
        return stripe_only(booked, "made by hand; the order has no payment row")
    if refunded_minor is None:
        return stripe_only(booked, "made by hand; the PaymentIntent has too many refunds to be read")
    if row.amount_refunded_minor != refunded_minor:
        return stripe_only(
            booked,
            f"made by hand; the row knows {row.amount_refunded_minor} as refunded, Stripe shows {refunded_minor}",
        )
    return None
