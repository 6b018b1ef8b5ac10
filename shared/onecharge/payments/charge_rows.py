"""The Payments table through botocore's client. Every method makes one request.

claim               one conditional write: no row; a PENDING attempt whose lease is free; or a later attempt
store_id            if the lease is ours and the row names no PaymentIntent: before money can move
finalize            if the lease is ours, on the attempt
write_if_unchanged  on the revision that was read: for webhooks, reconcile and operators, who claim nothing
"""

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

_RESULT = ("reason", "finalized_at", "expires_at")
"""What an attempt leaves behind, and the next claim removes."""
_INDEX_KEYS = ("unfinished_shard", "unfinished_claimed_at")


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
        states = {"pending": PaymentState.PENDING, "declined": PaymentState.DECLINED}
        values = {**states, "attempt": attempt, "method": payment_method}
        is_claimed, row = self._update(
            request.order_id,
            {**_frozen(request, correlation_id), **_CLAIM, "attempt": ":attempt", **_METHOD},
            {**values, **_values(request, correlation_id), **_lease(request.order_id, owner, now, lease_seconds)},
            condition=f"{_IS_NEW} OR {_SAME_ATTEMPT} OR {_LATER_ATTEMPT}",
            names={"#method": _method_of(attempt)},
            removes=_RESULT,
        )
        if row is None:
            return HeldByAnother(now)
        # boto3 repeats a request whose answer was lost: the claim that refuses this one may be this one.
        return Claimed(row) if is_claimed or row.lease_owner == owner else _why_not_claimed(row, attempt)

    def request_cancel(
        self, request: FrozenRequest, *, attempt: int, payment_method: str, correlation_id: str, now: int
    ) -> Payment | None:
        """Store the request to cancel, whoever has the lease, unless the state is final; returns the row after that."""
        sets = {
            **_frozen(request, correlation_id),
            **{name: f"if_not_exists({name}, {value})" for name, value in _FIRST.items()},
            "#state": "if_not_exists(#state, :pending)",
            "revision": "if_not_exists(revision, :now) + :one",
            **_METHOD,
        }
        values = {"attempt": attempt, "method": payment_method, "now": now, "zero": 0, "one": 1}
        _, row = self._update(
            request.order_id,
            sets,
            {**_UNPAID, **_values(request, correlation_id), **values, "shard": shard_of(request.order_id)},
            condition=f"{_IS_NEW} OR {_IS_UNPAID}",
            names={"#method": _method_of(attempt)},
            removes=("expires_at",),
        )
        return row

    def claim_to_cancel(self, order_id: str, *, owner: str, now: int, lease_seconds: int) -> Claim:
        """Claim a row whose cancellation is requested, whatever its attempt."""
        is_claimed, row = self._update(
            order_id,
            _CLAIM,
            {**_UNPAID, **_lease(order_id, owner, now, lease_seconds)},
            condition=f"attribute_exists(cancel_requested_at) AND {_IS_UNPAID} AND {_LEASE_IS_FREE}",
            removes=_RESULT,
        )
        if row is None or not (is_claimed or row.lease_owner == owner):
            is_final = row is not None and row.state in FINAL
            return AlreadyEnded(row) if row and is_final else HeldByAnother(row.lease_expires_at if row else now, row)
        return Claimed(row)

    # ------------------------------------------------------------ as the lease owner

    def store_id(self, row: Payment, payment_intent_id: str) -> Payment:
        """Store the PaymentIntent's id; returns the row, whose cancellation may be requested by now.

        Raises WriteRefused: another worker has the row, or has stored an id: what was created is never confirmed.
        """
        condition = "attribute_not_exists(payment_intent_id)"
        return self._write_as_owner(row, {"payment_intent_id": payment_intent_id}, condition)

    def finalize(self, row: Payment, final: Finalize, *, now: int) -> Payment:
        """Write the attempt's final state, and release the lease.

        Raises WriteRefused: the lease is lost; or a cancellation was requested, and this state is not final. Then the
        worker keeps the lease until it ends by itself: the next claim finds the request, and cancels.
        """
        condition = "" if final.state in FINAL else "attribute_not_exists(cancel_requested_at)"
        return self._write_as_owner(row, final_changes(final, now), condition, now=now)

    def release(self, row: Payment, **kept: str | int) -> Payment:
        """End the lease early, so that the next delivery need not wait for it. Raises WriteRefused."""
        return self._write_as_owner(row, {"lease_expires_at": 0, "lease_owner": None, **kept})

    def _write_as_owner(self, row: Payment, changes: Mapping[str, Any], condition: str = "", now: int = 0) -> Payment:
        sets, removes = _split(changes)
        # A request to cancel may have moved the revision on since the row was read.
        is_written, after = self._update(
            row.request.order_id,
            {**sets, "revision": "revision + :step"},
            {
                **{name: value for name, value in changes.items() if value is not None},
                "step": next_revision(row, now) - row.revision,
                "ours": row.lease_owner or "nobody",
                "was": row.attempt,
                "pending": PaymentState.PENDING,
            },
            condition=" AND ".join(
                filter(None, ("lease_owner = :ours AND #state = :pending AND attempt = :was", condition))
            ),
            removes=removes,
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
        sets, removes = _split(changes)
        is_written, _ = self._update(
            row.request.order_id,
            {**sets, "revision": ":next"},
            {
                **{name: value for name, value in changes.items() if value is not None},
                "next": next_revision(row, now),
                "read": row.revision,
            },
            condition="revision = :read",
            removes=removes,
        )
        return is_written

    def recover(self, intent: StripeIntent, *, now: int) -> bool:
        """Write a lost row again, from its PaymentIntent that succeeded; False if there is a row by now.

        It expires when the lost one would have.
        """
        paid_at = intent.charged_at or now
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
            **final_changes(Finalize(PaymentState.SUCCEEDED, intent), paid_at),
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
        self,
        order_id: str,
        sets: Mapping[str, str],
        values: Mapping[str, Any],
        *,
        condition: str,
        names: Mapping[str, str] | None = None,
        removes: tuple[str, ...] = (),
    ) -> tuple[bool, Payment | None]:
        """One conditional write: whether it was made; and the row after it, or as it was if it was refused.

        So a duplicate costs one request, and no read. None: there is no such row.
        """
        expression = "SET " + ", ".join(f"{name} = {value}" for name, value in sets.items())
        expression += f" REMOVE {', '.join(removes)}" if removes else ""
        used = {**(names or {}), **({"#state": "state"} if "#state" in expression + condition else {})}
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=to_item({"order_id": order_id}),
                UpdateExpression=expression,
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


