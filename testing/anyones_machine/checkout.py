"""A checkout of a commit in a folder with a hostile name, and the commands that somebody runs in it."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_MAKE_ITSELF = re.compile(r"make(\[\d+\])?: (\*\*\*|Leaving|Entering)")
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Result:
    """What a command did, as the person at the terminal sees it."""

    exit_code: int
    output: str
    seconds: float

    @property
    def lines(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.strip()]

    @property
    def last_line(self) -> str:
        """The last line of the program; make adds one of its own, `make: *** […] Error 2`."""
        return next((line for line in reversed(self.lines) if not _MAKE_ITSELF.match(line)), "")

    @property
    def has_traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.output


@dataclass(frozen=True)
class Checkout:
    """A clone, and an environment without what the person who started this has set up."""

    folder: Path

    @classmethod
    def of(cls, repository: Path, commit: str, folder: Path) -> "Checkout":
        """Clone the commit into the folder, unless it is there already."""
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            git = ["git", "-c", "advice.detachedHead=false"]
            subprocess.run([*git, "clone", "--quiet", str(repository), str(folder)], check=True)
            subprocess.run([*git, "-C", str(folder), "checkout", "--quiet", commit], check=True)
        return cls(folder)

    def run(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        seconds_max: float = 600,
        clean: bool = False,
    ) -> Result:
        """Run it to its end, or until the time is up, which is reported as exit code 124."""
        with self.started(command, env, clean=clean) as running:
            return running.wait(seconds_max)

    def make(self, *arguments: str, env: Mapping[str, str] | None = None, seconds_max: float = 600) -> Result:
        return self.run(["make", *arguments], env, seconds_max=seconds_max)

    def started(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, *, clean: bool = False
    ) -> "Running":
        """Start it, in a process group of its own as a terminal does."""
        return Running(command, self.folder, _environment(env or {}, clean=clean))

    def processes(self) -> list[str]:
        """Command lines of the processes that work in the folder, as Linux lists them."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                where = os.readlink(process / "cwd").encode() + (process / "cmdline").read_bytes()
                if os.fsencode(self.folder) in where and process.name != str(os.getpid()):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        return found


class Running:
    """A command that runs, whose output is read from a file, so that nothing ever waits for a reader."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        self.output_file = folder.parent / f"output-{time.monotonic_ns()}.txt"
        self.started = time.monotonic()
        with self.output_file.open("w") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            self.wait(60)
        self.output_file.unlink(missing_ok=True)

    @property
    def output(self) -> str:
        return self.output_file.read_text(errors="replace")

    def wait_for(self, text: str, seconds_max: float = 300) -> bool:
        """Wait until it has printed the text; False if it ended or the time was up before."""
        deadline = time.monotonic() + seconds_max
        while text not in self.output:
            if self.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def signal(self, number: signal.Signals) -> None:
        """To the whole process group, as a terminal sends it."""
        os.killpg(self.process.pid, number)

    def wait(self, seconds_max: float) -> Result:
        try:
            code = self.process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.process.wait()
            code = 124
        return Result(code, self.output, time.monotonic() - self.started)


def _environment(changes: Mapping[str, str], *, clean: bool) -> dict[str, str]:
    """What the shell has, without what would decide a case; `clean` is a fresh login shell's."""
    if clean:
        return {"PATH": os.defpath, "HOME": os.environ.get("HOME", "/"), **changes}
    decides = ("AWS_", "PYTHON", "VIRTUAL_ENV", "STRIPE_", "LC_", "CI", "MAKE", "MFLAGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(decides)}
    return {**kept, **changes}
