"""`make deploy` and `make undeploy`, by the SAM CLI, on an emulator of their own: an account without anything."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import stripe

from local.deployment import Sam
from local.emulator import CREDENTIALS, Emulator, running_emulator
from stripe_standin.admin import StandInAdmin
from stripe_standin.server import running_standin
from tests.support.harness import PROJECT
from tests.support.sam_on_emulator import CALLS, KEEPS_UNKNOWN, WORK_DIR, install

KEY = "sk_test_made_up_for_this_test"


class Owner:
    """Somebody with an AWS account and a Stripe key, in the project's folder."""

    def __init__(self, emulator: Emulator, stripe_base: str, work_dir: Path) -> None:
        self.aws, self.work_dir = emulator, work_dir
        StandInAdmin(stripe_base).settings(webhooks_by_themselves=True)
        given = {"Architecture": Sam.architecture_here(), "Profile": "local", "StripeApiBase": stripe_base}
        self.parameters = [word for name, value in given.items() for word in ("--parameter", f"{name}={value}")]
        self.account = stripe.StripeClient(KEY, base_addresses={"api": stripe_base})

    def run(self, command: str, *words: str, key: str = KEY, **more: str) -> tuple[int, str]:
        """The exit status and all that was printed."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TOKEN_"))}
        environment |= {**CREDENTIALS, "AWS_ENDPOINT_URL": self.aws.endpoint_url, WORK_DIR: str(self.work_dir)}
        environment |= more | ({"STRIPE_SECRET_KEY": key} if key else {})
        environment["PATH"] = f"{self.work_dir / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            [sys.executable, "-m", "ops", "--stack", "shop", command, *words],
            cwd=PROJECT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def left(self) -> dict[str, list[str]]:
        """What is in the account, apart from the bucket that SAM applications share."""
        client = self.aws.client
        buckets = [each["Name"] for each in client("s3").list_buckets()["Buckets"]]
        alarms = client("cloudwatch").describe_alarms()
        found = {
            "tables": client("dynamodb").list_tables()["TableNames"],
            "queues": client("sqs").list_queues().get("QueueUrls", []),
            "topics": client("sns").list_topics()["Topics"],
            "functions": client("lambda").list_functions()["Functions"],
            "layers": client("lambda").list_layers()["Layers"],
            "roles": client("iam").list_roles()["Roles"],
            "logs": client("logs").describe_log_groups()["logGroups"],
            "secrets": client("secretsmanager").list_secrets()["SecretList"],
            "pools": client("cognito-idp").list_user_pools(MaxResults=60)["UserPools"],
            "apis": client("apigatewayv2").get_apis()["Items"],
            "rules": client("events").list_rules()["Rules"],
            "alarms": alarms["MetricAlarms"] + alarms["CompositeAlarms"],
            "dashboards": client("cloudwatch").list_dashboards()["DashboardEntries"],
            "buckets": [each for each in buckets if not each.startswith("aws-sam-cli-managed-default-")],
            "uploads": [
                key for each in buckets for key in client("s3").list_objects_v2(Bucket=each).get("Contents", [])
            ],
            "endpoints": list(self.account.v1.webhook_endpoints.list().data),
        }
        return {kind: names for kind, names in found.items() if names}


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    (tmp_path / "bin").mkdir()
    install(tmp_path / "bin")
    python = PROJECT / ".venv/opt/emulator/bin/python"
    with running_standin() as standin, running_emulator(python=python, work_dir=tmp_path) as emulator:
        yield Owner(emulator, standin.base_url, tmp_path)
    shutil.rmtree(tmp_path / "build", ignore_errors=True)


@pytest.mark.nightly
def test_from_nothing_to_an_order_and_back(owner: Owner) -> None:
    """A first deployment that fails says why; the same command goes on from there, to an order that is paid and
    refunded with a token of the stack's own user pool. Later releases need no key. Then nothing is left of it.
    """
    status, printed = owner.run("deploy", *owner.parameters)
    assert (status, owner.left()) == (1, {}), "without a terminal or --yes it only says what it would do"
    assert "1. store the Stripe key" in printed

    status, printed = owner.run("deploy", *owner.parameters, "--yes", **{KEEPS_UNKNOWN: "1"})
    assert status == 2, printed
    assert "Monitoring: CREATE_FAILED: Unsupported resource type" in printed.partition("sam deploy failed")[2]

    status, printed = owner.run("deploy", *owner.parameters, "--yes")
    assert "delete what the failed first deployment left" in printed
    assert "the stack takes what it signs" in printed
    checks, tables = 9, 5
    checks += 1  # its webhook arrived
    checks += 1  # its refund SUCCEEDED
    tables += 1  # OrderRefunds
    assert (status, printed.count("✓"), printed.count("✗")) == (0, checks, 0), printed
    assert len(owner.left()["tables"]) == tables

    # As GitHub does: the stack's parameters are the former ones, and no key of Stripe's is there.
    status, printed = owner.run("deploy", "--yes", key="")
    assert (status, "• make the webhook endpoint" in printed) == (0, False), printed
    build, deploy = (owner.work_dir / CALLS).read_text().splitlines()[-2:]
    assert build.partition("--parameter-overrides")[2] == deploy.partition("--parameter-overrides")[2]
    assert KEY not in (owner.work_dir / CALLS).read_text()

    status, printed = owner.run("undeploy", "--yes")
    assert (status, owner.left()) == (0, {}), printed
    assert "left are:" in printed
    status, printed = owner.run("undeploy", "--yes")
    assert status == 0, printed
