"""The Payments table: one row for each order, and its conditional writes. Each method makes one request.

          claim                                finalize, or give back
PENDING ────┤════════════ lease ═════════════════├──► SUCCEEDED │ DECLINED │ REQUIRES_ACTION │ CANCELED
            └ crashed worker: the lease expires, and the next delivery claims the row as another owner
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self

from onecharge.contract.events import OrderPlaced
from onecharge.contract.states import PaymentState
from onecharge.payments.disputes import Dispute
from onecharge.payments.refund_rules import Sent
from onecharge.payments.stripe_responses import StripeIntent
from onecharge.runtime.dynamodb import expression_values, from_item, object_of, shard_of, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TERMINAL = (PaymentState.SUCCEEDED, PaymentState.CANCELED)
"""No attempt follows these. In the UNPAID states, the payment can still be charged or canceled."""

UNPAID = (PaymentState.PENDING, PaymentState.DECLINED, PaymentState.REQUIRES_ACTION)

PARAMETERS_DIFFER = "Stripe knows the key with other parameters"
"""A PaymentIntent may exist that no key returns, such as one created before the order was lost and placed again."""
KEYS_USED_UP = "every key of the window replays a failure"
DUPLICATE = "its PaymentIntent was canceled as a duplicate of another one"
"""By a release, after which an older version of the row was restored: the other one may be charged."""


@dataclass(frozen=True)
class FrozenRequest:
    """What is charged, frozen by the first claim: no later message or deployment changes it."""

    order_id: str
    amount_minor: int
    currency: str
    customer_id: str
    placed_at: int
    """When the order was placed; epoch seconds."""

    @classmethod
    def of(cls, order: OrderPlaced) -> Self:
        placed_at = int(order.placed_at.timestamp())
        return cls(order.order_id, order.amount_minor, order.currency, order.customer_id, placed_at)

    @property
    def money(self) -> tuple[int, str]:
        return self.amount_minor, self.currency

    def matches(self, intent: StripeIntent, shop: str) -> bool:
        """Whether shop, order, customer, amount and currency all match. A partial match was edited by a person."""
        named = (intent.shop, intent.order_id, intent.customer_id)
        return named == (shop, self.order_id, self.customer_id) and intent.money == self.money


@dataclass(frozen=True, kw_only=True)
class Payment:
    """One row of the Payments table. docs/protocol.md, "The row", says what its attributes mean."""

    request: FrozenRequest
    attempt: int
    payment_method: str
    """The current attempt's; "" if the row was written again after a loss."""
    state: PaymentState
    payment_intent_id: str | None = None
    released_at: int | None = None
    cancel_requested_at: int | None = None
    held_because: str | None = None
    """PARAMETERS_DIFFER, KEYS_USED_UP or DUPLICATE."""
    lease_owner: str | None = None
    lease_expires_at: int = 0
    revision: int = 0
    claimed_at: int = 0
    finalized_at: int | None = None
    last_emitted_at: int | None = None
    held_alarmed_at: int | None = None
    """When reconcile last raised the alarm that an operator has to release the order."""
    reason: str | None = None
    """Outcome.reason of the last outcome."""
    amount_refunded_minor: int = 0
    dispute_id: str | None = None
    dispute_status: str | None = None
    refunds_sent: Mapping[str, Sent] = field(default_factory=dict)
    """The requests sent for each refund, and any refusal, by refund id."""
    correlation_id: str = ""

    @property
    def dispute(self) -> Dispute | None:
        return Dispute(self.dispute_id, self.dispute_status or "") if self.dispute_id else None

    @property
    def log_fields(self) -> dict[str, Any]:
        """What every log line about the row carries."""
        about = {"attempt": self.attempt, "correlation_id": self.correlation_id}
        return {"order_id": self.request.order_id, **about, "payment_intent_id": self.payment_intent_id}


class WriteRefused(Exception):
    """Nothing was written: another worker has the row, it has ended, is to be canceled, or has changed meanwhile.

    Args:
        row: as it refused the write, so that a duplicate costs one request, and no read; None if there is no row.
    """

    def __init__(self, row: Payment | None) -> None:
        super().__init__(row)
        self.row = row


