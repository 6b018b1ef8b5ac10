"""The Payments table: its rows, one for each order, and their writes. Each method makes one request, each write has a
condition.

          claim                                  finalize, or release
PENDING ────┤════════════ lease ═════════════════├──► SUCCEEDED │ DECLINED │ REQUIRES_ACTION │ CANCELED
            └ crashed worker: the lease expires, and the next delivery claims the row as another owner
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from onecharge.contract.events import OrderPlaced
from onecharge.contract.refunds import is_refundable_despite
from onecharge.contract.states import PaymentState
from onecharge.payments.refund_rules import Sent
from onecharge.runtime.dynamodb import expression_values, from_item, object_of, shard_of, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

FINAL = (PaymentState.SUCCEEDED, PaymentState.CANCELED)
"""No attempt follows. The other states are UNPAID: the payment can still be charged, and still be canceled."""

UNPAID = (PaymentState.PENDING, PaymentState.DECLINED, PaymentState.REQUIRES_ACTION)

OTHER_PARAMETERS = "Stripe knows the key with other parameters"
"""A PaymentIntent may exist that no key leads to: of the order as it was before it was lost, say."""
KEYS_USED_UP = "every key of the window replays a failure"


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


class Dispute(NamedTuple):
    """A charge's dispute."""

    dispute_id: str
    status: str

    @property
    def needs_response(self) -> bool:
        """Whether Stripe waits for evidence: of a dispute, of an inquiry before one, or of an appeal."""
        return self.status.endswith("needs_response")

    @property
    def took_nothing(self) -> bool:
        """Whether it left the money with us."""
        return is_refundable_despite(self.status)

    @staticmethod
    def that_counts(newest_first: "Iterable[Dispute]") -> "Dispute | None":
        """Of a payment's disputes the newest, rather one that takes or took money."""
        return min(newest_first, key=lambda each: each.took_nothing, default=None)


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
    """OTHER_PARAMETERS or KEYS_USED_UP."""
    lease_owner: str | None = None
    lease_expires_at: int = 0
    revision: int = 0
    claimed_at: int = 0
    finalized_at: int | None = None
    last_emitted_at: int | None = None
    held_alarmed_at: int | None = None
    """When reconcile last raised the alarm that an operator has to release the order."""
    reason: str | None = None
    """Finalize.reason of the last final state."""
    amount_refunded_minor: int = 0
    dispute_id: str | None = None
    dispute_status: str | None = None
    refunds_sent: Mapping[str, Sent] = field(default_factory=dict)
    """What is known of the requests for each refund, by its id."""
    correlation_id: str = ""

    def create_key(self, shop: str, number: int) -> str:
        """An idempotency key of the row's window: a release begins another window, with other keys."""
        return f"{shop}:{self.request.order_id}:{self.released_at or 0}:{number}"

    def confirm_key(self, shop: str) -> str:
        """The one idempotency key of this attempt and PaymentIntent."""
        return f"{shop}:{self.request.order_id}:{self.attempt}:{self.payment_intent_id}"

    @property
    def dispute(self) -> Dispute | None:
        return Dispute(self.dispute_id, self.dispute_status or "") if self.dispute_id else None

    @property
    def log_fields(self) -> dict[str, Any]:
        """What every log line about the row carries."""
        return {"order_id": self.request.order_id, **self._named("attempt correlation_id payment_intent_id")}

    @property
    def shown(self) -> dict[str, Any]:
        """The row in a log line: what decides about claims and writes."""
        of_the_lease = self._named("state attempt revision lease_owner lease_expires_at finalized_at")
        return of_the_lease | self._named("payment_intent_id released_at cancel_requested_at")

    def _named(self, names: str) -> dict[str, Any]:
        return {name: value for name in names.split() if (value := getattr(self, name)) is not None}


# ---------------------------------------------------------------- what a claim and a write end with


@dataclass(frozen=True)
class Claimed:
    """The row is ours until its lease expires."""

    row: Payment


@dataclass(frozen=True)
class HeldByAnother:
    """Another delivery has the lease until then, in epoch seconds."""

    lease_expires_at: int
    row: Payment | None = None
    """As it refused the claim; None if it was lost meanwhile."""


@dataclass(frozen=True)
class AlreadyEnded:
    """The attempt has ended: this delivery is a duplicate."""

    row: Payment


@dataclass(frozen=True)
class Superseded:
    """A later attempt has taken the row over."""

    row: Payment


type Claim = Claimed | HeldByAnother | AlreadyEnded | Superseded


class WriteRefused(Exception):
    """Nothing was written: another worker has the row or has finalized it, or it is to be canceled."""


# ---------------------------------------------------------------- the table

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

    def finalize(self, row: Payment, changes: Mapping[str, Any], *, now: int) -> Payment:
        """Write the attempt's final state, and release the lease.

        Raises WriteRefused: the lease is lost; or a cancellation was requested, and this state is not final. Then the
        worker keeps the lease until it ends by itself: the next claim finds the request, and cancels.
        """
        condition = "" if changes["state"] in FINAL else " AND attribute_not_exists(cancel_requested_at)"
        return self._write_as_owner(row, changes, condition, now=now)

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

    def insert(self, item: Mapping[str, Any]) -> bool:
        """Write a row that was lost; False if there is a row by now."""
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


def next_revision(row: Payment, now: int) -> int:
    """The revision of the next write: higher than each that consumers have seen, even of a row that was lost."""
    return max(row.revision + 1, now)


def payment_of(item: Mapping[str, Any]) -> Payment:
    """The item as a Payment; the fields of its request are attributes of the item."""
    values = from_item(item)
    # A recovered row has no payment method.
    method = values.get(f"payment_method_{values['attempt']}", "")
    return object_of(Payment, {**values, "payment_method": method, "request": values})
