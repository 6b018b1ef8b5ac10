"""Refunds that were requested here, against the payment service's rows."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecharge.contract.refunds import RefundState
from ops.auditing.booked import Booked, Kind
from ops.auditing.compare import Difference, Where, differs, stripe_only
from ops.auditing.rows import Item, finalized_as, read_all

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_FAILED = ("failed", "canceled")


@dataclass(frozen=True)
class RefundRow:
    """A row of the Refunds table, as far as money goes."""

    order_id: str
    refund_id: str
    state: RefundState
    amount_minor: int
    currency: str
    stripe_refund_id: str | None = None

    @classmethod
    def of(cls, item: Item) -> "RefundRow":
        return cls(
            order_id=item["order_id"],
            refund_id=item["refund_id"],
            state=RefundState(item["state"]),
            amount_minor=item["amount_minor"],
            currency=item["currency"],
            stripe_refund_id=item.get("stripe_refund_id"),
        )


@dataclass(frozen=True)
class RefundRows:
    """The Refunds table."""

    client: "DynamoDBClient"
    table: str

    def of_refunds(self, booked: Iterable[Booked]) -> Mapping[str, RefundRow]:
        """The rows of these refunds, by refund id; those that are lost are missing."""
        wanted = {(str(each.order_id), str(each.refund_id)) for each in booked if each.order_id and each.refund_id}
        keys = [{"order_id": order_id, "refund_id": refund_id} for order_id, refund_id in sorted(wanted)]
        return {item["refund_id"]: RefundRow.of(item) for item in read_all(self.client, self.table, keys)}

    def succeeded(self, since: int, until: int) -> Iterator[RefundRow]:
        """The rows that were finalized as SUCCEEDED within the time. Reads the whole table."""
        for item in finalized_as(self.client, self.table, RefundState.SUCCEEDED, since, until):
            yield RefundRow.of(item)


def compare_refund(booked: Booked, row: RefundRow | None) -> Difference | None:
    """A refund, or its failure, against its row; None if they are the same."""
    if row is None:
        return stripe_only(booked, "the refund has no row: lost?")
    ours = -row.amount_minor if booked.kind is Kind.REFUND else row.amount_minor
    if (ours, row.currency) != (booked.amount_minor, booked.currency):
        why = f"the row has {row.amount_minor} {row.currency}, and is {row.state}"
        return differs(booked, ours, row.currency, why)
    if row.stripe_refund_id not in (None, booked.source_id):
        return stripe_only(booked, f"the row's refund is {row.stripe_refund_id}: refunded twice, or by hand")
    expected = RefundState.FAILED if booked.source_status in _FAILED else RefundState.SUCCEEDED
    if row.state is not expected:
        return stripe_only(booked, f"the row is {row.state}, and Stripe shows the refund as {booked.source_status}")
    return None


def refund_ours_only(row: RefundRow, why: str) -> Difference:
    """Stripe does not know this refund."""
    return Difference(
        Where.OURS_ONLY, Kind.REFUND, row.currency, 0, -row.amount_minor, row.order_id, row.stripe_refund_id, why
    )
