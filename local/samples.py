"""The sample events in events/: the expected response to each, and `sam local invoke` with them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from local.bridge import open_to_containers
from local.emulator import CREDENTIALS
from local.project_files import PROJECT
from local.stack import Stack

_ALL_DONE: Mapping[str, Any] = {"batchItemFailures": []}

SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "orders_api": {"place_order": 202},
    "publish_events": {"order_stored": None, "payment_succeeded": None},
    "charge_order": {"order_placed": _ALL_DONE, "batch": _ALL_DONE},
    "refund_charge": {"refund_requested": _ALL_DONE},
    "get_payment": {"get_payment": 200},
    # Signed with the local run's secret, for the year 2100: Stripe's verifier refuses only what is too old.
    "stripe_webhook": {"payment_intent_succeeded": 200},
    "reconcile": {"scheduled": None},
    "republish": {"scheduled": None},
    "update_order": {
        "payment_succeeded": _ALL_DONE,
        # Nobody has requested this refund: the message is retried, and ends in the DLQ.
        "refund_succeeded": {"batchItemFailures": [{"itemIdentifier": "00000000-0000-4000-8000-5cbbdad1513f"}]},
    },
}
"""The HTTP status of each sample, or the return value of the handler. Later ones may depend on earlier ones."""

_SAMPLED_TABLES = {
    "ORDERS_TABLE": "orders",
    "ORDER_REFUNDS_TABLE": "order-refunds",
    "PAYMENTS_TABLE": "payments",
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


@contextmanager
def open_to_sam_local(stack: Stack, work_dir: Path) -> Iterator[None]:
    """Write env.json, by which `sam local invoke` reaches the stack from a container, until the block ends."""
    functions = stack.aws.client("lambda").list_functions()["Functions"]
    environment = {
        logical_id_of(function): deployed_environment(functions, logical_id_of(function)) for function in SAMPLES
    }
    for variables in environment.values():
        variables.update({**CREDENTIALS, "AWS_SESSION_TOKEN": "", "AWS_ENDPOINT_URL": stack.aws_endpoint_url})
    written = json.dumps(environment, indent=2)
    with open_to_containers([stack.aws_endpoint_url, stack.stripe_api_base]) as addresses:
        for here, there in addresses.items():
            written = written.replace(here, there)
        (work_dir / "env.json").write_text(written)
        yield
