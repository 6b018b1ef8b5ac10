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
    frozen,
    released,
)
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import from_item, object_of

_CLAIMABLE = f"{ROW_IS_NEW} OR (#state = :pending AND {LEASE_IS_FREE})"
_CLAIM_SETS = {
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
            "pending": RefundState.PENDING,
            "owner": owner,
            "lease_expires_at": now + lease_seconds,
            "now": now,
            "zero": 0,
            "one": 1,
        }
        marked = Changes.to({"is_internal": is_internal or None})
        is_claimed, refund = self._update_if(
            _key(request.order_id, request.refund_id),
            frozen(request, correlation_id) | Changes(_CLAIM_SETS, values) | marked,
            condition=_CLAIMABLE,
        )
        if is_claimed:
            return Claimed(refund)
        is_pending = refund.state is RefundState.PENDING
        return HeldByAnother(refund.lease_expires_at, refund) if is_pending else AlreadyEnded(refund)

    # ------------------------------------------------------------ as the lease owner

    def release_lease(self, row: Refund, **kept: str | int) -> Refund:
        """End the lease early: this worker does not send any more. Raises WriteRefused."""
        return self._write_as_owner(row, released(kept) | Changes({"open_claims": "open_claims - :one"}, {"one": 1}))

    def write_key_number(self, row: Refund, key_number: int) -> Refund:
        """Write the number of a later key before it is used; returns the row. Raises WriteRefused."""
        return self._write_as_owner(row, Changes.to({"key_number": key_number}))

    # ------------------------------------------------------------ for webhooks and scheduled runs

    def read(self, order_id: str, refund_id: str) -> Refund | None:
        """The row of the refund, strongly consistent."""
        return self._read(_key(order_id, refund_id))

    def recover(
        self, request: FrozenRefund, final: FinalizeRefund, *, correlation_id: str, now: int, is_internal: bool = False
    ) -> bool:
        """Write a lost row anew, from Stripe's refund; False if there is a row by now."""
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
            "is_internal": is_internal or None,
        }
        return self._put_new(item)

    def record_pending_reason(self, refund: Refund, reason: str | None, *, now: int) -> bool:
        """Write why Stripe has not sent the money yet; None: it has. False if the row has changed since."""
        return self._write_if_unchanged(refund, Changes.to_exactly({"pending_reason": reason}), now=now)

    def _row_of(self, item: Mapping[str, Any]) -> Refund:
        return refund_of(item)

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
