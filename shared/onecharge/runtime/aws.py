"""AWS's clients: bounded time and retries, a connection for each parallel record; and their errors.

Make clients before the threads that share them start.
"""

from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

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


def dynamodb_client() -> "DynamoDBClient":
    """boto3's client, with its exceptions.

    botocore makes them at their first use, without a lock: of two threads that are refused at the same time, one would
    not catch its exception, since `client.exceptions` has other classes by then.
    """
    client = boto3.client("dynamodb", config=client_config())
    _ = client.exceptions
    return client


def error_code(error: Exception) -> str:
    """AWS's code for the error, or the type of any other error. Never its text."""
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__


def is_outage(error: Exception) -> bool:
    """Whether AWS may answer the same request later. What names our rights, tables or requests stays until we act."""
    lasting = ("AccessDeniedException", "ResourceNotFoundException", "ValidationException")
    return isinstance(error, BotoCoreError | ClientError) and error_code(error) not in lasting
