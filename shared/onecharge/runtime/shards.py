"""The partitions of the sparse indexes: an item's shard follows from its order's id, for ever.

A partition of an index takes 1,000 writes a second, and holds back the writes to its table beyond that (Amazon DynamoDB
Developer Guide, "Using write sharding to distribute workloads evenly", "GSI back-pressure"). An order enters an index
and leaves it: one partition for all would carry 500 orders a second, eight carry 4,000.
"""

import hashlib

SHARDS = 8
"""More than one account at Stripe is allowed by far, and few enough that a round through empty ones costs next to
nothing. To raise it, first deploy a release that reads the new number and writes by the old one
(docs/guides/changes.md): a reader that does not know a shard finds none of its items."""

ALL_SHARDS = tuple(str(number) for number in range(SHARDS))
"""What a reader of an index reads, all of them."""


def shard_of(order_id: str) -> str:
    """The shard of whatever belongs to the order."""
    return str(int(hashlib.sha256(order_id.encode()).hexdigest(), 16) % SHARDS)