# ---------------------------------------------------------------- what a write sets

_CLAIM = {
    "#state": ":pending",
    "lease_owner": ":owner",
    "lease_expires_at": ":lease_expires_at",
    "claimed_at": ":now",
    # As with every outcome (next_revision): consumers may have seen a row that was lost.
    "revision": "if_not_exists(revision, :now) + :one",
    # The row that was claimed last is visited last.
    "unfinished_shard": ":shard",
    "unfinished_claimed_at": ":now",
}
_FIRST = {
    "cancel_requested_at": ":now",
    "attempt": ":attempt",
    "lease_expires_at": ":zero",
    "claimed_at": ":now",
    "unfinished_shard": ":shard",
    "unfinished_claimed_at": ":now",
}
_METHOD = {"#method": "if_not_exists(#method, :method)"}
"""One attribute for each attempt, so that a later message cannot change it."""


def _method_of(attempt: int) -> str:
    return f"payment_method_{attempt}"


def _frozen(request: FrozenRequest, correlation_id: str) -> dict[str, str]:
    """What the first write freezes, and no later one changes."""
    return {name: f"if_not_exists({name}, :{name})" for name in _values(request, correlation_id)}


def _values(request: FrozenRequest, correlation_id: str) -> dict[str, Any]:
    values = {name: value for name, value in vars(request).items() if name != "order_id"}
    return {**values, "correlation_id": correlation_id}


def _lease(order_id: str, owner: str, now: int, lease_seconds: int) -> dict[str, Any]:
    """The values of _CLAIM."""
    lease = {"owner": owner, "lease_expires_at": now + lease_seconds, "now": now, "one": 1}
    return {**lease, "shard": shard_of(order_id)}


def _split(changes: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The attributes to set, with their values' names; and those to remove."""
    sets = {"#state" if name == "state" else name: f":{name}" for name, value in changes.items() if value is not None}
    return sets, tuple(name for name, value in changes.items() if value is None)


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
        changes |= {"expires_at": now + RETENTION_SECONDS, **dict.fromkeys(_INDEX_KEYS)}
    return changes


def after_charge(intent: StripeIntent) -> dict[str, Any]:
    """The attributes of refunds and of the newest dispute of a PaymentIntent that succeeded."""
    refunded: dict[str, Any] = {"amount_refunded_minor": intent.amount_refunded_minor}
    if intent.dispute is None:
        # Nobody has asked, unless Stripe says that there is one: what the row knows stays.
        return refunded
    return {**refunded, "dispute_id": intent.dispute.dispute_id, "dispute_status": intent.dispute.status}


def next_revision(row: Payment, now: int) -> int:
    """The revision of the next write: with an outcome at least the present time, in epoch seconds.

    So it is higher than each that consumers have seen, even if the row was lost, or is a restored, older one.
    """
    return max(row.revision + 1, now)


def payment_of(item: Mapping[str, Any]) -> Payment:
    """The item as a Payment; the fields of its request are attributes of the item."""
    values = from_item(item)
    # A recovered row has no payment method.
    method = values.get(_method_of(values["attempt"]), "")
    return object_of(Payment, {**values, "payment_method": method, "request": values})


def _why_not_claimed(row: Payment, attempt: int) -> HeldByAnother | AlreadyEnded | Superseded:
    if row.state in FINAL:
        return AlreadyEnded(row)
    if attempt < row.attempt:
        return Superseded(row)
    if attempt == row.attempt and row.state is not PaymentState.PENDING:
        return AlreadyEnded(row)
    return HeldByAnother(row.lease_expires_at, row)
