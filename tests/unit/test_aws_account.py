"""Whatever AWS account the shell has, tests and local runs know nothing of it."""

import subprocess
import sys
from pathlib import Path

from tests.support.harness import PROJECT

_CLIENT = """
import os, pathlib
from local.aws_account import forget_aws_account
from local.emulator import Emulator
forget_aws_account(os.environ)
print(Emulator("http://127.0.0.1:9", pathlib.Path()).client("sqs").meta.endpoint_url)
"""


def test_a_profile_that_does_not_exist_fails_no_client(tmp_path: Path) -> None:
    """Nor does a configuration file that nobody can parse."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text("this is no configuration")
    environment = {"AWS_PROFILE": "nonexistent", "HOME": str(tmp_path), "PYTHONPATH": str(PROJECT)}
    done = subprocess.run([sys.executable, "-c", _CLIENT], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("http://127.0.0.1:9\n", "")