_NEXT = "if_not_exists(revision, :now) + :one"
"""A new row's revision is the present time: consumers may have seen a row that was lost."""

_IS_NEW = "attribute_not_exists(order_id)"
_LEASE_IS_FREE = "lease_expires_at <= :now"
_SAME_ATTEMPT = f"(attempt = :attempt AND #state = :pending AND {_LEASE_IS_FREE})"
_LATER_ATTEMPT = f"(attempt < :attempt AND (#state = :declined OR (#state = :pending AND {_LEASE_IS_FREE})))"
_IS_UNPAID = "#state IN (:pending, :declined, :requires_action)"


def _name(attribute: str) -> str:
    return "#state" if attribute == "state" else attribute  # A reserved word of DynamoDB.


def next_revision(row: Payment, now: int) -> int:
    """The revision of the next write: higher than each that consumers have seen, even of a row that was lost."""
    return max(row.revision + 1, now)


def payment_of(item: Mapping[str, Any]) -> Payment:
    """The item as a Payment; the fields of its request are attributes of the item."""
    values = from_item(item)
    # A recovered row has no payment method.
    method = values.get(f"payment_method_{values['attempt']}", "")
    return object_of(Payment, {**values, "payment_method": method, "request": values})


def pending_since(order_id: str, now: int) -> dict[str, Any]:
    """What makes a row PENDING: reconcile visits it last, and what the attempt before left behind is removed."""
    unfinished = {"claimed_at": now, "unfinished_shard": shard_of(order_id), "unfinished_claimed_at": now}
    return {"state": PaymentState.PENDING, **unfinished, "reason": None, "finalized_at": None, "expires_at": None}


