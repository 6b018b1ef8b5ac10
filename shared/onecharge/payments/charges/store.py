"""The Payments table: one row for each order, the payment service's own truth about it.

claim                   one conditional write: a new row, an unfinished attempt whose lease is free, or a later attempt
write_payment_intent    on the lease owner, and on the id that it replaces: before any money can move
finalize                on the lease owner, the attempt, and unfinished
finalize_unclaimed      on the revision that was read, for what is learned without a message

         claim              write_payment_intent   finalize
PENDING ──┤═══════════ lease ════════════════════════├──► SUCCEEDED │ DECLINED │ REQUIRES_ACTION │ …
          └ crashed worker: the lease expires, and the next delivery claims the row
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.protocol import Finalize, FoundIntent, FrozenRequest, Payment
from onecharge.payments.leases import HeldByAnother, LeasedTable
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import expression_values, from_item, setting, to_item

UNFINISHED = "unfinished"
"""The sparse index of the rows that wait: only they have its key attributes."""
UNFINISHED_SHARDS = 8
"""The index's partitions: each takes 1,000 writes a second (Amazon DynamoDB Developer Guide, "Sharding")."""


@dataclass(frozen=True)
class Claimed:
    """The row is ours until its lease expires."""

    payment: Payment


@dataclass(frozen=True)
class AlreadyFinal:
    """The attempt is finalized, or waits for its customer, or the whole payment is over: this is a duplicate."""

    payment: Payment


@dataclass(frozen=True)
class Superseded:
    """A later attempt has taken the row over: this message is of no use any more."""

    payment: Payment


Claim = Claimed | HeldByAnother | AlreadyFinal | Superseded

_ROW_IS_NEW = "attribute_not_exists(order_id)"
_LEASE_IS_FREE = "lease_expires_at <= :now"
_SAME_ATTEMPT = f"(attempt = :attempt AND #state = :pending AND {_LEASE_IS_FREE})"
_LATER_ATTEMPT = (
    f"(attempt < :attempt AND (#state = :declined OR (#state IN (:pending, :requires_action) AND {_LEASE_IS_FREE})))"
)
_CLAIMABLE = f"{_ROW_IS_NEW} OR {_SAME_ATTEMPT} OR {_LATER_ATTEMPT}"
_UNPAID = "#state IN (:pending, :declined, :requires_action)"
_OVER = (PaymentState.SUCCEEDED, PaymentState.CANCELED, PaymentState.NEEDS_REVIEW)

_EVERY_CLAIM_SETS = {
    "#state": ":pending",
    "lease_owner": ":owner",
    "lease_expires_at": ":lease_expires_at",
    "claimed_at": ":now",
    "revision": "if_not_exists(revision, :zero) + :one",
    "unfinished_shard": ":shard",
    # The index's order: who was claimed last is visited last. How old the attempt is, `attempt_claimed_at` says.
    "unfinished_since": ":now",
}
_FROZEN = ("amount_minor", "currency", "customer_id", "placed_at", "correlation_id")
_FIRST_CLAIM_SETS = {
    **{name: f"if_not_exists({name}, :{name})" for name in _FROZEN},
    "generation": "if_not_exists(generation, :zero)",
}
_ATTEMPT_SETS = {
    "#method": "if_not_exists(#method, :method)",
    "#attempt_claimed_at": "if_not_exists(#attempt_claimed_at, :now)",
}
_OF_THE_LAST_RESULT = ["decline_code", "advice_code", "finalized_at", "expires_at"]


