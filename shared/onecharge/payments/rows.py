"""Rows that one worker at a time works on, by a lease: what the stores of payments and refunds share.

          claim                                  finalize, or release
unclaimed ──┤════════════ lease ═════════════════├──► unclaimed
            └ crashed worker: the lease expires, and the next delivery claims the row as another owner

Each claim draws its lease owner at random: a worker that lost its lease is never mistaken for the one that holds it,
even if the row was deleted and created again. The lease keeps workers apart; that a charge happens once does not
rest on it.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from onecharge.payments.charge_rules import Finalize, FrozenRequest, Payment
from onecharge.payments.refund_rules import FinalizeRefund, FrozenRefund, Refund
from onecharge.runtime.alarms import Cause
from onecharge.runtime.dynamodb import expression_values, set_expression, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PENDING = "PENDING"
"""How PaymentState and RefundState both spell it: the only state in which a worker has something to do."""

ROW_IS_NEW = "attribute_not_exists(order_id)"
LEASE_IS_FREE = "lease_expires_at <= :now"
_IS_OWNER = "lease_owner = :ours AND #state = :pending"


class ReleaseLease(Exception):
    """Nothing more can be done now: the lease is released, and the log says why.

    Args:
        alarm: why a person has to see it, if so.
        kept: attributes to write to the row with it, such as Stripe's error message.
    """

    def __init__(self, why: str, *, alarm: Cause | None = None, kept: Mapping[str, str | int] | None = None) -> None:
        super().__init__(why)
        self.why, self.alarm, self.kept = why, alarm, kept or {}


class WriteRefused(Exception):
    """Nothing was written: another worker has claimed the row since, or it was finalized.

    PaymentStore.finalize also raises it if a cancellation was requested meanwhile.
    """


class NoSuchRow(Exception):
    """The write was refused because there is no such row."""


type LeasedRow = Payment | Refund
type Outcome = Finalize | FinalizeRefund
"""What a row is finalized as."""


# ---------------------------------------------------------------- the results of a claim


@dataclass(frozen=True)
class Claimed[Row]:
    """The row is ours until its lease expires."""

    row: Row


@dataclass(frozen=True)
class HeldByAnother:
    """Another delivery of the same order or refund holds the row until then, in epoch seconds."""

    lease_expires_at: int
    row: LeasedRow | None = field(default=None, compare=False)
    """As it was when it refused the claim; None if it was lost meanwhile."""


@dataclass(frozen=True)
class AlreadyEnded[Row]:
    """The attempt, or the refund, has ended: this delivery is a duplicate."""

    row: Row


@dataclass(frozen=True)
class Superseded[Row]:
    """A later attempt has taken the row over: this message is stale. Never the result for a refund."""

    row: Row


type Claim[Row] = Claimed[Row] | HeldByAnother | AlreadyEnded[Row] | Superseded[Row]


def next_revision(row: LeasedRow, now: int) -> int:
    """The revision of the next write: at least its time, in epoch seconds.

    So it is higher than each that consumers have seen, even if the row was lost, or is a restored, older one.
    """
    return max(row.revision + 1, now)


def new_lease_owner() -> str:
    """A name for one claim of one worker."""
    return secrets.token_hex(8)


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class Changes:
    """What one write changes."""

    sets: Mapping[str, str] = field(default_factory=dict)
    """Each attribute and its new value, as an update expression has them."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The expression's values, by their names without the colon."""
    removes: Sequence[str] = ()

    @classmethod
    def to(cls, values: Mapping[str, Any], *, removes: Sequence[str] = ()) -> Self:
        """Each attribute gets its value; one whose value is None stays as it is."""
        given = {name: value for name, value in values.items() if value is not None}
        return cls({"#state" if name == "state" else name: f":{name}" for name in given}, given, removes)

    @classmethod
    def to_exactly(cls, values: Mapping[str, Any]) -> Self:
        """Each attribute gets its value; one whose value is None is removed."""
        return cls.to(values, removes=[name for name, value in values.items() if value is None])

    def __or__(self, more: Self) -> Self:
        """Both in one write."""
        sets, values = {**self.sets, **more.sets}, {**self.values, **more.values}
        return replace(self, sets=sets, values=values, removes=(*self.removes, *more.removes))

    @property
    def expression(self) -> str:
        """The update expression."""
        return set_expression(self.sets) + (f" REMOVE {', '.join(self.removes)}" if self.removes else "")


