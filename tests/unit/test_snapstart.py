"""What a snapshot of the API's function holds: imported modules, and nothing that must be unique, new or secret."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from testing.harness import PROJECT, load_template

# Imports a function in a fresh process; reports what our own modules call meanwhile, and any module's connection.
_WATCH = """
import json, os, sys
sys.path[:0] = ["functions", "shared"]
FORBIDDEN = {"time", "time_ns", "now", "utcnow", "today", "urandom", "random", "getrandbits", "randint", "uniform",
             "uuid1", "uuid4", "token_hex", "token_bytes", "token_urlsafe", "getenv", "client", "aws_client",
             "create_client", "get_secret_value"}
seen = []

def watch(frame, event, argument):
    if event == "c_call":
        caller, name = frame, argument.__name__
    elif event == "call":
        caller, name = frame.f_back, frame.f_code.co_name
    else:
        return
    module = caller.f_globals.get("__name__", "") if caller else ""
    if module.split(".")[0] in ("onecharge", sys.argv[1]) and name in FORBIDDEN:
        seen.append(f"{module} calls {name}")

class Environment(dict):
    def note(self, name, reader):
        module = reader.f_globals.get("__name__", "")
        if module.split(".")[0] in ("onecharge", sys.argv[1]):
            seen.append(f"{module} reads {name}")

    def __getitem__(self, name):
        self.note(name, sys._getframe(1))
        return super().__getitem__(name)

    def get(self, name, default=None):
        self.note(name, sys._getframe(1))
        return super().get(name, default)

os.environ = Environment(os.environ)
sys.addaudithook(lambda event, _: seen.append(event) if event in ("socket.connect", "socket.getaddrinfo") else None)
sys.setprofile(watch)
__import__(sys.argv[1] + ".app")
sys.setprofile(None)
print(json.dumps(seen))
"""


def seen_while_importing(package: str, folder: str = ".") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _WATCH, package],
        cwd=PROJECT,
        env={"PYTHONPATH": folder, "AWS_DEFAULT_REGION": "us-east-1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout))


def functions_with_a_snapshot() -> list[str]:
    resources = load_template()["Resources"].values()
    return [each["Properties"]["Handler"].split(".")[0] for each in resources if "SnapStart" in each["Properties"]]


def test_only_the_api_starts_from_a_snapshot() -> None:
    """And by default it does not."""
    assert functions_with_a_snapshot() == ["orders_api"]
    assert load_template()["Parameters"]["ApiSnapStart"]["Default"] == "None"


@pytest.mark.parametrize("function", functions_with_a_snapshot())
def test_a_snapshot_has_no_randomness_time_secret_or_connection(function: str) -> None:
    """All environments that are restored from it would share it."""
    assert seen_while_importing(function) == []


@pytest.mark.parametrize(
    ("statement", "seen"),
    [
        ("import time; STARTED = time.time()", "calls time"),
        ("import uuid; WORKER = uuid.uuid4()", "calls uuid4"),
        ("import secrets; OWNER = secrets.token_hex(8)", "calls token_hex"),
        ("import os; TABLE = os.environ.get('ORDERS_TABLE')", "reads ORDERS_TABLE"),
        ("import boto3; CLIENT = boto3.client('sqs')", "calls client"),
        ("import socket; socket.socket().connect_ex(('127.0.0.1', 9))", "socket.connect"),
    ],
)
def test_each_of_these_would_be_seen(tmp_path: Path, statement: str, seen: str) -> None:
    """The test above can fail."""
    package = tmp_path / "careless"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "app.py").write_text(statement + "\n")
    assert any(seen in each for each in seen_while_importing("careless", str(tmp_path)))
