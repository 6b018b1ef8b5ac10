"""The expected response to each sample event in events/, in the order in which one depends on the other."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local.stack import PROJECT, Stack

_ALL_DONE: Mapping[str, Any] = {"batchItemFailures": []}

SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "orders_api": {"place_order": 202, "pay_again": 409},
    "publish_events": {"order_stored": None, "payment_succeeded": None},
    "charge_order": {"order_placed": _ALL_DONE, "batch": _ALL_DONE},
    "refund_charge": {"refund_requested": _ALL_DONE, "duplicate": _ALL_DONE},
    "get_payment": {"get_payment": 200},
    # Signed with the local run's secret, for the year 2100: Stripe's verifier refuses only what is too old.
    "stripe_webhook": {"payment_intent_succeeded": 200, "charge_refunded": 200},
    "reconcile": {"scheduled": None},
    "republish": {"scheduled": None},
    "update_order": {
        "payment_succeeded": _ALL_DONE,
        # Nobody has requested this refund: the message is retried, and ends in the DLQ.
        "refund_succeeded": {"batchItemFailures": [{"itemIdentifier": "00000000-0000-4000-8000-5cbbdad1513f"}]},
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
    """The file for `--env-vars`: what the deployed functions have."""
    functions = stack.aws.client("lambda").list_functions()["Functions"]
    environment = {
        logical_id_of(function): deployed_environment(functions, logical_id_of(function)) for function in SAMPLES
    }
    path.write_text(json.dumps(environment, indent=2))
