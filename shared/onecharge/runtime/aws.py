"""AWS's clients: bounded time and retries, a connection for each parallel record; and their errors."""

from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools import Logger
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

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


def records_of(event: Mapping[str, Any], source: str, logger: Logger) -> list[Any]:
    """The records of Lambda's event, if they are of this source, as `aws:sqs`; of any other there is nothing to do."""
    records = event.get("Records", ())
    ours = [record for record in records if record.get("eventSource") == source]
    if len(ours) < len(records) or "Records" not in event:
        logger.error("not ours: the function was invoked with another event", extra={"expected": source})
    return ours


def error_code(error: Exception) -> str:
    """AWS's code for the error, or the type of any other error. Never its text."""
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__


def is_outage(error: Exception) -> bool:
    """Whether AWS may answer the same request later. What names our rights, tables or requests stays until we act."""
    lasting = (
        *("AccessDeniedException", "ResourceNotFoundException", "ValidationException"),
        *("AuthorizationError", "NotFound", "KMSAccessDenied", "KMSDisabled", "KMSNotFound"),  # Of SNS.
    )
    return isinstance(error, BotoCoreError | ClientError) and error_code(error) not in lasting
