"""AWS's clients: bounded time and retries, a connection for each parallel record; and their errors."""

from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

BATCH_SIZE = 10
"""Records of one batch, processed in parallel; BatchSize of the queues' event source mappings in template.yaml."""

if TYPE_CHECKING:
    aws_client = boto3.client  # Typed for each service.
else:

    def aws_client(service: str, *, config: Config) -> Any:
        """boto3's client of this service. Make it before the threads that share it start."""
        client = boto3.client(service, config=config)
        # botocore makes the exceptions at the first use, without a lock: of two threads that meet one at the same time,
        # one would not catch it, since `client.exceptions` has other classes by then.
        _ = client.exceptions
        return client


def client_config() -> Config:
    """At most two tries of 3 s each. What takes longer fails, and the message waits in its queue, at no cost."""
    return Config(
        connect_timeout=1,
        read_timeout=2,
        retries={"mode": "standard", "total_max_attempts": 2},
        max_pool_connections=BATCH_SIZE,
    )


def impatient_config() -> Config:
    """One try with short timeouts, for optional requests. DNS is not covered; callers set a deadline."""
    return client_config().merge(Config(connect_timeout=0.3, read_timeout=0.5, retries={"total_max_attempts": 1}))


def error_code(error: Exception) -> str:
    """AWS's code for the error, or the type of any other error. Never its text."""
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