@dataclass(frozen=True)
class PaymentStore:
    """The rows of all orders. Methods raise botocore's errors."""

    client: "DynamoDBClient"
    table: str

    def claim(
        self, order: OrderPlaced, *, correlation_id: str, now: int, lease_seconds: int, to_cancel: bool = False
    ) -> Payment:
        """Claim the order's attempt; or, to cancel, its row whatever the attempt, and store that this is requested.

        A row that exists keeps what it froze. Raises WriteRefused.
        """
        # A name for this claim: a worker that lost its lease is never taken for the one that has it.
        owner = token_hex(8)
        changes = pending_since(order.order_id, now)
        changes |= {"lease_owner": owner, "lease_expires_at": now + lease_seconds}
        frozen = {**vars(FrozenRequest.of(order)), "correlation_id": correlation_id}
        del frozen["order_id"]  # The table's key.
        # One payment method for each attempt: a later message cannot change it.
        frozen[f"payment_method_{order.attempt}"] = order.payment_method
        if to_cancel:
            condition = f"{_IS_NEW} OR ({_IS_UNPAID} AND {_LEASE_IS_FREE})"
            frozen |= {"attempt": order.attempt, "cancel_requested_at": now}
        else:
            condition = f"{_IS_NEW} OR {_SAME_ATTEMPT} OR {_LATER_ATTEMPT}"
            changes["attempt"] = order.attempt
        try:
            return self._write(order.order_id, changes, condition, _NEXT, frozen=frozen, now=now, one=1)
        except WriteRefused as refused:
            # boto3 repeats a request whose answer was lost: the claim that refuses this one may be this one.
            if refused.row and refused.row.lease_owner == owner:
                return refused.row
            raise

    def store_id(self, row: Payment, payment_intent_id: str) -> Payment:
        """Store the PaymentIntent's id, once; returns the row, whose cancellation may be requested by now.

        Raises WriteRefused. A PaymentIntent whose id is not stored is never confirmed.
        """
        changes = {"payment_intent_id": payment_intent_id}
        return self._write_as_owner(row, changes, " AND attribute_not_exists(payment_intent_id)")

    def finalize(self, row: Payment, changes: Mapping[str, Any], *, now: int) -> Payment:
        """Write the attempt's outcome, and give the lease back.

        Raises WriteRefused: the lease is lost; or a cancellation was requested, and this state is not terminal. Then
        the lease stays until it expires: the next claim finds the request, and cancels.
        """
        condition = "" if changes["state"] in TERMINAL else " AND attribute_not_exists(cancel_requested_at)"
        return self._write_as_owner(row, changes, condition, now=now)

    def _write_as_owner(self, row: Payment, changes: Mapping[str, Any], condition: str = "", now: int = 0) -> Payment:
        ours: dict[str, Any] = {"ours": row.lease_owner or "nobody", "was": row.attempt}
        # A request to cancel may have moved the revision on since the row was read.
        ours["step"] = next_revision(row, now) - row.revision
        condition = f"lease_owner = :ours AND #state = :pending AND attempt = :was{condition}"
        return self._write(row.request.order_id, changes, condition, "revision + :step", **ours)

    def _write(
        self,
        order_id: str,
        changes: Mapping[str, Any],
        condition: str,
        revision: str,
        *,
        frozen: Mapping[str, Any] = {},
        **values: Any,
    ) -> Payment:
        """Make one conditional write; returns the row after it. Raises WriteRefused.

        Args:
            changes: None removes the attribute.
            revision: what it becomes.
            frozen: written unless the row has the attribute.
            values: those of condition and revision, without the states.
        """
        sets = [f"{_name(each)} = if_not_exists({_name(each)}, :{each})" for each in frozen]
        sets += [f"{_name(each)} = :{each}" for each, value in changes.items() if value is not None]
        sets.append(f"revision = {revision}")
        removed = ", ".join(each for each, value in changes.items() if value is None)
        update = f"SET {', '.join(sets)}" + (f" REMOVE {removed}" if removed else "")
        values |= {state.lower(): state for state in UNPAID if f":{state.lower()}" in condition}
        names: Any = {"ExpressionAttributeNames": {"#state": "state"}} if "#state" in update + condition else {}
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=to_item({"order_id": order_id}),
                UpdateExpression=update,
                ConditionExpression=condition,
                ExpressionAttributeValues=expression_values(**frozen, **changes, **values),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **names,
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            item: Any = refused.response.get("Item")
            raise WriteRefused(payment_of(item) if item else None) from None
        return payment_of(answer["Attributes"])

    # ------------------------------------------------------------ unfinished work, cancellations, later changes, reads

    def give_back(self, row: Payment, **kept: str | int | None) -> Payment:
        """Give the lease back early, so that the next delivery need not wait for it. Raises WriteRefused."""
        return self._write_as_owner(row, {"lease_expires_at": 0, "lease_owner": None, **kept})

    def request_cancel(self, order_id: str, *, now: int) -> Payment:
        """Store the request to cancel a row that a worker has. Raises WriteRefused: it is stored, or too late."""
        condition = "#state = :pending AND attribute_not_exists(cancel_requested_at)"
        return self._write(order_id, {"cancel_requested_at": now}, condition, "revision + :one", one=1)

    def write_if_unchanged(self, row: Payment, changes: Mapping[str, Any], *, now: int) -> Payment:
        """Write these attributes (None removes one), whoever has the lease; returns the row after it.

        Raises WriteRefused: the row has changed since it was read.
        """
        revisions: dict[str, Any] = {"read": row.revision, "next": next_revision(row, now)}
        return self._write(row.request.order_id, changes, "revision = :read", ":next", **revisions)

    def insert(self, order_id: str, changes: Mapping[str, Any], *, now: int) -> Payment:
        """Write a row that was lost. Raises WriteRefused: there is a row by now."""
        return self._write(order_id, changes, _IS_NEW, _NEXT, now=now, one=1)

    def read(self, order_id: str) -> Payment | None:
        """The row of the order, strongly consistent."""
        answer = self.client.get_item(TableName=self.table, Key=to_item({"order_id": order_id}), ConsistentRead=True)
        return payment_of(answer["Item"]) if "Item" in answer else None

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


UNFINISHED = "unfinished"
"""The sparse index of the rows that are PENDING or REQUIRES_ACTION: only they have its key attributes."""
