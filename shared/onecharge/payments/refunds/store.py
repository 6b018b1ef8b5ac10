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
from onecharge.payments.leases import (
    LEASE_IS_FREE,
    ROW_IS_NEW,
    AlreadyFinal,
    Changes,
    Claim,
    Claimed,
    HeldByAnother,
    LeasedTable,
    released,
)
from onecharge.payments.refunds.protocol import Finalize, FrozenRefund, Refund
from onecharge.payments.refunds.row import final_changes, frozen, recovered_item, refund_of

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
class RefundStore(LeasedTable[Refund, Finalize]):
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
        is_claimed, refund = self._write(
            _key(request.order_id, request.refund_id),
            Changes(_CLAIM_SETS | ({"is_internal": ":is_internal"} if is_internal else {}), values),
            only_if=_CLAIMABLE,
        )
        if is_claimed:
            return Claimed(refund)
        is_pending = refund.state is RefundState.PENDING
        return HeldByAnother(refund.lease_expires_at) if is_pending else AlreadyFinal(refund)

    # ------------------------------------------------------------ as the lease owner

    def release_lease(self, row: Refund, **kept: str | int) -> None:
        """End the lease early: this worker does not send any more. Raises LeaseLost."""
        self._write_as_owner(row, released(kept, open_claims="open_claims - :one"))

    # ------------------------------------------------------------ for webhooks and scheduled runs

    def read(self, order_id: str, refund_id: str) -> Refund | None:
        """The row of the refund, strongly consistent."""
        return self._read(_key(order_id, refund_id))

    def recover(
        self, request: FrozenRefund, final: Finalize, *, correlation_id: str, now: int, is_internal: bool = False
    ) -> bool:
        """Write a lost row anew, from Stripe's refund; False if there is a row by now."""
        item = recovered_item(request, final, correlation_id=correlation_id, now=now, is_internal=is_internal)
        return self._put_new(item)

    def _row_of(self, item: Mapping[str, Any]) -> Refund:
        return refund_of(item)

    def _final_changes(self, final: Finalize, now: int) -> Changes:
        return final_changes(final, now)


def _key(order_id: str, refund_id: str) -> dict[str, str]:
    return {"order_id": order_id, "refund_id": refund_id}
