"""Ids that derive from the request: a retry finds what its first try stored, and stores nothing a second time."""

import hashlib
import json

from pydantic import BaseModel


def order_id_of(shop: str, customer_id: str, key: str) -> str:
    """Returns the id of the order that this customer places in the shop under this idempotency key.

    Two shops may have one Stripe account, and customers and keys of the same names. An id is no credential: the access
    token decides who sees an order.
    """
    return f"ord_{digest_of(shop, customer_id, key)}"


def digest_of(*what: str) -> str:
    """Returns 128 bits of SHA-256 of the JSON array of these texts, in hexadecimal."""
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]


def fingerprint_of(request: BaseModel) -> str:
    """Returns a digest of the request's content, which distinguishes a retry from another request with the same key.

    Optional fields that are not set, or null, are left out: a field that a later release adds changes the fingerprint
    of no request that does not use it, so a retry across the deployment is still a retry.
    """
    content = request.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
