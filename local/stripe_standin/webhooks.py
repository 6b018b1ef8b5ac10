"""Stripe's signed webhooks. Source: Stripe documentation, "Receive Stripe events in your webhook endpoint"."""

import hashlib
import hmac


def signature(payload: str, secret: str, timestamp: int) -> str:
    """The `Stripe-Signature` header: `t=…,v1=HMAC-SHA256(secret, "t.payload")`."""
    signed = hmac.new(secret.encode(), f"{timestamp}.{payload}".encode(), hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={signed}"
