"""What boto3's clients share: bounded time and retries, a connection for each parallel record; and their errors."""

from botocore.config import Config
from botocore.exceptions import ClientError

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


def error_code(error: Exception) -> str:
    """What kind of error it is: the code that AWS has answered with, or the type of any other. Never its text."""
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
