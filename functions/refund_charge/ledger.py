"""The RefundLedger table: one row for each refund, the truth about it. The same life as a row of the Charges table.

CLAIMED ───┤═══════ lease ═══════├──► SUCCEEDED │ FAILED │ NEEDS_REVIEW
           └ crashed worker: the lease expires, the next delivery claims the row with a higher token
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecharge.dynamodb import expression_values, from_item, setting, to_item
from onecharge.payments.ledger import HeldByAnother, LeaseLost
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.states import RefundState
from refund_charge.protocol import FrozenRefund, RefundRow

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True)
class Claimed:
    """The row is ours until its lease expires."""

    row: RefundRow


@dataclass(frozen=True)
class AlreadySettled:
    """Another delivery of the same refund has settled the row: this one is a duplicate."""

    row: RefundRow


Claim = Claimed | HeldByAnother | AlreadySettled

_ROW_IS_NEW = "attribute_not_exists(order_id)"
_LEASE_HAS_EXPIRED = "(#state = :claimed AND lease_expires_at <= :now)"
_EVERY_CLAIM_SETS = {
    "#state": ":claimed",
    "lease_expires_at": ":lease_expires_at",
    "claimed_at": ":now",
    "fencing_token": "if_not_exists(fencing_token, :zero) + :one",
}
_THE_FIRST_CLAIM_FREEZES = {
    "attempt": ":attempt",
    "amount_minor": ":amount_minor",
    "currency": ":currency",
    "stripe_parameters": ":stripe_parameters",
    "correlation_id": ":correlation_id",
    "key_generation": ":zero",
    "key_opened_at": ":requested_at",
    "expires_at": ":expires_at",
}
_CLAIM = setting(
    _EVERY_CLAIM_SETS | {name: f"if_not_exists({name}, {value})" for name, value in _THE_FIRST_CLAIM_FREEZES.items()}
)
_STILL_OURS = "#state = :claimed AND fencing_token = :ours"


@dataclass(frozen=True)
class RefundLedger:
    """The RefundLedger table through boto3's client. Every method makes exactly one request."""

    client: "DynamoDBClient"
    table: str

    def claim(
        self, request: FrozenRefund, *, correlation_id: str, requested_at: int, now: int, lease_seconds: int
    ) -> Claim:
        """Claim the refund, or say who has it. A row that exists keeps the request that it froze."""
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=self._key(request),
                UpdateExpression=_CLAIM,
                ConditionExpression=f"{_ROW_IS_NEW} OR {_LEASE_HAS_EXPIRED}",
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues=expression_values(
                    claimed=RefundState.CLAIMED,
                    lease_expires_at=now + lease_seconds,
                    now=now,
                    zero=0,
                    one=1,
                    attempt=request.attempt,
                    amount_minor=request.amount_minor,
                    currency=request.currency,
                    stripe_parameters=request.parameters_json,
                    correlation_id=correlation_id,
                    requested_at=requested_at,
                    expires_at=now + RETENTION_SECONDS,
                ),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            row = _row(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD
            return HeldByAnother(row.lease_expires_at) if row.state is RefundState.CLAIMED else AlreadySettled(row)
        return Claimed(_row(answer["Attributes"]))

    def settle(
        self, row: RefundRow, state: RefundState, *, stripe_refund_id: str | None, code: str | None, now: int
    ) -> None:
        """Write what the refund came to. Raises LeaseLost if the row has been claimed again since."""
        changes = {
            "#state": ":state",
            "settled_at": ":now",
            **({"stripe_refund_id": ":stripe_refund_id"} if stripe_refund_id else {}),
            **({"failure_code": ":failure_code"} if code else {}),
        }
        self._write(row, changes, state=state, now=now, stripe_refund_id=stripe_refund_id, failure_code=code)

    def hand_back(self, row: RefundRow, *, look_first: bool, now: int) -> None:
        """End the lease early, so that the next delivery need not wait for it. Raises LeaseLost.

        `look_first` gives the key up: safe once Stripe has stored an answer under it, or it is to be looked at anyway.
        """
        changes = {"lease_expires_at": ":now"}
        if look_first:
            changes["looking_since"] = "if_not_exists(looking_since, :now)"
        self._write(row, changes, now=now)

    def open_new_key(self, row: RefundRow, *, now: int) -> RefundRow:
        """Write the next key generation, before it is used. Raises LeaseLost."""
        changes = {"key_generation": ":next", "key_opened_at": ":now"}
        return _row(self._write(row, changes, remove="looking_since", next=row.key_generation + 1, now=now))

    def _write(self, row: RefundRow, changes: Mapping[str, str], *, remove: str = "", **values: Any) -> dict[str, Any]:
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=self._key(row.request),
                UpdateExpression=setting(changes) + (f" REMOVE {remove}" if remove else ""),
                ConditionExpression=_STILL_OURS,
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues=expression_values(
                    **values, claimed=RefundState.CLAIMED, ours=row.fencing_token
                ),
                ReturnValues="ALL_NEW",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            raise LeaseLost from refused
        return answer["Attributes"]

    def _key(self, request: FrozenRefund) -> dict[str, Any]:
        return to_item({"order_id": request.order_id, "refund_id": request.refund_id})


def _row(item: Mapping[str, Any]) -> RefundRow:
    values = from_item(item)
    return RefundRow(
        request=FrozenRefund(
            order_id=values["order_id"],
            refund_id=values["refund_id"],
            attempt=values["attempt"],
            amount_minor=values["amount_minor"],
            currency=values["currency"],
            parameters_json=values["stripe_parameters"],
        ),
        state=RefundState(values["state"]),
        fencing_token=values["fencing_token"],
        lease_expires_at=values["lease_expires_at"],
        key_generation=values["key_generation"],
        key_opened_at=values["key_opened_at"],
        looking_since=values.get("looking_since"),
    )