@dataclass(frozen=True)
class PaymentStore(LeasedTable[Payment]):
    """The Payments table through boto3's client. Every method makes exactly one request."""

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
        # Each attempt has attributes of its own, so that a later message cannot change them.
        sets = {"attempt": ":attempt", **_ATTEMPT_SETS}
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=_key(request.order_id),
                UpdateExpression=setting(_EVERY_CLAIM_SETS | _FIRST_CLAIM_SETS | sets)
                + f" REMOVE {', '.join(_OF_THE_LAST_RESULT)}",
                ConditionExpression=_CLAIMABLE,
                ExpressionAttributeNames={"#state": "state", **_attempt_names(attempt)},
                ExpressionAttributeValues=expression_values(
                    **_frozen(request, correlation_id),
                    attempt=attempt,
                    method=payment_method,
                    pending=PaymentState.PENDING,
                    declined=PaymentState.DECLINED,
                    requires_action=PaymentState.REQUIRES_ACTION,
                    owner=owner,
                    lease_expires_at=now + lease_seconds,
                    now=now,
                    shard=shard_of(request.order_id),
                    zero=0,
                    one=1,
                ),
                ReturnValues="ALL_NEW",
                # A duplicate learns from the refusal itself what it needs to know, without a read.
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            return _refusal(_payment(refused.response["Item"]), attempt)  # type: ignore[typeddict-item]  # with ALL_OLD
        return Claimed(_payment(answer["Attributes"]))

    def request_cancel(
        self, request: FrozenRequest, *, attempt: int, payment_method: str, correlation_id: str, now: int
    ) -> Payment:
        """Write that the order is to be canceled, whoever holds the row, unless the payment is over; as it is then."""
        sets = {
            "cancel_requested_at": "if_not_exists(cancel_requested_at, :now)",
            "attempt": "if_not_exists(attempt, :attempt)",
            "#state": "if_not_exists(#state, :pending)",
            **_ATTEMPT_SETS,
            "lease_expires_at": "if_not_exists(lease_expires_at, :zero)",
            "claimed_at": "if_not_exists(claimed_at, :now)",
            "revision": "if_not_exists(revision, :zero) + :one",
            "unfinished_shard": ":shard",
            "unfinished_since": "if_not_exists(unfinished_since, :now)",
        }
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=_key(request.order_id),
                UpdateExpression=setting(_FIRST_CLAIM_SETS | sets) + " REMOVE expires_at",
                ConditionExpression=f"{_ROW_IS_NEW} OR {_UNPAID}",
                ExpressionAttributeNames={"#state": "state", **_attempt_names(attempt)},
                ExpressionAttributeValues=expression_values(
                    **_frozen(request, correlation_id),
                    **_unpaid(),
                    attempt=attempt,
                    method=payment_method,
                    now=now,
                    shard=shard_of(request.order_id),
                    zero=0,
                    one=1,
                ),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            return _payment(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD
        return _payment(answer["Attributes"])

    def claim_to_cancel(self, order_id: str, *, owner: str, now: int, lease_seconds: int) -> Claim:
        """Claim a row whose cancellation is requested, whatever its attempt."""
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=_key(order_id),
                UpdateExpression=setting(_EVERY_CLAIM_SETS) + f" REMOVE {', '.join(_OF_THE_LAST_RESULT)}",
                ConditionExpression=f"attribute_exists(cancel_requested_at) AND {_UNPAID} AND {_LEASE_IS_FREE}",
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues=expression_values(
                    **_unpaid(),
                    owner=owner,
                    lease_expires_at=now + lease_seconds,
                    now=now,
                    shard=shard_of(order_id),
                    zero=0,
                    one=1,
                ),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            if "Item" not in refused.response:
                return HeldByAnother(now)
            payment = _payment(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD
            return AlreadyFinal(payment) if payment.state in _OVER else HeldByAnother(payment.lease_expires_at)
        return Claimed(_payment(answer["Attributes"]))

    # ------------------------------------------------------------ as the lease owner

    def write_payment_intent(self, payment: Payment, payment_intent_id: str, generation: int) -> Payment:
        """Write the id down, before the PaymentIntent is confirmed; returns the row, which may by now be to cancel.

        Raises:
            LeaseLost: another has the row, or has written another id: what was created is never confirmed.
        """
        replaces = (
            "payment_intent_id = :replaced" if payment.payment_intent_id else "attribute_not_exists(payment_intent_id)"
        )
        return self._write_as_owner(
            payment,
            {"payment_intent_id": ":payment_intent_id", "generation": ":generation"},
            {
                "payment_intent_id": payment_intent_id,
                "generation": generation,
                "attempt": payment.attempt,
                "replaced": payment.payment_intent_id,
            },
            only_if=f"attempt = :attempt AND {replaces}",
        )

    def finalize(self, payment: Payment, final: Finalize, *, now: int) -> Payment:
        """Write the attempt's last state, and give the lease back.

        Raises:
            LeaseLost: also if the order is to be canceled by now, and this state would leave it open to a charge.
        """
        changes, remove, values = _final(final, now)
        only_if = "attempt = :attempt"
        if final.state not in _OVER:
            # Off the index of what is unfinished, or as the customer's turn, nobody would finish the cancellation.
            only_if += " AND attribute_not_exists(cancel_requested_at)"
        return self._write_as_owner(
            payment, changes, {**values, "attempt": payment.attempt}, remove=remove, only_if=only_if
        )

    # ------------------------------------------------------------ for what is learned without a message

    def read(self, order_id: str) -> Payment | None:
        """The row of the order, as it is now."""
        answer = self.client.get_item(TableName=self.table, Key=_key(order_id), ConsistentRead=True)
        return _payment(answer["Item"]) if "Item" in answer else None

    def finalize_unclaimed(self, payment: Payment, final: Finalize, *, now: int) -> bool:
        """Write what Stripe says, if the row is as it was read, whoever holds it; False if it has changed since."""
        changes, remove, values = _final(final, now)
        return self._write_if_unchanged(payment, changes, remove=remove, **values)

    def recover(self, order_id: str, intent: FoundIntent, *, correlation_id: str, now: int) -> bool:
        """Write the row of a charge anew that was lost; False if there is a row by now."""
        item = {
            "order_id": order_id,
            "attempt": 1,
            "state": PaymentState.SUCCEEDED,
            "generation": intent.generation,
            "payment_intent_id": intent.payment_intent_id,
            "amount_minor": intent.amount_minor,
            "currency": intent.currency,
            "customer_id": intent.customer_id,
            "placed_at": intent.placed_at,
            "correlation_id": correlation_id,
            "claimed_at": now,
            "finalized_at": now,
            "lease_expires_at": 0,
            # Higher than the lost row's, which grew by one with each write: what it emits from now on is newer.
            "revision": now,
            "expires_at": now + RETENTION_SECONDS,
        }
        try:
            self.client.put_item(TableName=self.table, Item=to_item(item), ConditionExpression=_ROW_IS_NEW)
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def record_refunded(self, payment: Payment, amount_refunded_minor: int) -> bool:
        """Write what Stripe shows as refunded in all by now, which may be less; False if the row has changed since."""
        return self._write_if_unchanged(
            payment, {"amount_refunded_minor": ":refunded"}, remove=[], refunded=amount_refunded_minor
        )

    def record_dispute(self, order_id: str, status: str) -> Payment | None:
        """Write the status of the charge's dispute; None if there is no such row, or it says so already."""
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=_key(order_id),
                UpdateExpression="SET dispute_status = :dispute, revision = revision + :one",
                # Events come in any order: a dispute that is closed does not open again.
                ConditionExpression="attribute_exists(order_id) AND (attribute_not_exists(dispute_status)"
                " OR NOT dispute_status IN (:dispute, :won, :lost, :warning))",
                ExpressionAttributeValues=expression_values(
                    dispute=status, won="won", lost="lost", warning="warning_closed", one=1
                ),
                ReturnValues="ALL_NEW",
            )
        except self.client.exceptions.ConditionalCheckFailedException:
            return None
        return _payment(answer["Attributes"])

    def reemit_outcome(self, payment: Payment, *, now: int) -> bool:
        """Make the table's stream carry the row once more; False if it has changed since it was read."""
        return self._write_if_unchanged(payment, {"last_emitted_at": ":now"}, remove=[], now=now)

    def unfinished(
        self, shard: str, *, since_before: int, after: dict[str, Any] | None, limit: int
    ) -> tuple[list[str], dict[str, Any] | None]:
        """So many orders of a shard that were unfinished before then, the longest first; and where to go on."""
        answer = self.client.query(
            TableName=self.table,
            IndexName=UNFINISHED,
            KeyConditionExpression="unfinished_shard = :shard AND unfinished_since <= :before",
            ExpressionAttributeValues=expression_values(shard=shard, before=since_before),
            Limit=limit,
            **({"ExclusiveStartKey": to_item(after)} if after else {}),  # type: ignore[arg-type]  # One argument.
        )
        last = answer.get("LastEvaluatedKey")
        return [item["order_id"]["S"] for item in answer["Items"]], from_item(last) if last else None

    def _write_if_unchanged(
        self, payment: Payment, changes: Mapping[str, str], *, remove: list[str], **values: Any
    ) -> bool:
        names = {"#state": "state"} if "#state" in changes else {}
        with suppress(self.client.exceptions.ConditionalCheckFailedException):
            self.client.update_item(
                TableName=self.table,
                Key=_key(payment.request.order_id),
                UpdateExpression=setting({**changes, "revision": "revision + :one"})
                + (f" REMOVE {', '.join(remove)}" if remove else ""),
                ConditionExpression="revision = :revision",
                ExpressionAttributeValues=expression_values(**values, one=1, revision=payment.revision),
                **({"ExpressionAttributeNames": names} if names else {}),  # type: ignore[arg-type]  # One argument.
            )
            return True
        return False

    def _key_of(self, row: Payment) -> dict[str, Any]:
        return _key(row.request.order_id)

    def _row_of(self, item: Mapping[str, Any]) -> Payment:
        return _payment(item)

    def _owner_of(self, row: Payment) -> str | None:
        return row.lease_owner


def shard_of(order_id: str) -> str:
    """The partition of the index that the order's row belongs to while it is unfinished."""
    return str(int(hashlib.sha256(order_id.encode()).hexdigest(), 16) % UNFINISHED_SHARDS)


def _key(order_id: str) -> dict[str, Any]:
    return to_item({"order_id": order_id})


def _attempt_names(attempt: int) -> dict[str, str]:
    """The attributes that an attempt has of its own."""
    return {"#method": f"payment_method_{attempt}", "#attempt_claimed_at": f"attempt_claimed_at_{attempt}"}


def _frozen(request: FrozenRequest, correlation_id: str) -> dict[str, Any]:
    return {
        "amount_minor": request.amount_minor,
        "currency": request.currency,
        "customer_id": request.customer_id,
        "placed_at": request.placed_at,
        "correlation_id": correlation_id,
    }


def _unpaid() -> dict[str, str]:
    return {
        "pending": PaymentState.PENDING,
        "declined": PaymentState.DECLINED,
        "requires_action": PaymentState.REQUIRES_ACTION,
    }


def _final(final: Finalize, now: int) -> tuple[dict[str, str], list[str], dict[str, Any]]:
    """What a last state sets, removes, and the values of it."""
    optional = {
        "payment_intent_id": final.payment_intent_id,
        "generation": final.generation,
        "decline_code": final.code,
        "advice_code": final.advice_code,
        "declined_charge_id": final.declined_charge_id,
        "stripe_message": final.stripe_message,
        "stripe_request_id": final.stripe_request_id,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    changes = {"#state": ":state", "finalized_at": ":now", "lease_expires_at": ":zero"}
    changes |= {name: f":{name}" for name in given}
    values = {"state": final.state, "now": now, "zero": 0, **given}
    # Claims keep since when Stripe refuses the request: it ends with the attempt.
    remove = ["lease_owner", "refused_at"]
    if final.payment_intent_id is not None and final.declined_charge_id is None:
        # What is known of the charge is known of this PaymentIntent, and it shows none.
        remove.append("declined_charge_id")
    if final.state is PaymentState.REQUIRES_ACTION:
        return changes, remove, values
    values["expires_at"] = now + RETENTION_SECONDS
    remove += ["unfinished_shard", "unfinished_since"]
    return {**changes, "expires_at": ":expires_at"}, remove, values


def _payment(item: Mapping[str, Any]) -> Payment:
    values = from_item(item)
    names = _attempt_names(values["attempt"])
    return Payment(
        request=FrozenRequest(
            order_id=values["order_id"],
            amount_minor=values["amount_minor"],
            currency=values["currency"],
            customer_id=values["customer_id"],
            placed_at=values["placed_at"],
        ),
        attempt=values["attempt"],
        payment_method=values.get(names["#method"], ""),
        state=PaymentState(values["state"]),
        generation=values["generation"],
        payment_intent_id=values.get("payment_intent_id"),
        cancel_requested_at=values.get("cancel_requested_at"),
        declined_charge_id=values.get("declined_charge_id"),
        lease_owner=values.get("lease_owner"),
        lease_expires_at=values["lease_expires_at"],
        revision=values["revision"],
        claimed_at=values["claimed_at"],
        # A recovered row knows of no attempt.
        attempt_claimed_at=values.get(names["#attempt_claimed_at"], values["claimed_at"]),
        finalized_at=values.get("finalized_at"),
        last_emitted_at=values.get("last_emitted_at"),
        refused_at=values.get("refused_at"),
        amount_refunded_minor=values.get("amount_refunded_minor", 0),
        correlation_id=values["correlation_id"],
    )


def _refusal(payment: Payment, attempt: int) -> HeldByAnother | AlreadyFinal | Superseded:
    """Why the row cannot be claimed."""
    if payment.state in _OVER:
        return AlreadyFinal(payment)
    if attempt < payment.attempt:
        return Superseded(payment)
    if attempt == payment.attempt and payment.state is not PaymentState.PENDING:
        return AlreadyFinal(payment)
    return HeldByAnother(payment.lease_expires_at)
