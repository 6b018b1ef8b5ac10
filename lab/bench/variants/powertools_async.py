"""The Powertools worker of lab/usual/ with the asynchronous batch processor ("Processing messages asynchronously").

The idempotency utility takes no coroutine (aws-powertools/powertools-lambda-python issue 4483), so the idempotent
function runs on the threads of `asyncio.to_thread`.
"""

import asyncio
from typing import Any

from aws_lambda_powertools.utilities.batch import AsyncBatchProcessor, EventType, async_process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from powertools import config, process_order  # type: ignore[import-not-found]  # lab/usual/ is on the path.

processor = AsyncBatchProcessor(event_type=EventType.SQS)


async def record_handler(record: SQSRecord) -> dict[str, Any]:
    result: dict[str, Any] = await asyncio.to_thread(process_order, order=record.json_body["data"])
    return result


def handler(event: dict[str, Any], context: Any) -> Any:
    """Process the records in parallel; returns those that failed."""
    config.register_lambda_context(context)
    return async_process_partial_response(
        event=event, record_handler=record_handler, processor=processor, context=context
    )
