"""The expected response to each sample event in events/, in the order in which one depends on the other."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local.stack import PROJECT, Stack

_ALL_DONE: Mapping[str, Any] = {"batchItemFailures": []}

SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "orders_api": {
        "missing_key": 400,
        "invalid_json": 400,
        "card_number": 400,
        "amount_differs": 409,
        "place_order": 202,
        "same_key_other_body": 422,
        "get_order": 200,
        "list_orders": 200,
        "list_prices": 200,
        "pay_again": 409,
        "cancel_unknown_order": 404,
        "refund_too_much": 409,
        "refund_invalid": 400,
        "refund_unknown_order": 404,
    },
    "place_due_orders": {
        "scheduled": None,
    },
    "publish_events": {
        "order_stored": None,
        "cancel_requested": None,
        "payment_succeeded": None,
        "payment_declined": None,
        "order_expired": None,
        "refund_stored": None,
        "refund_succeeded": None,
    },
    "charge_order": {
        "order_placed": _ALL_DONE,
        "duplicate": _ALL_DONE,
        "declined": _ALL_DONE,
        "requires_action": _ALL_DONE,
        "poison": _ALL_DONE,
        "batch": _ALL_DONE,
    },
    "refund_charge": {
        "refund_requested": _ALL_DONE,
        "duplicate": _ALL_DONE,
        "poison": _ALL_DONE,
    },
    "get_payment": {
        "get_payment": 200,
        "unknown_order": 404,
    },
    # Signed with the local run's secret, for the year 2100: Stripe's verifier refuses only what is too old.
    "stripe_webhook": {
        "payment_intent_succeeded": 200,
        "duplicate": 200,
        "payment_intent_payment_failed": 200,
        "charge_refunded": 200,
        # The stand-in has no such PaymentIntent: the key may be another account's.
        "charge_disputed": 503,
        "thin_event": 200,
        "unknown_type": 200,
        "not_ours": 200,
        "forged": 400,
        "too_old": 400,
        "unsigned": 400,
    },
    "reconcile": {
        "scheduled": None,
    },
    "republish": {
        "scheduled": None,
    },
    "update_order": {
        "payment_requires_action": _ALL_DONE,
        "payment_needs_review": _ALL_DONE,
        "payment_succeeded": _ALL_DONE,
        "payment_declined": _ALL_DONE,
        "payment_canceled": _ALL_DONE,
        # Nobody has requested this refund: the message is retried, and ends in the DLQ.
        "refund_succeeded": {"batchItemFailures": [{"itemIdentifier": "00000000-0000-4000-8000-5cbbdad1513f"}]},
        "refund_failed": {"batchItemFailures": [{"itemIdentifier": "00000000-0000-4000-8000-e722b3a92326"}]},
        "duplicate": _ALL_DONE,
        "poison": _ALL_DONE,
    },
}
"""For each function and sample: the HTTP status, or what the handler returns."""


_SAMPLED_TABLES = {
    "ORDERS_TABLE": "orders",
    "ORDER_REFUNDS_TABLE": "order-refunds",
    "PAYMENTS_TABLE": "payments",
    "REFUNDS_TABLE": "refunds",
}
"""The tables as the samples of publish_events name them: it finds the table by the stream's ARN."""


def path_of(function: str, sample: str) -> Path:
    return PROJECT / "events" / function / f"{sample}.json"


def logical_id_of(function: str) -> str:
    """The name of a function in template.yaml: `charge_order` is ChargeOrderFunction."""
    return "".join(word.title() for word in function.split("_")) + "Function"


def in_brief(response: Any) -> Any:
    """The status of an HTTP response; anything else as it is."""
    return response["statusCode"] if isinstance(response, dict) and "statusCode" in response else response


def deployed_environment(functions: list[dict[str, Any]], logical_id: str) -> dict[str, str]:
    """The environment that a deployed stack gave to a function, from Lambda's ListFunctions."""
    [function] = [each for each in functions if f"-{logical_id}-" in each["FunctionName"]]
    environment = dict(function["Environment"]["Variables"])
    return environment | _SAMPLED_TABLES if logical_id == "PublishEventsFunction" else environment


def write_environment(stack: Stack, path: Path) -> None:
    """The file for `--env-vars`: what the deployed functions have, and where AWS is."""
    functions = stack.aws.client("lambda").list_functions()["Functions"]
    environment = {
        logical_id_of(function): {
            **deployed_environment(functions, logical_id_of(function)),
            "AWS_ENDPOINT_URL": stack.aws_endpoint_url,
        }
        for function in SAMPLES
    }
    path.write_text(json.dumps(environment, indent=2))
