"""Ids that derive from what they are made for: a retry finds what its first try stored, and stores no second one."""

import hashlib
import json


def order_id_of(*what: str) -> str:
    """The id of the order that is placed for this.

    A customer's order has two parts, the customer id and the idempotency key. A due document's has three, so the two
    never collide, whatever key a customer chooses. An id is no credential: the access token decides who sees an order.
    """
    return f"ord_{digest_of(*what)}"


def digest_of(*what: str) -> str:
    """128 bits of SHA-256 of the JSON array of these texts, in hexadecimal."""
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]
