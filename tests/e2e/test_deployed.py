"""What runs against a deployed stack, run against one that is known by its name in CloudFormation alone."""

import os
import subprocess
import sys
from pathlib import Path

from local.emulator import CREDENTIALS
from local.stack import Stack
from tests.support.harness import PROJECT
from tests.support.stacks import own_stack


@own_stack
def test_the_e2e_tests_run_against_a_stack_by_its_name(stack: Stack, tmp_path: Path) -> None:
    """As `make e2e STACK=…` runs them, with credentials, tokens and the endpoint in a variable of AWS's own: those that
    need no fault, no customer at the bank, and no stack of their own. Without TOKEN_COMMAND one line says so."""
    stack_json = tmp_path / "token-stack.json"
    stack_json.write_text(stack.as_json())
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))},
        **CREDENTIALS,
        "AWS_ENDPOINT_URL": stack.aws_endpoint_url,
        "API_URL": stack.api_url,  # The emulator's API is not where its output says.
    }
    token_command = f"'{sys.executable}' -m local.token --stack '{stack_json}'"
    tests = ("-q", "-p", "no:cacheprovider", "-n", "0", "--stack", stack.stack_name, "tests/e2e/test_orders.py")
    refused, done = (
        subprocess.run(
            [sys.executable, "-m", "pytest", *tests],
            cwd=PROJECT,
            env=environment | given,
            capture_output=True,
            text=True,
            timeout=400,
        )
        for given in ({}, {"TOKEN_COMMAND": token_command})
    )
    assert (refused.returncode, "TOKEN_COMMAND is missing" in refused.stdout) == (2, True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
    assert "needs the Stripe stand-in: nobody can do `authenticate` at Stripe" in done.stdout
