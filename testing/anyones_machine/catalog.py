"""All cases, in the order in which they run: first what needs no installation, last what spoils it."""

from testing.anyones_machine import cases
from testing.anyones_machine.cases import DEMO, Case, in_a_namespace, just_make, npm_unreachable

_STOPPED = (-2, 2, 130)
"""Make is interrupted, too: by the signal, or as the failure of what it ran."""

CASES = [
    # Without an installation.
    Case("make clean in a path with spaces", cases.clean_beside_a_neighbor, "", exits=(0,), is_bare=True,
        folder="my shop for Zoë"),
    Case("PYTHON is 3.12", cases.wrong_python, "Python 3.13 is needed.*make PYTHON=", is_bare=True),
    Case("PYTHON does not exist", just_make("PYTHON=python3.99", "install"), "Python 3.13 is needed", is_bare=True),
    Case("first installation offline", cases.install_offline, "package index", lines_max=20, is_bare=True),
    # The installation, which all that follow share, and a first run.
    Case("install and demo in a hostile path", cases.install_and_demo, "", exits=(0,), lines_max=400),
    Case("demo SEED=abc", just_make("demo", "SEED=abc"), "SEED=abc has to be"),
    Case("demo ORDERS=5", just_make("demo", "ORDERS=5"), "ORDERS=5 has to be"),
    Case("simulate SEED=abc", just_make("simulate", "SEED=abc"), "SEED=abc has to be"),
    Case("simulate SEED=1:", just_make("simulate", "SEED=1:"), "SEED=1: has to be"),
    Case("simulate SCHEDULES=0", just_make("simulate", "SCHEDULES=0"), "SCHEDULES=0 has to be"),
    Case("simulate PROCESSES=0", just_make("simulate", "PROCESSES=0"), "PROCESSES=0 has to be"),
    Case("mutants SEED=1:2", just_make("mutants", "SEED=1:2"), "SEED=1:2 names one schedule"),
    Case("survival SEED=abc", just_make("survival", "SEED=abc"), "SEED=abc has to be"),
    Case("specification BOUNDS=x=1", just_make("specification", "BOUNDS=x=1"), "BOUNDS=.* has to be"),
    Case("local HOST of another machine", just_make("local", "HOST=192.0.2.1"), "HOST=192.0.2.1 is no address"),
    Case("local HOST is a word", just_make("local", "HOST=nonsense.invalid"), "HOST=nonsense.invalid is no address"),
    Case("PYTHONPATH of another project", cases.foreign_python_path, "passed", exits=(0,), lines_max=20),
    Case("tests with AWS_PROFILE=nonexistent", just_make("test", "PYTEST_ARGS=tests/unit/test_update_order.py",
        AWS_PROFILE="nonexistent"), "passed", exits=(0,), lines_max=20),
    Case("demo with AWS_PROFILE=nonexistent", just_make(*DEMO, AWS_PROFILE="nonexistent"),
        "", exits=(0,), lines_max=90),
    Case("demo, LC_ALL=C PYTHONUTF8=0", just_make(*DEMO, LC_ALL="C", PYTHONUTF8="0"), "", exits=(0,), lines_max=90),
    Case("old Java", cases.old_java, "skipped", exits=(0,), lines_max=60),
    Case("npm registry refuses", npm_unreachable("http://127.0.0.1:9/"), "npm cannot reach.*skipped", exits=(0,)),
    Case("npm registry never answers", npm_unreachable(None), "npm cannot reach.*skipped", exits=(0,)),
    Case("npm registry refuses, in CI", npm_unreachable("http://127.0.0.1:9/", ci=True), "npm cannot reach.*in CI"),
    Case(".local is read-only", in_a_namespace("-o ro", "demo"), "Read-only.*make it writable"),
    Case(".local is full", in_a_namespace("-o size=64k", "demo"), "free some space", lines_max=40),
    Case("Ctrl-C after placing", cases.interrupt_the_demo, "stopped", exits=_STOPPED, lines_max=9),
    Case("SIGHUP", cases.hangup, "stopped", exits=(0,), lines_max=20),
    Case("kill -9 during sam build", cases.kill_while_building, "", exits=_STOPPED, lines_max=9),
    Case("first build offline", cases.build_offline, "package index", lines_max=40),
    Case("README's curl beside make local", cases.readme_order, '"status":"PENDING"', exits=(0,), lines_max=25),
    Case("the printed curl", cases.printed_order, '"status":"PENDING"', exits=(0,), lines_max=25),
    Case("README's deploy in a fresh shell", cases.readme_deploy, "sam deploy would run", exits=(0,), lines_max=40),
    Case("local, demo and tests offline", cases.offline_after_a_first_run, "passed", exits=(0,), lines_max=12),
    Case("moved checkout", cases.moved_checkout, "valid", exits=(0,), lines_max=120),
]  # fmt: skip
