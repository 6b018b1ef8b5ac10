"""What runs against a deployed stack, run against one that is known by its name in CloudFormation alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from local.emulator import CREDENTIALS
from local.stack import Stack
from tests.support.harness import PROJECT
from tests.support.stacks import own_stack

pytestmark = own_stack


@pytest.fixture
def environment(stack: Stack, tmp_path: Path) -> dict[str, str]:
    """What whoever has deployed the stack has: credentials, tokens, the endpoint in a variable of AWS's own."""
    stack_json = tmp_path / "token-stack.json"
    stack_json.write_text(stack.as_json())
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    return {
        **kept,
        **CREDENTIALS,
        "AWS_ENDPOINT_URL": stack.aws_endpoint_url,
        "API_URL": stack.api_url,  # The emulator's API is not where its output says.
        "TOKEN_COMMAND": f"'{sys.executable}' -m local.token --stack '{stack_json}'",
    }


def run(environment: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=400, check=False
    )


def test_the_e2e_tests_run_against_a_stack_by_its_name(stack: Stack, environment: dict[str, str]) -> None:
    """As `make e2e STACK=…` runs them: those that need no fault, no customer at the bank, and no stack of their own.
    Without TOKEN_COMMAND one line says what is missing."""
    words = "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "--stack", stack.stack_name, "tests/e2e/test_orders.py"
    done = run(environment, *words)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
    assert "needs the Stripe stand-in: nobody can do `authenticate` at Stripe" in done.stdout
    del environment["TOKEN_COMMAND"]
    refused = run(environment, *words)
    assert (refused.returncode, "TOKEN_COMMAND is missing" in refused.stdout) == (2, True)
