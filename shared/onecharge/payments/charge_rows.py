"""The Payments table through boto3's client. Every method makes one request, and every write has a condition."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rules import Finalize, StripeIntent
from onecharge.payments.rows import (
    FINAL,
    UNPAID,
    AlreadyEnded,
    Claim,
    Claimed,
    FrozenRequest,
    HeldByAnother,
    Payment,
    Superseded,
    WriteRefused,
)
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import expression_values, from_item, object_of, shard_of, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

UNFINISHED = "unfinished"
"""The sparse index of the rows that are PENDING or REQUIRES_ACTION: only they have its key attributes."""

_IS_NEW = "attribute_not_exists(order_id)"
_LEASE_IS_FREE = "lease_expires_at <= :now"
_SAME_ATTEMPT = f"(attempt = :attempt AND #state = :pending AND {_LEASE_IS_FREE})"
_LATER_ATTEMPT = f"(attempt < :attempt AND (#state = :declined OR (#state = :pending AND {_LEASE_IS_FREE})))"
_IS_UNPAID = "#state IN (:pending, :declined, :requires_action)"
_UNPAID = {state.lower(): state for state in UNPAID}


# One payment method for each attempt, so that a later message cannot change it.
_FREEZE = ", ".join(
    f"{name} = if_not_exists({name}, :{name.strip('#')})"
    for name in ("amount_minor", "currency", "customer_id", "placed_at", "correlation_id", "#method")
)
# A new row's revision is the present time, as with every outcome: consumers may have seen a row that was lost.
_COUNT = "revision = if_not_exists(revision, :now) + :one"
# The row that was claimed last is visited last. What the attempt before left behind is removed.
_TAKE = (
    f"#state = :pending, lease_owner = :owner, lease_expires_at = :expires, claimed_at = :now, {_COUNT}, "
    "unfinished_shard = :shard, unfinished_claimed_at = :now REMOVE reason, finalized_at, expires_at"
)
_ASK_TO_CANCEL = (
    f"cancel_requested_at = if_not_exists(cancel_requested_at, :now), {_COUNT}, attempt = if_not_exists(attempt, "
    ":attempt), #state = if_not_exists(#state, :pending), lease_expires_at = if_not_exists(lease_expires_at, :zero), "
    "claimed_at = if_not_exists(claimed_at, :now), unfinished_shard = if_not_exists(unfinished_shard, :shard), "
    "unfinished_claimed_at = if_not_exists(unfinished_claimed_at, :now) REMOVE expires_at"
)


def new_lease_owner() -> str:
    """A name for one claim of one worker: one that lost its lease is never mistaken for the one that holds it."""
    return secrets.token_hex(8)


@dataclass(frozen=True)
class PaymentStore:
    """The rows of all orders. Methods raise botocore's errors."""

    client: "DynamoDBClient"
    table: str

    # ------------------------------------------------------------ claim

    def claim(
        self,
        request: FrozenRequest,
        *,
        attempt: int,
        payment_method: str,
        correlation_id: str,
        owner: str,
        now: int,
        lease_seconds: int,
    ) -> Claim:
        """Claim the attempt, or say why not. A row that exists keeps what it froze."""
        asked = _asked(request, attempt, payment_method, correlation_id, now)
        states = {"pending": PaymentState.PENDING, "declined": PaymentState.DECLINED}
        is_claimed, row = self._update(
            request.order_id,
            f"SET {_FREEZE}, attempt = :attempt, {_TAKE}",
            f"{_IS_NEW} OR {_SAME_ATTEMPT} OR {_LATER_ATTEMPT}",
            asked | states | {"owner": owner, "expires": now + lease_seconds},
            method=f"payment_method_{attempt}",
        )
        if row is None:
            return HeldByAnother(now)
        # boto3 repeats a request whose answer was lost: the claim that refuses this one may be this one.
        if is_claimed or row.lease_owner == owner:
            return Claimed(row)
        if row.state not in FINAL and attempt < row.attempt:
            return Superseded(row)
        if row.state in FINAL or (attempt == row.attempt and row.state is not PaymentState.PENDING):
            return AlreadyEnded(row)
        return HeldByAnother(row.lease_expires_at, row)

    def request_cancel(
        self, request: FrozenRequest, *, attempt: int, payment_method: str, correlation_id: str, now: int
    ) -> Payment | None:
        """Store the request to cancel, whoever has the lease, unless the state is final; returns the row after that."""
        asked = _asked(request, attempt, payment_method, correlation_id, now)
        _, row = self._update(
            request.order_id,
            f"SET {_FREEZE}, {_ASK_TO_CANCEL}",
            f"{_IS_NEW} OR {_IS_UNPAID}",
            asked | _UNPAID | {"zero": 0},
            method=f"payment_method_{attempt}",
        )
        return row

    def claim_to_cancel(self, order_id: str, *, owner: str, now: int, lease_seconds: int) -> Claim:
        """Claim a row whose cancellation is requested, whatever its attempt."""
        lease = {"owner": owner, "expires": now + lease_seconds, "now": now, "one": 1, "shard": shard_of(order_id)}
        condition = f"attribute_exists(cancel_requested_at) AND {_IS_UNPAID} AND {_LEASE_IS_FREE}"
        is_claimed, row = self._update(order_id, f"SET {_TAKE}", condition, _UNPAID | lease)
        if row is None:
            return HeldByAnother(now)
        if is_claimed or row.lease_owner == owner:
            return Claimed(row)
        return AlreadyEnded(row) if row.state in FINAL else HeldByAnother(row.lease_expires_at, row)

    # ------------------------------------------------------------ as the lease owner

    def store_id(self, row: Payment, payment_intent_id: str) -> Payment:
        """Store the PaymentIntent's id; returns the row, whose cancellation may be requested by now.

        Raises WriteRefused: another worker has the row, or has stored an id: what was created is never confirmed.
        """
        condition = " AND attribute_not_exists(payment_intent_id)"
        return self._write_as_owner(row, {"payment_intent_id": payment_intent_id}, condition)

    def finalize(self, row: Payment, final: Finalize, *, now: int) -> Payment:
        """Write the attempt's final state, and release the lease.

        Raises WriteRefused: the lease is lost; or a cancellation was requested, and this state is not final. Then the
        worker keeps the lease until it ends by itself: the next claim finds the request, and cancels.
        """
        condition = "" if final.state in FINAL else " AND attribute_not_exists(cancel_requested_at)"
        return self._write_as_owner(row, final_changes(final, now), condition, now=now)

    def release(self, row: Payment, **kept: str | int) -> Payment:
        """End the lease early, so that the next delivery need not wait for it. Raises WriteRefused."""
        return self._write_as_owner(row, {"lease_expires_at": 0, "lease_owner": None, **kept})

    def _write_as_owner(self, row: Payment, changes: Mapping[str, Any], condition: str = "", now: int = 0) -> Payment:
        ours = {"ours": row.lease_owner or "nobody", "was": row.attempt, "pending": PaymentState.PENDING}
        # A request to cancel may have moved the revision on since the row was read.
        step = {"step": next_revision(row, now) - row.revision}
        is_written, after = self._update(
            row.request.order_id,
            _setting(changes, "revision + :step"),
            f"lease_owner = :ours AND #state = :pending AND attempt = :was{condition}",
            {**changes, **step, **ours},
        )
        if not is_written or after is None:
            raise WriteRefused
        return after

    # ------------------------------------------------------------ for webhooks, reconcile and operators

    def read(self, order_id: str) -> Payment | None:
        """The row of the order, strongly consistent."""
        answer = self.client.get_item(TableName=self.table, Key=to_item({"order_id": order_id}), ConsistentRead=True)
        return payment_of(answer["Item"]) if "Item" in answer else None

    def write_if_unchanged(self, row: Payment, changes: Mapping[str, Any], *, now: int) -> bool:
        """Write these attributes (None removes one), whoever has the lease; False if the row has changed since."""
        revisions = {"next": next_revision(row, now), "read": row.revision}
        sets = _setting(changes, ":next")
        return self._update(row.request.order_id, sets, "revision = :read", {**changes, **revisions})[0]

    def recover(self, intent: StripeIntent, *, now: int) -> bool:
        """Write a lost row again, from its PaymentIntent that succeeded; False if there is a row by now.

        It expires when the lost one would have.
        """
        item = {
            "order_id": intent.order_id,
            "amount_minor": intent.amount_minor,
            "currency": intent.currency,
            "customer_id": intent.customer_id,
            "placed_at": intent.created,
            "attempt": 1,
            "correlation_id": "recovered",
            "claimed_at": now,
            "revision": now + 1,
            **final_changes(Finalize(PaymentState.SUCCEEDED, intent), intent.charged_at or now),
        }
        try:
            self.client.put_item(TableName=self.table, Item=to_item(item), ConditionExpression=_IS_NEW)
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def unfinished(
        self, shard: str, *, claimed_before: int, after: dict[str, Any] | None, limit: int
    ) -> tuple[list[str], dict[str, Any] | None]:
        """One page of a shard's unfinished orders, the one claimed longest ago first; and the cursor of the next.

        Args:
            claimed_before: epoch seconds, when the row was last claimed at the latest.
            after: the cursor; None for the first page.
        """
        answer = self.client.query(
            TableName=self.table,
            IndexName=UNFINISHED,
            KeyConditionExpression="unfinished_shard = :shard AND unfinished_claimed_at <= :before",
            ExpressionAttributeValues=expression_values(shard=shard, before=claimed_before),
            Limit=limit,
            **({"ExclusiveStartKey": to_item(after)} if after else {}),  # type: ignore[arg-type]  # One argument.
        )
        last = answer.get("LastEvaluatedKey")
        return [item["order_id"]["S"] for item in answer["Items"]], from_item(last) if last else None

    def _update(
        self, order_id: str, update: str, condition: str, values: Mapping[str, Any], *, method: str = ""
    ) -> tuple[bool, Payment | None]:
        """One conditional write: whether it was made; and the row after it, or as it was if it was refused.

        So a duplicate costs one request, and no read. None: there is no such row.
        """
        names = {"#state": "state", "#method": method}
        used = {name: attribute for name, attribute in names.items() if name in update + condition}
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=to_item({"order_id": order_id}),
                UpdateExpression=update,
                ConditionExpression=condition,
                **({"ExpressionAttributeNames": used} if used else {}),  # type: ignore[arg-type]  # One argument.
                ExpressionAttributeValues=expression_values(**values),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            item: Any = refused.response.get("Item")
            return False, payment_of(item) if item else None
        return True, payment_of(answer["Attributes"])


