"""The RefundLedger table: one row for each refund, the truth about it. The same life as a row of the Charges table.

CLAIMED ───┤═══════ lease ═══════├──► SUCCEEDED │ FAILED │ NEEDS_REVIEW
           └ crashed worker: the lease expires, the next delivery claims the row with a higher token
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onecharge.dynamodb import expression_values, from_item, to_item
from onecharge.payments.leases import CLAIMABLE, CLAIMED, HeldByAnother, LeasedRows, claiming
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.states import RefundState
from refund_charge.protocol import FrozenRefund, RefundRow


@dataclass(frozen=True)
class Claimed:
    """The row is ours until its lease expires."""

    row: RefundRow


@dataclass(frozen=True)
class AlreadySettled:
    """Another delivery of the same refund has settled the row: this one is a duplicate."""

    row: RefundRow


Claim = Claimed | HeldByAnother | AlreadySettled

_CLAIM = claiming(
    {
        "attempt": ":attempt",
        "amount_minor": ":amount_minor",
        "currency": ":currency",
        "stripe_parameters": ":stripe_parameters",
        "correlation_id": ":correlation_id",
        "key_generation": ":zero",
        "key_opened_at": ":requested_at",
        "expires_at": ":expires_at",
    }
)


@dataclass(frozen=True)
class RefundLedger(LeasedRows[RefundRow]):
    """The RefundLedger table through boto3's client. Every method makes exactly one request."""

    def claim(
        self, request: FrozenRefund, *, correlation_id: str, requested_at: int, now: int, lease_seconds: int
    ) -> Claim:
        """Claim the refund, or say who has it. A row that exists keeps the request that it froze."""
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=self._key(request),
                UpdateExpression=_CLAIM,
                ConditionExpression=CLAIMABLE,
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues=expression_values(
                    claimed=CLAIMED,
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

    def _key_of(self, row: RefundRow) -> dict[str, Any]:
        return self._key(row.request)

    def _row_of(self, item: Mapping[str, Any]) -> RefundRow:
        return _row(item)

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
