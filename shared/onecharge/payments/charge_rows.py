"""The Payments table: one row for each order, the payment service's own state of it.

claim                   one conditional write: a new row, a PENDING attempt whose lease is free, or a later attempt
write_payment_intent    if lease_owner is ours and state PENDING, and on the id that it replaces: before money can move
finalize                if lease_owner is ours and state PENDING, and on the attempt
finalize_if_unchanged      on the revision that was read: for webhooks and scheduled runs, which claim nothing

         claim              write_payment_intent   finalize
PENDING ──┤═══════════ lease ════════════════════════├──► SUCCEEDED │ DECLINED │ REQUIRES_ACTION │ …
          └ crashed worker: the lease expires, and the next delivery claims the row
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onecharge.contract.states import PaymentState
from onecharge.payments.after_charge import AfterCharge, status_of
from onecharge.payments.charge_rules import (
    CLOSED_STATES,
    UNPAID_STATES,
    Finalize,
    FrozenRequest,
    Payment,
    StripeIntent,
)
from onecharge.payments.rows import (
    LEASE_IS_FREE,
    ROW_IS_NEW,
    AlreadyEnded,
    Changes,
    Claim,
    Claimed,
    HeldByAnother,
    LeasedTable,
    NoSuchRow,
    Superseded,
    frozen,
)
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import expression_values, from_item, object_of, shard_of, to_item

UNFINISHED = "unfinished"
"""The sparse index of the unfinished rows: only they have its key attributes."""

_SAME_ATTEMPT = f"(attempt = :attempt AND #state = :pending AND {LEASE_IS_FREE})"
_LATER_ATTEMPT = (
    f"(attempt < :attempt AND (#state = :declined OR (#state IN (:pending, :requires_action) AND {LEASE_IS_FREE})))"
)
_CLAIMABLE = f"{ROW_IS_NEW} OR {_SAME_ATTEMPT} OR {_LATER_ATTEMPT}"
_IS_UNPAID = "#state IN (:pending, :declined, :requires_action)"
_UNPAID = {state.lower(): state for state in UNPAID_STATES}
"""The values of this condition."""

_EVERY_CLAIM_SETS = {
    "#state": ":pending",
    "lease_owner": ":owner",
    "lease_expires_at": ":lease_expires_at",
    "claimed_at": ":now",
    # As of every outcome (next_revision): consumers may have seen a row that was lost.
    "revision": "if_not_exists(revision, :now) + :one",
    "unfinished_shard": ":shard",
    # The index's sort key: `claimed_at` once more, so that the row that was claimed last is visited last. Every final
    # state but REQUIRES_ACTION removes both keys: the row leaves the index. `attempt_claimed_at` has the attempt's age.
    "unfinished_claimed_at": ":now",
}
_FIRST_CLAIM_SETS = {
    "generation": "if_not_exists(generation, :zero)",
    # One attribute for each attempt: attempt_names.
    "#method": "if_not_exists(#method, :method)",
    "#attempt_claimed_at": "if_not_exists(#attempt_claimed_at, :now)",
}
_LAST_RESULT = ("decline_code", "advice_code", "finalized_at", "expires_at")
"""What a claim removes."""


@dataclass(frozen=True)
class PaymentStore(LeasedTable[Payment, Finalize]):
    """The Payments table through botocore's client. Every method makes exactly one request."""

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
    ) -> Claim[Payment]:
        """Claim the attempt, or say why not. A row that exists keeps what it froze."""
        sets = {**_EVERY_CLAIM_SETS, **_FIRST_CLAIM_SETS, "attempt": ":attempt"}
        values = {
            **_UNPAID,
            **_lease(request.order_id, owner, now, lease_seconds),
            "attempt": attempt,
            "method": payment_method,
            "zero": 0,
        }
        is_claimed, payment = self._update_if(
            _key(request.order_id),
            frozen(request, correlation_id) | Changes(sets, values, removes=_LAST_RESULT),
            condition=_CLAIMABLE,
            names=attempt_names(attempt),
        )
        return Claimed(payment) if is_claimed else why_not_claimed(payment, attempt)

    def request_cancel(
        self, request: FrozenRequest, *, attempt: int, payment_method: str, correlation_id: str, now: int
    ) -> Payment:
        """Request the cancellation, whoever holds the row, unless it is closed; returns the row after that."""
        sets = {
            "cancel_requested_at": "if_not_exists(cancel_requested_at, :now)",
            "attempt": "if_not_exists(attempt, :attempt)",
            "#state": "if_not_exists(#state, :pending)",
            "lease_expires_at": "if_not_exists(lease_expires_at, :zero)",
            "claimed_at": "if_not_exists(claimed_at, :now)",
            "revision": _EVERY_CLAIM_SETS["revision"],
            "unfinished_shard": ":shard",
            "unfinished_claimed_at": "if_not_exists(unfinished_claimed_at, :now)",
        }
        values = {
            **_UNPAID,
            "attempt": attempt,
            "method": payment_method,
            "now": now,
            "shard": shard_of(request.order_id),
            "zero": 0,
            "one": 1,
        }
        _, payment = self._update_if(
            _key(request.order_id),
            frozen(request, correlation_id) | Changes(_FIRST_CLAIM_SETS | sets, values, removes=["expires_at"]),
            condition=f"{ROW_IS_NEW} OR {_IS_UNPAID}",
            names=attempt_names(attempt),
        )
        return payment

    def claim_to_cancel(self, order_id: str, *, owner: str, now: int, lease_seconds: int) -> Claim[Payment]:
        """Claim a row whose cancellation is requested, whatever its attempt."""
        values = {**_UNPAID, **_lease(order_id, owner, now, lease_seconds)}
        try:
            is_claimed, payment = self._update_if(
                _key(order_id),
                Changes(_EVERY_CLAIM_SETS, values, removes=_LAST_RESULT),
                condition=f"attribute_exists(cancel_requested_at) AND {_IS_UNPAID} AND {LEASE_IS_FREE}",
            )
        except NoSuchRow:
            # The row was lost since the request was written: nothing to claim, and nobody's lease to wait for.
            return HeldByAnother(now)
        if is_claimed:
            return Claimed(payment)
        is_closed = payment.state in CLOSED_STATES
        return AlreadyEnded(payment) if is_closed else HeldByAnother(payment.lease_expires_at, payment)

    # ------------------------------------------------------------ as the lease owner

    def write_payment_intent(self, payment: Payment, payment_intent_id: str, generation: int) -> Payment:
        """Write the PaymentIntent's id before it is confirmed; returns the row, whose cancellation may be requested.

        Raises:
            WriteRefused: another worker has the row, or has written another id: what was created is never confirmed.
        """
        replaces = (
            "payment_intent_id = :replaced" if payment.payment_intent_id else "attribute_not_exists(payment_intent_id)"
        )
        compared = {"attempt": payment.attempt, "replaced": payment.payment_intent_id}
        return self._write_as_owner(
            payment,
            Changes.to({"payment_intent_id": payment_intent_id, "generation": generation}) | Changes(values=compared),
            condition=f"attempt = :attempt AND {replaces}",
        )

    def finalize(self, row: Payment, final: Finalize, *, now: int) -> Payment:
        """Write the attempt's final state, and release the lease.

        Raises:
            WriteRefused: the lease is lost; or a cancellation was requested, and this state is not closed. Then the
                worker still has the lease, which ends by itself: the next claim finds the request, and cancels.
        """
        changes = self._final_changes(final, now) | Changes(values={"attempt": row.attempt})
        condition = "attempt = :attempt"
        if final.state not in CLOSED_STATES:
            # The row would leave the index, or wait for the customer: nobody would finish the cancellation.
            condition += " AND attribute_not_exists(cancel_requested_at)"
        return self._write_as_owner(row, changes, condition=condition, now=now)

    # ------------------------------------------------------------ for webhooks and scheduled runs

    def read(self, order_id: str) -> Payment | None:
        """The row of the order, strongly consistent."""
        return self._read(_key(order_id))

    def recover(
        self,
        order_id: str,
        intent: StripeIntent,
        *,
        charged_at: int,
        review: str | None,
        correlation_id: str,
        now: int,
    ) -> bool:
        """Write a lost row anew, from its PaymentIntent that succeeded; False if there is a row by now.

        Args:
            charged_at: when it succeeded, in epoch seconds: the row expires when the lost one would have.
            review: why it needs one; None if it is paid.
        """
        item = {
            "order_id": order_id,
            "attempt": 1,
            "state": PaymentState.NEEDS_REVIEW if review else PaymentState.SUCCEEDED,
            "decline_code": review,
            "generation": intent.generation,
            "payment_intent_id": intent.payment_intent_id,
            "amount_minor": intent.amount_minor,
            "currency": intent.currency,
            "customer_id": intent.customer_id,
            "placed_at": intent.placed_at,
            "correlation_id": correlation_id,
            "claimed_at": now,
            # The order is paid since then, and so refuses refunds before this row expires.
            "finalized_at": charged_at,
            "lease_expires_at": 0,
            # As of each new row.
            "revision": now + 1,
            "expires_at": charged_at + RETENTION_SECONDS,
            **(_attributes_of(intent.after_charge) if intent.after_charge else {}),
        }
        return self._put_new(item)

    def record_after_charge(self, payment: Payment, after: AfterCharge, *, now: int) -> bool:
        """Write what followed the charge, and the dispute's status that counts; False if the row has changed since."""
        return self._write_if_unchanged(payment, Changes.to_exactly(_attributes_of(after)), now=now)

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

    def _row_of(self, item: Mapping[str, Any]) -> Payment:
        return payment_of(item)

    def _final_changes(self, final: Finalize, now: int) -> Changes:
        """What a final state writes. REQUIRES_ACTION stays in the index of unfinished rows, and does not expire."""
        changes = Changes.to(
            {
                "state": final.state,
                "finalized_at": now,
                "lease_expires_at": 0,
                "payment_intent_id": final.payment_intent_id,
                "generation": final.generation,
                "decline_code": final.code,
                "advice_code": final.advice_code,
                "declined_charge_id": final.declined_charge_id,
                "refused_cards": final.refused_cards or None,
                "stripe_message": final.stripe_message,
                "stripe_request_id": final.stripe_request_id,
                "fraud_suspicion": final.fraud_suspicion,
            },
            # `refused_at` survives claims, and ends with the attempt.
            removes=["lease_owner", "refused_at"],
        )
        if final.payment_intent_id is not None and final.declined_charge_id is None:
            # The former charge is of this PaymentIntent, which shows none any more.
            changes |= Changes(removes=["declined_charge_id"])
        if final.after_charge is not None:
            # The former ones are of another PaymentIntent.
            changes |= Changes.to_exactly(_attributes_of(final.after_charge))
        if final.state is PaymentState.REQUIRES_ACTION:
            return changes
        expires_at = now + RETENTION_SECONDS
        return changes | Changes.to({"expires_at": expires_at}, removes=["unfinished_shard", "unfinished_claimed_at"])


