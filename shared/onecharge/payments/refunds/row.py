"""A refund as an item of the Refunds table, in both directions: its attributes, and what a last state changes."""

from collections.abc import Mapping
from typing import Any

from onecharge.contract.refunds import RefundState
from onecharge.payments.leases import Changes
from onecharge.payments.refunds.protocol import Finalize, FrozenRefund, Refund
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import from_item


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
        key_spent_at=values.get("key_spent_at"),
        refused_at=values.get("refused_at"),
        stripe_refund_id=values.get("stripe_refund_id"),
        failure_code=values.get("failure_code"),
        finalized_at=values.get("finalized_at"),
        last_emitted_at=values.get("last_emitted_at"),
        is_internal=values.get("is_internal", False),
        correlation_id=values["correlation_id"],
    )


def final_changes(final: Finalize, now: int) -> Changes:
    """What a last state writes."""
    optional = {
        "stripe_refund_id": final.stripe_refund_id,
        "failure_code": final.code,
        "stripe_message": final.stripe_message,
        "stripe_request_id": final.stripe_request_id,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    sets = {"#state": ":state", "finalized_at": ":now", "lease_expires_at": ":zero", "expires_at": ":expires_at"}
    sets |= {name: f":{name}" for name in given}
    values = {"state": final.state, "now": now, "zero": 0, "expires_at": now + RETENTION_SECONDS, **given}
    return Changes(sets, values, removes=["lease_owner"])


def recovered_item(
    request: FrozenRefund, final: Finalize, *, correlation_id: str, now: int, is_internal: bool
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
        "expires_at": now + RETENTION_SECONDS,
        "is_internal": is_internal or None,
    }
