"""The configuration of boto3's clients: bounded time, bounded retries, a connection for each parallel record."""

from botocore.config import Config

BATCH_SIZE = 10
"""Records of one batch, processed in parallel; BatchSize of the queues' event source mappings in template.yaml."""


def client_config() -> Config:
    """At most two tries of 3 s each. What takes longer fails, and the message waits in its queue, at no cost."""
    return Config(
        connect_timeout=1,
        read_timeout=2,
        retries={"mode": "standard", "total_max_attempts": 2},
        max_pool_connections=BATCH_SIZE,
    )
