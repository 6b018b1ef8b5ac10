"""Fixtures of every suite: an AWS of moto's in this process, and the sample events by their names."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import compress
from pathlib import Path
from typing import Any

import boto3
import pytest
import responses
from moto import mock_aws

from local.aws_account import forget_aws_account
from local.stack import Stack, running_stack
from onecharge.runtime.aws import client_config
from onecharge.runtime.parts import Parts
from tests.support.aws_in_process import SharedClients
from tests.support.harness import PROJECT, Log, Sample
from tests.support.stacks import FIFO, OPERATED, STANDARD


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="also what `make test` has no time for")


def pytest_configure(config: pytest.Config) -> None:
    """No account of the shell's, before anything makes a client: its profile may not exist."""
    config.addinivalue_line("markers", "own_stack: on a second stack, for `make nightly` alone")
    config.addinivalue_line("markers", "nightly: for `make nightly` alone")
    forget_aws_account(os.environ)


_SERVERS = (STANDARD, FIFO, OPERATED)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --nightly neither its tests nor those of a second stack run."""
    if not config.getoption("--nightly"):
        is_nightly = [any(item.get_closest_marker(name) for name in ("nightly", "own_stack")) for item in items]
        config.hook.pytest_deselected(items=[*compress(items, is_nightly)])
        items[:] = [item for item, left_out in zip(items, is_nightly, strict=True) if not left_out]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a stack runs on the standard one, unless it says otherwise; its id names the stack."""
    chosen = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    if "stack" in metafunc.fixturenames and "stack" not in chosen:
        own = metafunc.definition.get_closest_marker("own_stack")
        metafunc.parametrize("stack", [OPERATED if own else STANDARD], indirect=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """All tests of one server run in one of the parallel processes, which starts that server once.

    The server is known by the test's id: `--dist loadgroup` has no effect with this version of pytest.
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class OneProcessForEachServer(LoadScopeScheduling):  # type: ignore[misc]  # It has no types.
        def _split_scope(self, nodeid: str) -> str:
            parameters = set() if "tests/unit/" in nodeid else set(nodeid.partition("[")[2].rstrip("]").split("-"))
            return next((server for server in _SERVERS if server in parameters), nodeid)

    return OneProcessForEachServer(config, log)


@pytest.fixture
def is_nightly(pytestconfig: pytest.Config) -> bool:
    """Whether there is time: `make test` explores less than `make nightly`."""
    return bool(pytestconfig.getoption("--nightly"))


@pytest.fixture
def sample() -> Sample:
    """Reads a sample event: `sample("charge_order/batch")`."""
    return lambda name: json.loads((PROJECT / "events" / f"{name}.json").read_text())


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture(scope="session")
def moto() -> Iterator[tuple[Any, SharedClients]]:
    """Started once: to start it, and to make a client, takes longer than most tests."""
    with mock_aws() as moto:
        yield moto, SharedClients()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, moto: tuple[Any, SharedClients]) -> Iterator[None]:
    """An empty AWS in this process; nothing leaves the machine, whatever the environment holds."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "onecharge")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "test")
    # What moto does not answer goes nowhere: no proxy listens there.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    mock, session = moto
    mock.reset()
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", session)
    monkeypatch.setattr(Parts, "client", lambda _, service: session.client(service, config=client_config()))
    yield
    session.forget_handlers()


@pytest.fixture
def http(aws: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[responses.RequestsMock]:
    """Answers what is sent to Stripe, inside moto: the other way round, moto would let it leave the machine.

    A request that no response was added for fails.
    """
    # The SDK pauses between its tries; a test need not.
    monkeypatch.setattr("stripe.HTTPClient.INITIAL_DELAY", 0)
    monkeypatch.setattr("stripe.HTTPClient.MAX_DELAY", 0)
    with responses.RequestsMock() as mock:
        yield mock


@pytest.fixture(scope="session")
def stack_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the standard stack was built, and where its logs are."""
    return tmp_path_factory.mktemp("stack")


@pytest.fixture(scope="session")
def stacks(stack_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Stack]]:
    """Builds the real template and deploys it to an emulator of its own, once for all tests of the stack."""
    with ExitStack() as running:

        @cache
        def started(name: str) -> Stack:
            work_dir = stack_dir if name == STANDARD else tmp_path_factory.mktemp(name)
            messaging = FIFO if name == FIFO else STANDARD
            stack = running.enter_context(running_stack(work_dir=work_dir, messaging=messaging))
            # Tests invoke the scheduled functions when they want their work done; a round by itself, every five
            # minutes, would have done it between two steps of a test.
            scheduler = stack.aws.client("scheduler")
            for schedule in scheduler.list_schedules()["Schedules"]:
                scheduler.delete_schedule(Name=schedule["Name"])
            return stack

        yield started


@pytest.fixture
def stack(request: pytest.FixtureRequest, stacks: Callable[[str], Stack]) -> Stack:
    """The deployed stack that the test runs on; see tests/support/stacks.py."""
    return stacks(getattr(request, "param", STANDARD))
