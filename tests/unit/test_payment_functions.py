"""template.yaml gives the functions of the payment service the permissions and timeouts that they need, and no more."""

from typing import Any

import pytest

from testing.harness import load_template

FUNCTIONS = {
    "get_payment": "GetPaymentFunction",
    "stripe_webhook": "StripeWebhookFunction",
    "reconcile": "ReconcileFunction",
}
PAYMENTS = "GetAtt PaymentsTable.Arn"
RIGHTS = {
    "get_payment": {PAYMENTS: {"GetItem"}},
    "stripe_webhook": {
        PAYMENTS: {"GetItem", "UpdateItem", "PutItem"},
        "GetAtt PaymentsStateTable.Arn": {"GetItem", "PutItem"},
        "GetAtt RefundsTable.Arn": {"GetItem", "UpdateItem", "PutItem"},
    },
    "reconcile": {
        PAYMENTS: {"GetItem", "UpdateItem", "PutItem"},
        "Sub ${PaymentsTable.Arn}/index/unfinished": {"Query"},
        "GetAtt PaymentsStateTable.Arn": {"GetItem", "PutItem"},
        "GetAtt RefundsTable.Arn": {"GetItem", "UpdateItem", "PutItem"},
    },
}
"""A lost row is put. No function scans or deletes."""


def properties_of(function: str) -> dict[str, Any]:
    return dict(load_template()["Resources"][FUNCTIONS[function]]["Properties"])


def statements_of(function: str) -> list[dict[str, Any]]:
    role = load_template()["Resources"][properties_of(function)["Role"].split()[-1].removesuffix(".Arn")]
    [policy] = role["Properties"]["Policies"]
    return list(policy["PolicyDocument"]["Statement"])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_may_do_what_it_does_and_no_more(function: str) -> None:
    """These are its rights on the service's tables."""
    statements = [each for each in statements_of(function) if "dynamodb:" in str(each.get("Action"))]
    rights = {
        each["Resource"]: {
            action.removeprefix("dynamodb:")
            for action in ([each["Action"]] if isinstance(each["Action"], str) else each["Action"])
        }
        for each in statements
    }
    assert rights == RIGHTS[function]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_knows_its_timeout(function: str) -> None:
    """Its leases outlive it."""
    properties = properties_of(function)
    assert properties["Environment"]["Variables"]["FUNCTION_TIMEOUT_SECONDS"] == str(properties["Timeout"])


def test_a_run_ends_before_the_next_begins() -> None:
    """Two runs in parallel would do no harm, but one of them would be of no use."""
    properties = properties_of("reconcile")
    assert properties["Events"]["EveryFiveMinutes"]["Properties"]["Schedule"] == "rate(5 minutes)"
    assert properties["Timeout"] < 300
