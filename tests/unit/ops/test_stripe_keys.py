"""`stripe-keys check`: which permission a function's key lacks, and which it has without need; nothing is charged."""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from local.stripe_standin.admin import StandInAdmin
from local.stripe_standin.server import StandIn, running_standin
from onecharge.payments.stripe_permissions import PERMISSIONS
from ops import stripe_keys
from ops.connection import Stack
from ops.errors import ExitStatus, Problem

CHARGE, RECONCILE = "charge_order", "reconcile"


class Shop:
    """A stack whose charge_order and reconcile have keys of their own."""

    def __init__(self, standin: StandIn) -> None:
        self.admin = StandInAdmin(standin.base_url)
        self.secrets = boto3.client("secretsmanager")
        self.parameters = {
            **dict.fromkeys(stripe_keys.OWN_KEYS.values(), ""),
            "StripeApiBase": standin.base_url,
            "StripeSecretArn": self.secret("shared", "sk_test_shared"),
        }
        for function in (CHARGE, RECONCILE):
            self.parameters[stripe_keys.OWN_KEYS[function]] = self.secret(function, f"rk_test_{function}")
            self.admin.restrict_api_key(f"rk_test_{function}", PERMISSIONS[function])
        self.functions = ["ChargeOrderFunction", "ReconcileFunction"]

    def secret(self, name: str, value: str) -> str:
        return str(self.secrets.create_secret(Name=name, SecretString=value)["ARN"])

    def client(self, service: str, **_: Any) -> Any:
        """Of the caller's session."""
        return self if service == "cloudformation" else self.secrets

    def describe_stacks(self, **_: Any) -> dict[str, Any]:
        return {"Stacks": [{"Parameters": [{"ParameterKey": k, "ParameterValue": v} for k, v in self._given]}]}

    @property
    def _given(self) -> list[tuple[str, str]]:
        return list(self.parameters.items())

    def get_paginator(self, _: str) -> Any:
        return self

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        return [{"StackResourceSummaries": [{"LogicalResourceId": name} for name in self.functions]}]

    def check(self) -> tuple[ExitStatus, dict[str, Any]]:
        report = stripe_keys.run(Stack("shop", self), Namespace())  # type: ignore[arg-type]
        return report.status, {each["function"]: each for each in report.document["functions"]}


@pytest.fixture
def shop(aws: None) -> Iterator[Shop]:
    with running_standin() as standin:
        yield Shop(standin)


def test_keys_with_what_they_need_are_right(shop: Shop) -> None:
    """And nothing is created by the check."""
    status, found = shop.check()
    assert status is ExitStatus.OK
    assert {name: (each["missing"], each["needless"]) for name, each in found.items()} == {
        CHARGE: ([], []),
        RECONCILE: ([], []),
    }
    ledger = shop.admin.ledger()
    assert (ledger.payment_intents, ledger.refunds, ledger.charges) == ((), (), ())


def test_a_missing_permission_is_named(shop: Shop) -> None:
    """Of the function that lacks it."""
    shop.admin.restrict_api_key("rk_test_reconcile", PERMISSIONS[RECONCILE] - {"event_read"})
    status, found = shop.check()
    assert (status, found[RECONCILE]["missing"]) == (ExitStatus.FOUND, ["event_read"])
    assert found[CHARGE]["missing"] == []


def test_a_permission_without_need_is_named(shop: Shop) -> None:
    """A key that may refund, of a function that does not."""
    shop.admin.restrict_api_key("rk_test_charge_order", {*PERMISSIONS[CHARGE], "charge_write"})
    status, found = shop.check()
    assert (status, found[CHARGE]["needless"]) == (ExitStatus.FOUND, ["charge_write"])


def test_a_shared_key_may_do_more(shop: Shop) -> None:
    """It is of all functions: that it may do more than one needs is said, and is no finding."""
    shop.parameters[stripe_keys.OWN_KEYS[CHARGE]] = ""
    status, found = shop.check()
    assert (status, found[CHARGE]["secret_parameter"]) == (ExitStatus.OK, "StripeSecretArn")
    assert "charge_write" in found[CHARGE]["needless"]


def test_a_key_that_stripe_refuses_is_a_problem(shop: Shop) -> None:
    """It says what to do, and not which key."""
    shop.admin.assign_api_key("rk_test_charge_order", None)
    with pytest.raises(Problem, match="401") as refused:
        shop.check()
    assert "rk_test" not in str(refused.value)
