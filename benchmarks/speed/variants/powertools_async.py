"""Powertools for AWS Lambda (Python): the function of powertools_batch.py with `AsyncBatchProcessor`.

As its documentation has it: "Batch Processing", section "Processing messages asynchronously"
(`async_process_partial_response`). The idempotency utility takes no coroutine (aws-powertools/powertools-lambda-python
issue 4483: boto3 is synchronous), so the idempotent function runs on the threads of `asyncio.to_thread`: the best that
this processor can do with it.
"""

import asyncio
from typing import Any

from aws_lambda_powertools.utilities.batch import AsyncBatchProcessor, EventType, async_process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from powertools_batch import config, process_order  # type: ignore[import-not-found]  # It is beside it on the path.

processor = AsyncBatchProcessor(event_type=EventType.SQS)


async def async_record_handler(record: SQSRecord) -> dict[str, Any]:
    result: dict[str, Any] = await asyncio.to_thread(process_order, order=record.json_body["data"])
    return result


def handler(event: dict[str, Any], context: Any) -> Any:
    """Process the records in parallel; returns those that failed."""
    config.register_lambda_context(context)
    return async_process_partial_response(
        event=event, record_handler=async_record_handler, processor=processor, context=context
    )
