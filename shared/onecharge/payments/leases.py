"""Rows that one worker at a time holds, by a lease and a fencing token: what the ledgers of charges and refunds share.

claim     one conditional write: a new row, or one whose lease has expired; the fencing token grows
write     one conditional write on the fencing token: a worker that lost its lease changes nothing
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecharge.dynamodb import expression_values, setting
from onecharge.payments.protocol import KeyedRow

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

CLAIMED = "CLAIMED"
"""How PaymentState and RefundState both spell it."""

_ROW_IS_NEW = "attribute_not_exists(order_id)"
_LEASE_HAS_EXPIRED = "(#state = :claimed AND lease_expires_at <= :now)"
CLAIMABLE = f"{_ROW_IS_NEW} OR {_LEASE_HAS_EXPIRED}"
_STILL_OURS = "#state = :claimed AND fencing_token = :ours"
_EVERY_CLAIM_SETS = {
    "#state": ":claimed",
    "lease_expires_at": ":lease_expires_at",
    "claimed_at": ":now",
    "fencing_token": "if_not_exists(fencing_token, :zero) + :one",
}


class LeaseLost(Exception):
    """Another worker has claimed the row since: nothing was written."""


@dataclass(frozen=True)
class HeldByAnother:
    """Another delivery of the same order or refund holds the row until then."""

    lease_expires_at: int


def claiming(freezes: Mapping[str, str]) -> str:
    """The update of a claim; what it freezes is set by the first claim of the row alone."""
    once = {name: f"if_not_exists({name}, {value})" for name, value in freezes.items()}
    return setting(_EVERY_CLAIM_SETS | once)


@dataclass(frozen=True)
class LeasedRows[Row: KeyedRow](ABC):
    """A table of such rows through boto3's client. Every method here makes exactly one request."""

    client: "DynamoDBClient"
    table: str

    @abstractmethod
    def _key_of(self, row: Row) -> dict[str, Any]:
        """The row's key attributes."""

    @abstractmethod
    def _row_of(self, item: Mapping[str, Any]) -> Row:
        """An item as the row that it is."""

    def hand_back(self, row: Row, *, look_first: bool, now: int) -> None:
        """End the lease early, so that the next delivery need not wait for it. Raises LeaseLost.

        `look_first` gives the key up. That is safe only once Stripe has stored an answer under it, or is old enough
        to be looked at anyway: a delivery that found the row lost would use the same key again.
        """
        changes = {"lease_expires_at": ":now"}
        if look_first:
            changes["looking_since"] = "if_not_exists(looking_since, :now)"
        self._write(row, changes, now=now)

    def open_new_key(self, row: Row, *, now: int) -> Row:
        """Write the next key generation, before it is used. Raises LeaseLost."""
        changes = {"key_generation": ":next", "key_opened_at": ":now"}
        return self._row_of(self._write(row, changes, remove="looking_since", next=row.key_generation + 1, now=now))

    def _write(
        self, row: Row, changes: Mapping[str, str], *, remove: str = "", only_if: str = "", **values: Any
    ) -> dict[str, Any]:
        """Change the row as its holder, and give the item as it is then. Raises LeaseLost."""
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=self._key_of(row),
                UpdateExpression=setting(changes) + (f" REMOVE {remove}" if remove else ""),
                ConditionExpression=_STILL_OURS + (f" AND {only_if}" if only_if else ""),
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues=expression_values(**values, claimed=CLAIMED, ours=row.fencing_token),
                ReturnValues="ALL_NEW",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            raise LeaseLost from refused
        return answer["Attributes"]