def _asked(request: FrozenRequest, attempt: int, payment_method: str, correlation_id: str, now: int) -> dict[str, Any]:
    """The values of a message."""
    about = {"attempt": attempt, "method": payment_method, "correlation_id": correlation_id}
    values = {**vars(request), **about, "now": now, "one": 1, "shard": shard_of(request.order_id)}
    return {name: value for name, value in values.items() if name != "order_id"}


def _setting(changes: Mapping[str, Any], revision: str) -> str:
    """The update that sets these attributes, and removes those whose value is None."""
    sets = [
        "#state = :state" if name == "state" else f"{name} = :{name}" for name in changes if changes[name] is not None
    ]
    removes = ", ".join(name for name, value in changes.items() if value is None)
    return f"SET {', '.join([*sets, f'revision = {revision}'])}" + (f" REMOVE {removes}" if removes else "")


def final_changes(final: Finalize, now: int) -> dict[str, Any]:
    """What a final state writes. REQUIRES_ACTION stays in the index of unfinished rows, and does not expire."""
    changes: dict[str, Any] = {
        "state": final.state,
        "finalized_at": now,
        "reason": final.reason,
        "lease_owner": None,
        "lease_expires_at": 0,
    }
    if final.intent:
        changes["payment_intent_id"] = final.intent.payment_intent_id
    if final.intent and final.state is PaymentState.SUCCEEDED:
        changes |= after_charge(final.intent)
    if final.state is not PaymentState.REQUIRES_ACTION:
        changes |= {"expires_at": now + RETENTION_SECONDS, "unfinished_shard": None, "unfinished_claimed_at": None}
    return changes


def after_charge(intent: StripeIntent) -> dict[str, Any]:
    """The attributes of refunds and of the newest dispute of a PaymentIntent that succeeded."""
    refunded: dict[str, Any] = {"amount_refunded_minor": intent.amount_refunded_minor}
    if intent.dispute is None:
        # Nobody has asked, unless Stripe says that there is one: what the row knows stays.
        return refunded
    return {**refunded, "dispute_id": intent.dispute.dispute_id, "dispute_status": intent.dispute.status}


def next_revision(row: Payment, now: int) -> int:
    """The revision of the next write: higher than each that consumers have seen, even of a row that was lost."""
    return max(row.revision + 1, now)


def payment_of(item: Mapping[str, Any]) -> Payment:
    """The item as a Payment; the fields of its request are attributes of the item."""
    values = from_item(item)
    # A recovered row has no payment method.
    method = values.get(f"payment_method_{values['attempt']}", "")
    return object_of(Payment, {**values, "payment_method": method, "request": values})
