"""The Refunds table: one row for each refund, the payment service's own state of it.

claim                one conditional write: a new row, or a PENDING one whose lease is free
finalize             on the lease owner, and PENDING
finalize_if_unchanged   on the revision that was read: for webhooks and scheduled runs, which claim nothing

         claim                    finalize
PENDING ──┤═══════ lease ══════════├──► SUCCEEDED │ FAILED │ NEEDS_REVIEW
          └ crashed worker: the lease expires, and the next delivery claims the row
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecharge.contract.refunds import RefundState
from onecharge.payments.refund_changes import AlreadyEnded, Changes, Claim, Claimed, HeldByAnother
from onecharge.payments.refund_rules import FinalizeRefund, FrozenRefund, Refund
from onecharge.payments.rows import WriteRefused
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import expression_values, from_item, object_of, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_IS_NEW = "attribute_not_exists(order_id)"
_CLAIMABLE = f"{_IS_NEW} OR (#state = :pending AND lease_expires_at <= :now)"
_IS_OWNER = "lease_owner = :ours AND #state = :pending"
_CLAIM_SETS = {
    "#state": ":pending",
    "lease_owner": ":owner",
    "lease_expires_at": ":lease_expires_at",
    "open_claims": "if_not_exists(open_claims, :zero) + :one",
    "revision": "if_not_exists(revision, :zero) + :one",
}


@dataclass(frozen=True)
class RefundStore:
    """The Refunds table through botocore's client. Every method makes exactly one request."""

    client: "DynamoDBClient"
    table: str

    # ------------------------------------------------------------ claim

    def claim(self, request: FrozenRefund, *, correlation_id: str, owner: str, now: int, lease_seconds: int) -> Claim:
        """Claim the refund, or say why not. A row that exists keeps what it froze."""
        lease = {"owner": owner, "lease_expires_at": now + lease_seconds, "now": now, "zero": 0, "one": 1}
        changes = _frozen(request, correlation_id) | Changes(_CLAIM_SETS, lease)
        try:
            row = self._update(_key(request.order_id, request.refund_id), changes, _CLAIMABLE)
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            row = refund_of(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD
            # boto3 repeats a request whose answer was lost: the claim that refuses this one may be this one.
            if row.lease_owner != owner:
                is_pending = row.state is RefundState.PENDING
                return HeldByAnother(row.lease_expires_at, row) if is_pending else AlreadyEnded(row)
        return Claimed(row)

    # ------------------------------------------------------------ as the lease owner

    def release_lease(self, row: Refund, **kept: str | int) -> Refund:
        """End the lease early: this worker does not send any more; returns the row. Raises WriteRefused.

        Args:
            kept: attributes to write with it, such as Stripe's error message.
        """
        released = Changes.to({"lease_expires_at": 0, **kept}, removes=["lease_owner"])
        return self._write_as_owner(row, released | Changes({"open_claims": "open_claims - :one"}, {"one": 1}))

    def write_key_number(self, row: Refund, key_number: int) -> Refund:
        """Write the number of a later key before it is used; returns the row. Raises WriteRefused."""
        return self._write_as_owner(row, Changes.to({"key_number": key_number}))

    def finalize(self, row: Refund, final: FinalizeRefund, *, now: int) -> Refund:
        """Write the final state, and release the lease; returns the row. Raises WriteRefused."""
        return self._write_as_owner(row, self._final_changes(final, now), now=now)

    def _write_as_owner(self, row: Refund, changes: Changes, *, now: int = 0) -> Refund:
        changes |= Changes.to({"revision": _next_revision(row, now)})
        try:
            return self._update(row.key, changes | Changes(values={"ours": row.lease_owner or "nobody"}), _IS_OWNER)
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            raise WriteRefused from refused

    # ------------------------------------------------------------ for webhooks and scheduled runs

    def read(self, order_id: str, refund_id: str) -> Refund | None:
        """The row of the refund, strongly consistent."""
        key = to_item(_key(order_id, refund_id))
        answer = self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)
        return refund_of(answer["Item"]) if "Item" in answer else None

    def recover(self, request: FrozenRefund, final: FinalizeRefund, *, correlation_id: str, now: int) -> bool:
        """Write a lost row again, from Stripe's refund; False if there is a row by now."""
        item = {
            **vars(request),
            "correlation_id": correlation_id,
            "state": final.state,
            "stripe_refund_id": final.stripe_refund_id,
            "failure_code": final.code,
            "finalized_at": now,
            "lease_expires_at": 0,
            "open_claims": 0,
            "revision": 1,
            # As of the lost row: its refund was made when it was requested.
            "expires_at": request.requested_at + RETENTION_SECONDS,
        }
        try:
            self.client.put_item(TableName=self.table, Item=to_item(item), ConditionExpression=_IS_NEW)
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def finalize_if_unchanged(self, row: Refund, final: FinalizeRefund, *, now: int) -> bool:
        """Write what Stripe says, whoever holds the row; False if the row has changed since it was read."""
        return self._write_if_unchanged(row, self._final_changes(final, now), now=now)

    def record_pending_reason(self, row: Refund, reason: str | None, *, now: int) -> bool:
        """Write why Stripe has not sent the money yet; None: it has. False if the row has changed since."""
        return self._write_if_unchanged(row, Changes.to_exactly({"pending_reason": reason}), now=now)

    def reemit_outcome(self, row: Refund, *, now: int) -> bool:
        """Make the table's stream carry the row once more; False if the row has changed since it was read."""
        return self._write_if_unchanged(row, Changes.to({"last_emitted_at": now}), now=now)

    def _write_if_unchanged(self, row: Refund, changes: Changes, *, now: int, condition: str = "") -> bool:
        changes |= Changes({"revision": ":next"}, {"next": _next_revision(row, now), "read": row.revision})
        try:
            self._update(row.key, changes, "revision = :read" + (f" AND {condition}" if condition else ""))
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _update(self, key: Mapping[str, Any], changes: Changes, condition: str) -> Refund:
        """One conditional write; returns the row after it. If it is refused, the error has the row as it was."""
        pending = {"pending": RefundState.PENDING} if ":pending" in condition else {}
        names = {"#state": "state"} if "#state" in changes.sets or "#state" in condition else {}
        answer = self.client.update_item(
            TableName=self.table,
            Key=to_item(key),
            UpdateExpression=changes.expression,
            ConditionExpression=condition,
            **({"ExpressionAttributeNames": names} if names else {}),  # type: ignore[arg-type]  # One argument.
            ExpressionAttributeValues=expression_values(**changes.values, **pending),
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        return refund_of(answer["Attributes"])

    def _final_changes(self, final: FinalizeRefund, now: int) -> Changes:
        return Changes.to(
            {
                "state": final.state,
                "finalized_at": now,
                "lease_expires_at": 0,
                "expires_at": now + RETENTION_SECONDS,
                "stripe_refund_id": final.stripe_refund_id,
                "failure_code": final.code,
                "stripe_message": final.stripe_message,
                "stripe_request_id": final.stripe_request_id,
            },
            removes=["lease_owner"],
        ) | Changes.to_exactly({"pending_reason": final.pending_reason})


def refund_of(item: Mapping[str, Any]) -> Refund:
    """The item as a Refund; the fields of its request are attributes of the item."""
    values = from_item(item)
    return object_of(Refund, {**values, "request": values})


def _key(order_id: str, refund_id: str) -> dict[str, str]:
    return {"order_id": order_id, "refund_id": refund_id}


def _frozen(request: FrozenRefund, correlation_id: str) -> Changes:
    """What the first claim writes, and no later one changes: each field of the request is an attribute of the row."""
    values = {name: value for name, value in vars(request).items() if name not in ("order_id", "refund_id")}
    values["correlation_id"] = correlation_id
    return Changes({name: f"if_not_exists({name}, :{name})" for name in values}, values)


def _next_revision(row: Refund, now: int) -> int:
    """The revision of the next write: with an outcome at least the present time, in epoch seconds.

    So it is higher than each that consumers have seen, even if the row was lost, or is a restored, older one.
    """
    return max(row.revision + 1, now)
