"""A wrong argument of a command line is refused in one line, in make's words."""

import argparse
import subprocess
import sys

import pytest

from testing.arguments import at_least, seed, seed_or_schedule
from testing.harness import PROJECT

WRONG = [
    ("testing.simulation --seed abc", "SEED=abc has to be a whole number"),
    ("testing.simulation --seed 1:", "SEED=1: has to be"),
    ("testing.simulation --seed :1", "SEED=:1 has to be"),
    ("testing.simulation --schedules 0", "SCHEDULES=0 has to be a whole number from 1"),
    ("testing.simulation --processes 0", "PROCESSES=0 has to be"),
    ("testing.simulation --mutants --seed 1:2", "SEED=1:2 names one schedule"),
    ("testing.specification --bounds x=1", 'BOUNDS="x=1" has to be as'),
    ("testing.specification --bounds crash", 'BOUNDS="crash" has to be as'),
    ("benchmarks.survival --seed abc", "SEED=abc has to be"),
    ("benchmarks.survival --schedules 0", "SCHEDULES=0 has to be"),
    ("benchmarks.load --rate 0", "RATE=0 has to be a whole number from 1 to 200"),
    ("benchmarks.load --rate 201", "RATE=201 has to be a whole number from 1 to 200"),
    ("benchmarks.load --rate 1.5", "RATE=1.5 has to be"),
    ("benchmarks.load --seconds 0", "SECONDS=0 has to be a whole number from 1"),
    ("local.demo --seed abc", "SEED=abc has to be"),
    ("local.demo --orders 9", "ORDERS=9 has to be a whole number from 10"),
]


@pytest.mark.parametrize(("command", "line"), WRONG)
def test_a_wrong_argument_is_one_line(command: str, line: str) -> None:
    """No traceback, no usage of a program that nobody has called by that name."""
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=PROJECT,
        env={"PYTHONPATH": "functions:shared:."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert line in done.stderr
    assert (done.stdout + done.stderr).count("\n") == 1


def test_numbers_are_taken_as_they_are_meant() -> None:
    assert (seed("0"), at_least(10, "ORDERS")("10")) == (0, 10)
    assert (seed_or_schedule("7"), seed_or_schedule("7:42")) == ((7, None), (7, 42))


@pytest.mark.parametrize("text", ["", "-1", "1_000", " 7", "7.0", "٣", "1:2:3"])
def test_nothing_else_is_a_number(text: str) -> None:
    for parse in (seed, seed_or_schedule):
        with pytest.raises(argparse.ArgumentTypeError):
            parse(text)
