"""A Lambda durable function: each order is a step, and all orders of a batch run in parallel (`context.map`).

As in the AWS Lambda Developer Guide, "Event source mappings with durable functions". A second delivery is a new
execution, and charges again: "Lambda event source mappings (ESM) don't support idempotency at launch" ("Idempotency").
"""

import json
import os
from collections.abc import Sequence
from typing import Any

import stripe
from aws_durable_execution_sdk_python import BatchResult, DurableContext, StepContext, durable_execution, durable_step

client = stripe.StripeClient(
    os.environ["STRIPE_API_KEY"], base_addresses={"api": os.environ["STRIPE_API_BASE"]}, max_network_retries=2
)


@durable_step  # type: ignore[untyped-decorator]
def charge(step_context: StepContext, order: dict[str, Any]) -> str:
    """Charge one order; its result is the step's checkpoint."""
    payment = client.v1.payment_intents.create(
        {
            "amount": order["amount_minor"],
            "currency": order["currency"].lower(),
            "payment_method": order["payment_method"],
            "allowed_payment_method_types": ["card"],
            "confirm": True,
            "metadata": {"order_id": order["order_id"]},
        }
    )
    return payment.id


def process(context: DurableContext, record: dict[str, Any], index: int, records: Sequence[Any]) -> str:
    charged: str = context.step(charge(json.loads(record["body"])["data"]))
    return charged


@durable_execution  # type: ignore[untyped-decorator]
def handler(event: dict[str, Any], context: DurableContext) -> dict[str, Any]:
    """Process the records in parallel; returns those that failed."""
    charged: BatchResult[str] = context.map(event["Records"], process, name="orders")
    failed = [each.index for each in charged.failed()]
    return {"batchItemFailures": [{"itemIdentifier": event["Records"][index]["messageId"]} for index in failed]}
