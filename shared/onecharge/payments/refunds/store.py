"""The Refunds table: one row for each refund, the payment service's own truth about it. Like the Payments table:

claim                one conditional write: a new row, or an unfinished one whose lease is free
finalize             on the lease owner, and unfinished
finalize_unclaimed   on the revision that was read, for what is learned without a message

         claim                    finalize
PENDING ──┤═══════ lease ══════════├──► SUCCEEDED │ FAILED │ NEEDS_REVIEW
          └ crashed worker: the lease expires, and the next delivery claims the row
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from onecharge.contract.refunds import RefundState
from onecharge.payments.leases import HeldByAnother, LeasedTable
from onecharge.payments.refunds.protocol import FinalizeRefund, FrozenRefund, Refund
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import expression_values, from_item, setting, to_item


@dataclass(frozen=True)
class RefundClaimed:
    """The row is ours until its lease expires."""

    refund: Refund


@dataclass(frozen=True)
class RefundAlreadyFinal:
    """Another delivery of the same refund has finalized it: this is a duplicate."""

    refund: Refund


RefundClaim = RefundClaimed | HeldByAnother | RefundAlreadyFinal

_ROW_IS_NEW = "attribute_not_exists(order_id)"
_CLAIMABLE = f"{_ROW_IS_NEW} OR (#state = :pending AND lease_expires_at <= :now)"
_FROZEN = ("attempt", "amount_minor", "currency", "payment_intent_id", "requested_at", "correlation_id")
_CLAIM_SETS = {
    **{name: f"if_not_exists({name}, :{name})" for name in _FROZEN},
    "#state": ":pending",
    "lease_owner": ":owner",
    "lease_expires_at": ":lease_expires_at",
    "open_claims": "if_not_exists(open_claims, :zero) + :one",
    "revision": "if_not_exists(revision, :zero) + :one",
}


@dataclass(frozen=True)
class RefundStore(LeasedTable[Refund]):
    """The Refunds table through boto3's client. Every method makes exactly one request."""

    # ------------------------------------------------------------ claim

    def claim(
        self,
        request: FrozenRefund,
        *,
        correlation_id: str,
        owner: str,
        now: int,
        lease_seconds: int,
        is_internal: bool = False,
    ) -> RefundClaim:
        """Claim the refund, or say why not. A row that exists keeps what it froze."""
        sets = {"is_internal": ":is_internal"} if is_internal else {}
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=self._key(request),
                UpdateExpression=setting(_CLAIM_SETS | sets),
                ConditionExpression=_CLAIMABLE,
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues=expression_values(
                    **_frozen(request, correlation_id),
                    is_internal=is_internal or None,
                    pending=RefundState.PENDING,
                    owner=owner,
                    lease_expires_at=now + lease_seconds,
                    now=now,
                    zero=0,
                    one=1,
                ),
                ReturnValues="ALL_NEW",
                # A duplicate learns from the refusal itself what it needs to know, without a read.
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            refund = _refund(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD
            if refund.state is RefundState.PENDING:
                return HeldByAnother(refund.lease_expires_at)
            return RefundAlreadyFinal(refund)
        return RefundClaimed(_refund(answer["Attributes"]))

    # ------------------------------------------------------------ as the lease owner

    def release_lease(self, row: Refund, **kept: str | int) -> None:
        """End the lease early: this worker sends nothing any more. Raises LeaseLost."""
        changes = {
            "lease_expires_at": ":zero",
            "open_claims": "open_claims - :one",
            **{name: f":{name}" for name in kept},
        }
        self._write_as_owner(row, changes, {"zero": 0, **kept}, remove=["lease_owner"])

    def finalize(self, refund: Refund, final: FinalizeRefund, *, now: int) -> Refund:
        """Write the refund's last state, and give the lease back. Raises LeaseLost."""
        changes, values = _final(final, now)
        return self._write_as_owner(refund, changes, values, remove=["lease_owner"])

    # ------------------------------------------------------------ for what is learned without a message

    def read(self, order_id: str, refund_id: str) -> Refund | None:
        """The row of the refund, as it is now."""
        key = to_item({"order_id": order_id, "refund_id": refund_id})
        answer = self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)
        return _refund(answer["Item"]) if "Item" in answer else None

    def finalize_unclaimed(self, refund: Refund, final: FinalizeRefund, *, now: int) -> bool:
        """Write what Stripe says, if the row is as it was read, whoever holds it; False if it has changed since."""
        changes, values = _final(final, now)
        return self._write_if_unchanged(refund, changes, remove=["lease_owner"], **values)

    def recover(
        self, request: FrozenRefund, final: FinalizeRefund, *, correlation_id: str, now: int, is_internal: bool = False
    ) -> bool:
        """Write the row of a refund anew that was lost; False if there is a row by now."""
        item = {
            "order_id": request.order_id,
            "refund_id": request.refund_id,
            **_frozen(request, correlation_id),
            "state": final.state,
            "stripe_refund_id": final.stripe_refund_id,
            "failure_code": final.code,
            "finalized_at": now,
            "lease_expires_at": 0,
            "open_claims": 0,
            "revision": 1,
            "expires_at": now + RETENTION_SECONDS,
            "is_internal": is_internal or None,
        }
        try:
            self.client.put_item(TableName=self.table, Item=to_item(item), ConditionExpression=_ROW_IS_NEW)
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def reemit_outcome(self, refund: Refund, *, now: int) -> bool:
        """Make the table's stream carry the row once more; False if it has changed since it was read."""
        return self._write_if_unchanged(refund, {"last_emitted_at": ":now"}, remove=[], now=now)

    def _write_if_unchanged(
        self, refund: Refund, changes: Mapping[str, str], *, remove: list[str], **values: Any
    ) -> bool:
        names = {"#state": "state"} if "#state" in changes else {}
        with suppress(self.client.exceptions.ConditionalCheckFailedException):
            self.client.update_item(
                TableName=self.table,
                Key=self._key_of(refund),
                UpdateExpression=setting({**changes, "revision": "revision + :one"})
                + (f" REMOVE {', '.join(remove)}" if remove else ""),
                ConditionExpression="revision = :revision",
                ExpressionAttributeValues=expression_values(**values, one=1, revision=refund.revision),
                **({"ExpressionAttributeNames": names} if names else {}),  # type: ignore[arg-type]  # One argument.
            )
            return True
        return False

    def _key_of(self, row: Refund) -> dict[str, Any]:
        return self._key(row.request)

    def _row_of(self, item: Mapping[str, Any]) -> Refund:
        return _refund(item)

    def _owner_of(self, row: Refund) -> str | None:
        return row.lease_owner

    def _key(self, request: FrozenRefund) -> dict[str, Any]:
        return to_item({"order_id": request.order_id, "refund_id": request.refund_id})


