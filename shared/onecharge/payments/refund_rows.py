"""The Refunds table: one row for each refund, the payment service's own state of it.

claim                one conditional write: a new row, or a PENDING one whose lease is free
finalize             on the lease owner, and PENDING
finalize_unclaimed   on the revision that was read: for webhooks and scheduled runs, which claim nothing

         claim                    finalize
PENDING ──┤═══════ lease ══════════├──► SUCCEEDED │ FAILED │ NEEDS_REVIEW
          └ crashed worker: the lease expires, and the next delivery claims the row
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onecharge.contract.refunds import RefundState
from onecharge.payments.refund_rules import FinalizeRefund, FrozenRefund, Refund
from onecharge.payments.rows import (
    LEASE_IS_FREE,
    ROW_IS_NEW,
    AlreadyEnded,
    Changes,
    Claim,
    Claimed,
    HeldByAnother,
    LeasedTable,
    released,
)
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import from_item

_CLAIMABLE = f"{ROW_IS_NEW} OR (#state = :pending AND {LEASE_IS_FREE})"
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
class RefundStore(LeasedTable[Refund, FinalizeRefund]):
    """The Refunds table through botocore's client. Every method makes exactly one request."""

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
    ) -> Claim[Refund]:
        """Claim the refund, or say why not. A row that exists keeps what it froze."""
        values = {
            **frozen(request, correlation_id),
            "is_internal": is_internal or None,
            "pending": RefundState.PENDING,
            "owner": owner,
            "lease_expires_at": now + lease_seconds,
            "now": now,
            "zero": 0,
            "one": 1,
        }
        is_claimed, refund = self._update_if(
            _key(request.order_id, request.refund_id),
            Changes(_CLAIM_SETS | ({"is_internal": ":is_internal"} if is_internal else {}), values),
            condition=_CLAIMABLE,
        )
        if is_claimed:
            return Claimed(refund)
        is_pending = refund.state is RefundState.PENDING
        return HeldByAnother(refund.lease_expires_at, refund) if is_pending else AlreadyEnded(refund)

    # ------------------------------------------------------------ as the lease owner

    def release_lease(self, row: Refund, **kept: str | int) -> Refund:
        """End the lease early: this worker does not send any more. Raises WriteRefused."""
        changes = released(kept, open_claims="open_claims - :one")
        return self._write_as_owner(row, Changes(changes.sets, {**changes.values, "one": 1}, changes.removes))

    def write_key_number(self, row: Refund, key_number: int) -> Refund:
        """Write the number of a later key before it is used; returns the row. Raises WriteRefused."""
        return self._write_as_owner(row, Changes({"key_number": ":number"}, {"number": key_number}))

    # ------------------------------------------------------------ for webhooks and scheduled runs

    def read(self, order_id: str, refund_id: str) -> Refund | None:
        """The row of the refund, strongly consistent."""
        return self._read(_key(order_id, refund_id))

    def recover(
        self, request: FrozenRefund, final: FinalizeRefund, *, correlation_id: str, now: int, is_internal: bool = False
    ) -> bool:
        """Write a lost row anew, from Stripe's refund; False if there is a row by now."""
        item = recovered_item(request, final, correlation_id=correlation_id, now=now, is_internal=is_internal)
        return self._put_new(item)

    def record_pending_reason(self, refund: Refund, reason: str | None, *, now: int) -> bool:
        """Write why Stripe has not sent the money yet; None: it has. False if the row has changed since."""
        removed = Changes({}, {}, removes=["pending_reason"])
        written = Changes({"pending_reason": ":reason"}, {"reason": reason})
        return self._write_if_unchanged(refund, written if reason else removed, now=now)

    def _row_of(self, item: Mapping[str, Any]) -> Refund:
        return refund_of(item)

    def _final_changes(self, final: FinalizeRefund, now: int) -> Changes:
        return final_changes(final, now)


# ---------------------------------------------------------------- a row as an item, in both directions


def frozen(request: FrozenRefund, correlation_id: str) -> dict[str, Any]:
    """What the first claim freezes."""
    return {
        "attempt": request.attempt,
        "amount_minor": request.amount_minor,
        "currency": request.currency,
        "payment_intent_id": request.payment_intent_id,
        "requested_at": request.requested_at,
        "correlation_id": correlation_id,
    }


def refund_of(item: Mapping[str, Any]) -> Refund:
    """The item as a Refund."""
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
        key_number=values.get("key_number", 0),
        key_spent_at=values.get("key_spent_at"),
        refused_at=values.get("refused_at"),
        stripe_refund_id=values.get("stripe_refund_id"),
        failure_code=values.get("failure_code"),
        pending_reason=values.get("pending_reason"),
        finalized_at=values.get("finalized_at"),
        last_emitted_at=values.get("last_emitted_at"),
        is_internal=values.get("is_internal", False),
        correlation_id=values["correlation_id"],
    )


def final_changes(final: FinalizeRefund, now: int) -> Changes:
    """What a last state writes."""
    optional = {
        "stripe_refund_id": final.stripe_refund_id,
        "failure_code": final.code,
        "stripe_message": final.stripe_message,
        "stripe_request_id": final.stripe_request_id,
        "pending_reason": final.pending_reason,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    sets = {"#state": ":state", "finalized_at": ":now", "lease_expires_at": ":zero", "expires_at": ":expires_at"}
    sets |= {name: f":{name}" for name in given}
    values = {"state": final.state, "now": now, "zero": 0, "expires_at": now + RETENTION_SECONDS, **given}
    removes = ["lease_owner"] if final.pending_reason else ["lease_owner", "pending_reason"]
    return Changes(sets, values, removes)


def recovered_item(
    request: FrozenRefund, final: FinalizeRefund, *, correlation_id: str, now: int, is_internal: bool
) -> dict[str, Any]:
    """The attributes of a lost row, as far as Stripe's refund still has them."""
    return {
        "order_id": request.order_id,
        "refund_id": request.refund_id,
        **frozen(request, correlation_id),
        "state": final.state,
        "stripe_refund_id": final.stripe_refund_id,
        "failure_code": final.code,
        "finalized_at": now,
        "lease_expires_at": 0,
        "open_claims": 0,
        "revision": 1,
        # As of the lost row: its refund was made when it was requested.
        "expires_at": request.requested_at + RETENTION_SECONDS,
        "is_internal": is_internal or None,
    }


def _key(order_id: str, refund_id: str) -> dict[str, str]:
    return {"order_id": order_id, "refund_id": refund_id}
