"""How boto3's clients are set up: bounded time, bounded retries, one connection for each parallel record."""

from botocore.config import Config

BATCH_SIZE = 10
"""Records of one batch of the queues, handled in parallel; template.yaml sets the same number."""


def client_config() -> Config:
    """At most 2 tries of 3 s each: a slow answer is given back to the queue, which retries without being billed."""
    return Config(
        connect_timeout=1,
        read_timeout=2,
        retries={"mode": "standard", "total_max_attempts": 2},
        max_pool_connections=BATCH_SIZE,
    )