# ---------------------------------------------------------------- a row and its item


def attempt_names(attempt: int) -> dict[str, str]:
    """The attributes that each attempt has of its own, so that a later message cannot change them."""
    return {"#method": f"payment_method_{attempt}", "#attempt_claimed_at": f"attempt_claimed_at_{attempt}"}


def payment_of(item: Mapping[str, Any]) -> Payment:
    """The item as a Payment; the fields of its request are attributes of the item."""
    values = from_item(item)
    names = attempt_names(values["attempt"])
    # A recovered row has no attempt of its own.
    of_attempt = {
        "payment_method": values.get(names["#method"], ""),
        "attempt_claimed_at": values.get(names["#attempt_claimed_at"], values["claimed_at"]),
    }
    return object_of(Payment, {**values, **of_attempt, "request": values})


def _attributes_of(after: AfterCharge) -> dict[str, Any]:
    """The attributes of refunds, disputes and suspicion; None for those that say nothing of it."""
    return {
        "amount_refunded_minor": after.amount_refunded_minor,
        "disputes": after.disputes or None,
        "dispute_status": status_of(after.disputes),
        "fraud_suspicion": after.fraud_suspicion or None,
    }


def _key(order_id: str) -> dict[str, str]:
    return {"order_id": order_id}


def _lease(order_id: str, owner: str, now: int, lease_seconds: int) -> dict[str, Any]:
    """The values of _EVERY_CLAIM_SETS."""
    return {
        "owner": owner,
        "lease_expires_at": now + lease_seconds,
        "now": now,
        "shard": shard_of(order_id),
        "one": 1,
    }


def why_not_claimed(payment: Payment, attempt: int) -> HeldByAnother | AlreadyEnded[Payment] | Superseded[Payment]:
    """Why the row cannot be claimed for this attempt; if another worker holds it, until when."""
    if payment.state in CLOSED_STATES:
        return AlreadyEnded(payment)
    if attempt < payment.attempt:
        return Superseded(payment)
    if attempt == payment.attempt and payment.state is not PaymentState.PENDING:
        return AlreadyEnded(payment)
    return HeldByAnother(payment.lease_expires_at, payment)
