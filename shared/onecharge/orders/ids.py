"""Ids that derive from the request: a retry finds what its first try stored, and stores nothing a second time."""

import hashlib
import json


def order_id_of(*what: str) -> str:
    """Returns the id of the order that is placed for this customer and key, or for this due document.

    A customer's order has two parts, the customer id and the idempotency key. A due document's has three, so the two
    never collide, whatever key a customer chooses. An id is no credential: the access token decides who sees an order.
    """
    return f"ord_{digest_of(*what)}"


def digest_of(*what: str) -> str:
    """Returns 128 bits of SHA-256 of the JSON array of these texts, in hexadecimal."""
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]
