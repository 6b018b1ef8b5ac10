"""A payment as an item of the Payments table, in both directions: its attributes, and what a final state changes."""

from collections.abc import Mapping
from typing import Any

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.protocol import Finalize, FoundIntent, FrozenRequest, Payment
from onecharge.payments.leases import Changes
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import from_item


def attempt_names(attempt: int) -> dict[str, str]:
    """The attributes that each attempt has of its own, so that a later message cannot change them."""
    return {"#method": f"payment_method_{attempt}", "#attempt_claimed_at": f"attempt_claimed_at_{attempt}"}


def frozen(request: FrozenRequest, correlation_id: str) -> dict[str, Any]:
    """What the first claim freezes."""
    return {
        "amount_minor": request.amount_minor,
        "currency": request.currency,
        "customer_id": request.customer_id,
        "placed_at": request.placed_at,
        "correlation_id": correlation_id,
    }


def payment_of(item: Mapping[str, Any]) -> Payment:
    """The item as a Payment."""
    values = from_item(item)
    names = attempt_names(values["attempt"])
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
        # A recovered row has no attempt of its own.
        attempt_claimed_at=values.get(names["#attempt_claimed_at"], values["claimed_at"]),
        finalized_at=values.get("finalized_at"),
        last_emitted_at=values.get("last_emitted_at"),
        refused_at=values.get("refused_at"),
        amount_refunded_minor=values.get("amount_refunded_minor", 0),
        correlation_id=values["correlation_id"],
    )


def final_changes(final: Finalize, now: int) -> Changes:
    """What a final state writes. REQUIRES_ACTION stays in the index of unfinished rows, and does not expire."""
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
    sets = {"#state": ":state", "finalized_at": ":now", "lease_expires_at": ":zero"}
    sets |= {name: f":{name}" for name in given}
    values = {"state": final.state, "now": now, "zero": 0, **given}
    # `refused_at` survives claims, and ends with the attempt.
    removes = ["lease_owner", "refused_at"]
    if final.payment_intent_id is not None and final.declined_charge_id is None:
        # The former charge is of this PaymentIntent, which shows none any more.
        removes.append("declined_charge_id")
    if final.state is PaymentState.REQUIRES_ACTION:
        return Changes(sets, values, removes)
    values["expires_at"] = now + RETENTION_SECONDS
    removes += ["unfinished_shard", "unfinished_claimed_at"]
    return Changes({**sets, "expires_at": ":expires_at"}, values, removes)


def recovered_item(order_id: str, intent: FoundIntent, *, correlation_id: str, now: int) -> dict[str, Any]:
    """The attributes of a lost row, as far as its PaymentIntent, which succeeded, still has them."""
    return {
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
        # Higher than the lost row's, which grew by one with each write: consumers take the higher revision as newer.
        "revision": now,
        "expires_at": now + RETENTION_SECONDS,
    }
