"""A local stack that is kept: the ports of its pages, and the deployment of what is saved while it runs."""

import socket
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from local import changes
from local.__main__ import ports_from
from local.changes import contents, deploy_what_changes
from local.processes import StartupError, free_port, free_ports
from local.terminal import Stopped

HOST = "127.0.0.1"


def test_the_pages_are_at_ports_that_one_can_remember() -> None:
    """Those that are taken are left out, and said; a port that nobody listens on any more is not taken."""
    first, said = free_port(HOST), list[str]()
    with socket.socket() as taken:
        taken.bind((HOST, first))
        taken.listen()
        console, shop = ports_from(first, said.append)
        assert first < console < shop
        assert said == [f"port {first} is taken: the next free ones are {console} and {shop}"]
    assert ports_from(first, said.append)[0] == first
    with pytest.raises(StartupError, match="is free: tried"):
        list(free_ports(HOST, [first]))


class Watched:
    """A project in which somebody saves, while `deploy_what_changes` looks at it once a second."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app, self.shared = folder / "functions/charge_order/app.py", folder / "shared/events.py"
        for path in (self.app, self.shared):
            path.parent.mkdir(parents=True)
            path.write_text("first")
        self.folder, self.tried, self.said = folder, list[tuple[set[str], str]](), list[str]()
        self.saves = iter(list[dict[Path, str]]())
        monkeypatch.setattr(changes, "PROJECT", folder)
        monkeypatch.setattr(changes, "deploy", self.deploy)
        monkeypatch.setattr("time.sleep", self.save_the_next)

    def save_the_next(self, _: float) -> None:
        saved = next(self.saves, None)
        if saved is None:
            raise Stopped
        for path, text in saved.items():
            path.write_text(text)

    def deploy(self, _: object, changed: Collection[str], project: Path) -> list[str]:
        self.tried.append((set(changed), self.app.read_text()))
        if self.app.read_text() == "broken":
            raise subprocess.CalledProcessError(1, "build.py", output="SyntaxError\n")
        return ["charge_order"]

    def run(self, *saves: dict[Path, str]) -> None:
        """Until all of this was saved, a second after the other."""
        self.saves = iter(saves)
        stack: Any = None
        with pytest.raises(Stopped):
            deploy_what_changes(stack, contents(self.folder), self.said.append)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


def test_a_change_is_deployed_once_it_is_complete(watched: Watched) -> None:
    """An editor may save in steps. What cannot be built is said, and the next change is deployed."""
    saves = ("second", "third", "third", "broken", "broken", "fourth", "fourth")
    watched.run(*({watched.app: text} for text in saves))
    assert watched.tried == [({"functions/charge_order"}, text) for text in ("third", "broken", "fourth")]
    published = "functions/charge_order changed: charge_order published"
    not_published = "functions/charge_order changed, and is not published:\nSyntaxError"
    assert watched.said == [published, not_published, published]


def test_what_was_not_published_is_published_with_the_next_change(watched: Watched) -> None:
    """One of two changes cannot be built: nothing after it was published. Undone, it is, with the other."""
    app, shared = watched.app, watched.shared
    watched.run({app: "broken", shared: "second"}, {}, {}, {app: "first"}, {}, {})
    assert [changed for changed, _ in watched.tried] == [{"functions/charge_order", "shared"}] * 2
