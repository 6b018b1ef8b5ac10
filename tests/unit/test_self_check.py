"""The self-check that a new version has to pass before it gets traffic: every function's probes, and the hook."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from io import BytesIO
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from check_release.check import CheckRelease
from onecharge.runtime.self_check import (
    SELF_CHECK,
    SelfCheckFailed,
    failed_probes,
    require_self_check,
    run_probes,
    table_probe,
)
from testing.harness import PROJECT, LambdaContext, Log, load_template, number_of

FUNCTIONS = sorted(path.parent.name for path in (PROJECT / "functions").glob("*/app.py"))

ONLY_WRITTEN = {
    ("charge_order", "PAYMENTS_DLQ_URL"),
    ("update_order", "ORDER_UPDATES_DLQ_URL"),
    ("stripe_eventbridge", "STRIPE_EVENTS_DLQ_URL"),
    ("refund_charge", "REFUNDS_DLQ_URL"),
    ("refund_charge", "REFUNDS_TABLE"),
    ("place_due_orders", "ORDERS_TABLE"),
}
"""What a function may write and not read, so that no probe can try it without a change."""

ONLY_NAMES = {
    ("publish_events", name) for name in ("ORDERS_TABLE", "ORDER_REFUNDS_TABLE", "PAYMENTS_TABLE", "REFUNDS_TABLE")
}
"""publish_events compares names with the stream's ARN; it may not read the tables."""


def variables_of(function: str) -> dict[str, str]:
    resource = f"{function.title().replace('_', '')}Function"
    variables = load_template()["Resources"][resource]["Properties"]["Environment"]["Variables"]
    return {name: number_of(name) or str(value) for name, value in variables.items()}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_self_check_tries_everything_that_the_function_works_with(aws: None, function: str) -> None:
    """Every table, queue, topic, secret and function in its environment that it may read."""
    variables = variables_of(function)
    resources = {
        name
        for name in variables
        if name.endswith(("_TABLE", "_QUEUE_URL", "_DLQ_URL", "_TOPIC_ARN", "_SECRET_ARN", "_FUNCTION"))
    }
    expected = {name for name in resources if (function, name) not in ONLY_WRITTEN | ONLY_NAMES}
    assert set(import_module(f"{function}.app").Application(variables).probes) == expected


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_handler_answers_a_self_check(
    aws: None, monkeypatch: pytest.MonkeyPatch, lambda_context: LambdaContext, function: str
) -> None:
    """With one outcome for each probe; where nothing exists, none of them is well."""
    for name, value in variables_of(function).items():
        monkeypatch.setenv(name, "http://127.0.0.1:9" if name == "STRIPE_API_BASE" else value)
    app = import_module(f"{function}.app")
    handler = import_module("onecharge.runtime.functions").lambda_handler(app.Application)(app.handler.__wrapped__)
    outcomes = handler(dict(SELF_CHECK), lambda_context)
    assert outcomes.keys() == app.Application(variables_of(function)).probes.keys()
    assert "ok" not in outcomes.values()


def test_a_table_that_can_be_read_is_well(orders_table: str) -> None:
    """Nothing is written: the table stays empty."""
    assert run_probes({"ORDERS_TABLE": table_probe(orders_table, "order_id")}) == {"ORDERS_TABLE": "ok"}
    assert boto3.client("dynamodb").scan(TableName=orders_table)["Count"] == 0


def test_an_outcome_names_the_error_and_shows_nothing_of_its_text() -> None:
    """A text may hold a key, as Stripe's about an invalid one does in part."""

    def refused() -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "sk_live_secret"}}, "GetItem")

    def broken() -> None:
        raise ValueError("sk_live_secret")

    outcomes = run_probes({"a": refused, "b": broken})
    assert outcomes == {"a": "AccessDeniedException", "b": "ValueError"}
    assert failed_probes(outcomes) == ["a: AccessDeniedException", "b: ValueError"]