def _frozen(request: FrozenRefund, correlation_id: str) -> dict[str, Any]:
    return {
        "attempt": request.attempt,
        "amount_minor": request.amount_minor,
        "currency": request.currency,
        "payment_intent_id": request.payment_intent_id,
        "requested_at": request.requested_at,
        "correlation_id": correlation_id,
    }


def _final(final: FinalizeRefund, now: int) -> tuple[dict[str, str], dict[str, Any]]:
    """What a last state sets, and the values of it."""
    optional = {
        "stripe_refund_id": final.stripe_refund_id,
        "failure_code": final.code,
        "stripe_message": final.stripe_message,
        "stripe_request_id": final.stripe_request_id,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    changes = {
        "#state": ":state",
        "finalized_at": ":now",
        "lease_expires_at": ":zero",
        "expires_at": ":expires_at",
        **{name: f":{name}" for name in given},
    }
    return changes, {"state": final.state, "now": now, "zero": 0, "expires_at": now + RETENTION_SECONDS, **given}


def _refund(item: Mapping[str, Any]) -> Refund:
    values = from_item(item)
    return Refund(
        request=FrozenRefund(
            order_id=values["order_id"],
            refund_id=values["refund_id"],
            attempt=values["attempt"],
            amount_minor=values["amount_minor"],
            currency=values["currency"],
            payment_intent_id=values["payment_intent_id"],
            requested_at=values["requested_at"],
        ),
        state=RefundState(values["state"]),
        lease_owner=values.get("lease_owner"),
        lease_expires_at=values["lease_expires_at"],
        open_claims=values["open_claims"],
        revision=values["revision"],
        unanswered_at=values.get("unanswered_at"),
        key_spent_at=values.get("key_spent_at"),
        refused_at=values.get("refused_at"),
        stripe_refund_id=values.get("stripe_refund_id"),
        failure_code=values.get("failure_code"),
        finalized_at=values.get("finalized_at"),
        last_emitted_at=values.get("last_emitted_at"),
        is_internal=values.get("is_internal", False),
        correlation_id=values["correlation_id"],
    )
