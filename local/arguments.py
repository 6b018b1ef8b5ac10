"""What the command lines of this project share: one line for a wrong argument, which says what it has to be."""

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn


class Arguments(argparse.ArgumentParser):
    """A parser whose errors are one line, in the words of make's arguments: `SEED=abc`, not `--seed abc`."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}", file=sys.stderr)
        sys.exit(2)


def until_stopped(main: Callable[[], int]) -> int:
    """Run the program; Ctrl-C ends it with one word instead of a traceback. Returns the exit code."""
    try:
        return main()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def seed(text: str) -> int:
    """SEED=…: any whole number from 0."""
    return _whole_number("SEED", text, minimum=0)


def port(text: str) -> int:
    """PORT=…: one that needs no right to listen on, with some above it."""
    return _whole_number("PORT", text, minimum=1024, maximum=65_000)


def at_least(minimum: int, name: str) -> Callable[[str], int]:
    """NAME=…: a whole number that is not below the minimum."""
    return lambda text: _whole_number(name, text, minimum=minimum)


def seed_or_schedule(text: str) -> tuple[int, int | None]:
    """SEED=seed, or SEED=seed:number for one schedule; gives the seed and the schedule's number, or none."""
    first, colon, number = text.partition(":")
    try:
        return seed(first), seed(number) if colon else None
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"SEED={text} has to be a whole number, as SEED=7, or seed:number for one schedule, as SEED=7:42"
        ) from None


def _whole_number(name: str, text: str, *, minimum: int, maximum: int | None = None) -> int:
    # Not int(): that would take "1_000", " 7" and digits of other scripts.
    if text.isascii() and text.isdigit() and int(text) >= minimum and (maximum is None or int(text) <= maximum):
        return int(text)
    to = f" to {maximum}" if maximum is not None else ""
    raise argparse.ArgumentTypeError(f"{name}={text} has to be a whole number from {minimum}{to}")