@dataclass(frozen=True)
class LeasedTable[Row: LeasedRow, Final: Outcome](ABC):
    """A table of such rows through botocore's client. Every method makes exactly one request."""

    client: "DynamoDBClient"
    table: str

    @abstractmethod
    def _row_of(self, item: Mapping[str, Any]) -> Row:
        """An item as the row that it is."""

    @abstractmethod
    def _final_changes(self, final: Final, now: int) -> Changes:
        """What finalizing writes."""

    # ------------------------------------------------------------ as the lease owner

    def release_lease(self, row: Row, **kept: str | int) -> Row:
        """End the lease early, so that the next delivery need not wait for it; returns the row. Raises WriteRefused.

        Args:
            kept: attributes to write with it, such as Stripe's error message.
        """
        return self._write_as_owner(row, released(kept))

    def finalize(self, row: Row, final: Final, *, now: int) -> Row:
        """Write the final state, and release the lease. Raises WriteRefused."""
        return self._write_as_owner(row, self._final_changes(final, now), now=now)

    def _write_as_owner(self, row: Row, changes: Changes, *, condition: str = "", now: int = 0) -> Row:
        """Change the row as its lease owner; returns it after the write. Raises WriteRefused.

        Args:
            now: of a write that emits an outcome.
        """
        # A request to cancel may have moved the revision on since the row was read.
        changes |= Changes({"revision": "revision + :step"}, {"step": next_revision(row, now) - row.revision})
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=to_item(row.key),
                UpdateExpression=changes.expression,
                ConditionExpression=_IS_OWNER + (f" AND {condition}" if condition else ""),
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues=expression_values(
                    **changes.values, pending=PENDING, ours=row.lease_owner or "nobody"
                ),
                ReturnValues="ALL_NEW",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            raise WriteRefused from refused
        return self._row_of(answer["Attributes"])

    # ------------------------------------------------------------ on the revision that was read

    def finalize_if_unchanged(self, row: Row, final: Final, *, now: int) -> bool:
        """Write what Stripe says, whoever holds the row; False if the row has changed since it was read."""
        return self._write_if_unchanged(row, self._final_changes(final, now), now=now)

    def reemit_outcome(self, row: Row, *, now: int) -> bool:
        """Make the table's stream carry the row once more; False if the row has changed since it was read."""
        return self._write_if_unchanged(row, Changes.to({"last_emitted_at": now}), now=now)

    def _write_if_unchanged(self, row: Row, changes: Changes, *, now: int, condition: str = "") -> bool:
        changes |= Changes({"revision": ":next"}, {"next": next_revision(row, now)})
        names = {"#state": "state"} if "#state" in changes.sets or "#state" in condition else {}
        try:
            self.client.update_item(
                TableName=self.table,
                Key=to_item(row.key),
                UpdateExpression=changes.expression,
                ConditionExpression="revision = :revision" + (f" AND {condition}" if condition else ""),
                ExpressionAttributeValues=expression_values(**changes.values, revision=row.revision),
                **({"ExpressionAttributeNames": names} if names else {}),  # type: ignore[arg-type]  # One argument.
            )
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    # ------------------------------------------------------------ requests that both stores make

    def _read(self, key: Mapping[str, Any]) -> Row | None:
        answer = self.client.get_item(TableName=self.table, Key=to_item(key), ConsistentRead=True)
        return self._row_of(answer["Item"]) if "Item" in answer else None

    def _put_new(self, item: Mapping[str, Any]) -> bool:
        """Put the item if the table has none of its key; False if it has."""
        try:
            self.client.put_item(TableName=self.table, Item=to_item(item), ConditionExpression=ROW_IS_NEW)
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _update_if(
        self, key: Mapping[str, Any], changes: Changes, *, condition: str, names: Mapping[str, str] | None = None
    ) -> tuple[bool, Row]:
        """One conditional write: whether it was made, and the row after it, or as it was if it was refused.

        So a duplicate costs one request, and no read. Raises NoSuchRow.
        """
        used = {**(names or {}), **({"#state": "state"} if "#state" in condition else {})}
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=to_item(key),
                UpdateExpression=changes.expression,
                ConditionExpression=condition,
                **({"ExpressionAttributeNames": used} if used else {}),  # type: ignore[arg-type]  # One argument.
                ExpressionAttributeValues=expression_values(**changes.values),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            if "Item" not in refused.response:
                raise NoSuchRow from refused
            row = self._row_of(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD
            # boto3 repeats a request whose answer was lost: the claim that refuses this one may be this one.
            return row.lease_owner is not None and row.lease_owner == changes.values.get("owner"), row
        return True, self._row_of(answer["Attributes"])


def frozen(request: FrozenRequest | FrozenRefund, correlation_id: str) -> Changes:
    """What the first claim writes, and no later one changes: each field of the request is an attribute of the row."""
    values = {name: value for name, value in vars(request).items() if name not in ("order_id", "refund_id")}
    values["correlation_id"] = correlation_id
    return Changes({name: f"if_not_exists({name}, :{name})" for name in values}, values)


def released(kept: Mapping[str, str | int]) -> Changes:
    """What releasing a lease writes, with what is to be kept."""
    return Changes.to({"lease_expires_at": 0, **kept}, removes=["lease_owner"])