def test_a_self_check_without_probes_is_not_well() -> None:
    """An answer of another shape, as of a version that knows no self-check, proves nothing."""
    assert failed_probes({}) == ["no probes"]
    assert failed_probes({"statusCode": 404}) == ["statusCode: 404"]


# ---------------------------------------------------------------- the hook


@dataclass
class Functions:
    """Lambda, with one function whose self-check is answered so."""

    answer: Mapping[str, Any] = field(default_factory=lambda: {"ORDERS_TABLE": "ok"})
    raised: bool = False
    invoked: list[str] = field(default_factory=list)

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:  # boto3's names.
        assert json.loads(Payload) == SELF_CHECK
        self.invoked.append(FunctionName)
        error = {"FunctionError": "Unhandled"} if self.raised else {}
        return {"Payload": BytesIO(json.dumps(self.answer).encode()), **error}


@dataclass
class CodeDeploy:
    """CodeDeploy, with one deployment to one version."""

    reported: list[dict[str, str]] = field(default_factory=list)
    is_known: bool = True

    def list_deployment_targets(self, *, deploymentId: str) -> dict[str, Any]:
        if not self.is_known:
            raise ClientError({"Error": {"Code": "DeploymentDoesNotExistException"}}, "ListDeploymentTargets")
        return {"targetIds": ["shop-ChargeOrderFunction-X:live"]}

    def batch_get_deployment_targets(self, *, deploymentId: str, targetIds: list[str]) -> dict[str, Any]:
        assert targetIds == ["shop-ChargeOrderFunction-X:live"]
        version = {
            "functionName": "shop-ChargeOrderFunction-X",
            "functionAlias": "live",
            "currentVersion": "6",
            "targetVersion": "7",
        }
        return {"deploymentTargets": [{"lambdaTarget": {"lambdaFunctionInfo": version}}]}

    def put_lifecycle_event_hook_execution_status(self, **reported: str) -> None:
        self.reported.append(reported)


def check(codedeploy: CodeDeploy, functions: Functions, log: Log) -> str:
    client: Any = functions
    return CheckRelease(codedeploy, client, log.logger)("d-1", "hook-1")


def test_a_version_that_is_well_gets_traffic(log: Log) -> None:
    """The new version is invoked, not the alias, which is still at the former one."""
    codedeploy, functions = CodeDeploy(), Functions()
    assert check(codedeploy, functions, log) == "Succeeded"
    assert functions.invoked == ["shop-ChargeOrderFunction-X:7"]
    [reported] = codedeploy.reported
    assert reported == {"deploymentId": "d-1", "lifecycleEventHookExecutionId": "hook-1", "status": "Succeeded"}


@pytest.mark.parametrize(
    ("codedeploy", "functions", "reason"),
    [
        (CodeDeploy, lambda: Functions({"PAYMENTS_TABLE": "AccessDeniedException"}), "PAYMENTS_TABLE: AccessDenied"),
        (CodeDeploy, lambda: Functions({"errorType": "KeyError"}, raised=True), "it raised KeyError"),
        (CodeDeploy, lambda: Functions({}), "no probes"),
        (lambda: CodeDeploy(is_known=False), Functions, "DeploymentDoesNotExistException"),
    ],
)
def test_a_version_that_is_not_well_gets_none(
    codedeploy: Callable[[], CodeDeploy], functions: Callable[[], Functions], reason: str, log: Log
) -> None:
    """CodeDeploy learns of it at once, and the log says why."""
    deployments = codedeploy()
    assert check(deployments, functions(), log) == "Failed"
    assert [each["status"] for each in deployments.reported] == ["Failed"]
    assert reason in log.lines[-1]["reason"]


def test_a_function_is_well_only_if_all_its_probes_are() -> None:
    """One that failed is named."""
    client: Any = Functions({"ORDERS_TABLE": "ok", "ORDER_REFUNDS_TABLE": "ResourceNotFoundException"})
    with pytest.raises(SelfCheckFailed, match=r"^ORDER_REFUNDS_TABLE: ResourceNotFoundException$"):
        require_self_check(client, "orders_api")
