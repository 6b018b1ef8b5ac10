"""Rows that one worker at a time works on, by a lease: what the stores of payments and refunds share.

          claim                                  finalize, or release
unclaimed ──┤════════════ lease ═════════════════├──► unclaimed
            └ crashed worker: the lease expires, and the next delivery claims the row as another owner

The lease owner is drawn at random for each claim, so that a worker which lost its lease is not taken for the one that
holds it, even if the row was lost meanwhile and began anew. The lease keeps workers apart; that a charge happens once
does not rest on it.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecharge.runtime.dynamodb import expression_values, setting

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PENDING = "PENDING"
"""How PaymentState and RefundState both spell it: unfinished."""

_OURS = "lease_owner = :ours AND #state = :pending"


class LeaseLost(Exception):
    """Another worker has claimed the row since, or somebody has finalized it: nothing was written."""


@dataclass(frozen=True)
class HeldByAnother:
    """Another delivery of the same order or refund holds the row until then, in epoch seconds."""

    lease_expires_at: int


def new_lease_owner() -> str:
    """A name for one claim of one worker."""
    return secrets.token_hex(8)


@dataclass(frozen=True)
class LeasedTable[Row](ABC):
    """A table of such rows through boto3's client. Every method here makes exactly one request."""

    client: "DynamoDBClient"
    table: str

    @abstractmethod
    def _key_of(self, row: Row) -> dict[str, Any]:
        """The row's key attributes."""

    @abstractmethod
    def _row_of(self, item: Mapping[str, Any]) -> Row:
        """An item as the row that it is."""

    @abstractmethod
    def _owner_of(self, row: Row) -> str | None:
        """Who holds the row."""

    def release_lease(self, row: Row, **kept: str | int) -> None:
        """End the lease early, so that the next delivery need not wait for it. Raises LeaseLost.

        Args:
            kept: attributes to write with it, as what Stripe answered.
        """
        changes = {"lease_expires_at": ":zero", **{name: f":{name}" for name in kept}}
        self._write_as_owner(row, changes, {"zero": 0, **kept}, remove=["lease_owner"])

    def _write_as_owner(
        self,
        row: Row,
        changes: Mapping[str, str],
        values: Mapping[str, Any],
        *,
        remove: list[str] | None = None,
        only_if: str = "",
    ) -> Row:
        """Change the row as its lease owner; returns it as it is then. Raises LeaseLost."""
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=self._key_of(row),
                UpdateExpression=setting({**changes, "revision": "revision + :one"})
                + (f" REMOVE {', '.join(remove)}" if remove else ""),
                ConditionExpression=_OURS + (f" AND {only_if}" if only_if else ""),
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues=expression_values(
                    **values, one=1, pending=PENDING, ours=self._owner_of(row) or "nobody"
                ),
                ReturnValues="ALL_NEW",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            raise LeaseLost from refused
        return self._row_of(answer["Attributes"])
