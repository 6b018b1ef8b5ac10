"""The layout: who may import whom, how long a function and a module may be, and that importing has no effects."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

from tests.support.harness import PROJECT

CONTRACT, RUNTIME = "onecharge.contract", "onecharge.runtime"
ORDERS, PAYMENTS = "onecharge.orders", "onecharge.payments"
FUNCTIONS = sorted(path.parent.name for path in (PROJECT / "functions").glob("*/app.py"))
ORDER_SERVICE = [name for name in FUNCTIONS if name in {"orders_api", "republish", "update_order"}]
PUBLISHERS = [name for name in FUNCTIONS if name == "publish_events"]
PAYMENT_SERVICE = [name for name in FUNCTIONS if name not in {*ORDER_SERVICE, *PUBLISHERS}]
PRODUCT = ["onecharge", *FUNCTIONS]
HOUSE = [*PRODUCT, "local", "ops", "console", "stripe_standin", "layers"]


@dataclass(frozen=True)
class Rule:
    """What the modules of a package may import of ours, besides the package itself."""

    package: str
    may_import: list[str]
    reason: str


RULES = [
    Rule(CONTRACT, [], "Both services depend on the contract, so it depends on neither."),
    Rule(RUNTIME, [CONTRACT], "Queues, topics and tables serve both services; of them they know the events alone."),
    Rule(ORDERS, [CONTRACT, RUNTIME], "The order service learns of payments only through the contract."),
    Rule(PAYMENTS, [CONTRACT, RUNTIME], "The payment service learns of orders only through the contract."),
    *(Rule(name, [CONTRACT, RUNTIME, ORDERS], "A function of the order service.") for name in ORDER_SERVICE),
    *(Rule(name, [CONTRACT, RUNTIME, PAYMENTS], "A function of the payment service.") for name in PAYMENT_SERVICE),
    *(Rule(name, [CONTRACT, RUNTIME, ORDERS, PAYMENTS], "It publishes for both services.") for name in PUBLISHERS),
    Rule("ops", ["onecharge"], "It works on a stack with the layer's rules and stores, and starts no function."),
    Rule("console", ["onecharge", "ops"], "It shows what ops reads."),
    Rule(
        "console.breaks",
        ["onecharge", "ops", "local", "stripe_standin", "console.experiments"],
        "It breaks the local stack, by the stand-in's admin API.",
    ),
    Rule("local", [*PRODUCT, "stripe_standin"], "It runs the product, and knows nothing of what proves it."),
    Rule("stripe_standin", [], "It is a distribution of its own, and so are its tests."),
    Rule("layers", [], "The build runs before anything is installed."),
    Rule("tests", HOUSE, "They test the house, which can be copied without its lab."),
    Rule("lab", [*HOUSE, "tests"], "It proves the house, which does not know it."),
    Rule("conftest", [*HOUSE, "tests"], "The fixtures of every suite."),
]
"""The rule of the longest package name that matches a module applies to it."""

FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 460


def modules_in(folder: str, root: str = ".") -> dict[str, Path]:
    """The modules of a folder by their names, as they are imported from the root."""
    paths = sorted((PROJECT / root / folder).rglob("*.py"))
    return {".".join(path.relative_to(PROJECT / root).with_suffix("").parts): path for path in paths}


PRODUCT_MODULES = modules_in("onecharge", "shared") | {
    name: path for function in FUNCTIONS for name, path in modules_in(function, "functions").items()
}
MODULES = PRODUCT_MODULES | {
    name: path
    for folder in ("local", "ops", "console", "layers", "stripe_standin", "tests", "lab")
    for name, path in modules_in(folder).items()
}
OURS = {name.split(".")[0] for name in MODULES}


def is_in(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def imports_of(path: Path) -> Iterator[str]:
    """The names that a module imports, wherever in it, as `package.module.name`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def imports_of_ours(path: Path) -> list[str]:
    return sorted({name for name in imports_of(path) if name.split(".")[0] in OURS})


def imported_modules(path: Path) -> set[str]:
    """The modules of ours that a module imports."""
    return {name if name in MODULES else name.rpartition(".")[0] for name in imports_of_ours(path)}


def rule_of(module: str) -> Rule:
    return max((rule for rule in RULES if is_in(module, rule.package)), key=lambda rule: len(rule.package))


def broken_by(module: str) -> list[str]:
    """What a module imports and may not."""
    rule = rule_of(module)
    allowed = [rule.package, *rule.may_import]
    return [name for name in imports_of_ours(MODULES[module]) if not any(is_in(name, package) for package in allowed)]


def test_a_module_imports_only_what_its_rule_allows() -> None:
    """Dependencies go from functions to services to the runtime to the contract."""
    broken = {name: broken_by(name) for name in MODULES if name != "onecharge.__init__"}
    assert {name: (names, rule_of(name).reason) for name, names in broken.items() if names} == {}


def test_no_module_depends_on_itself() -> None:
    """Imports make no cycle, so that every module can be read, tested and replaced with those below it alone."""
    TopologicalSorter({name: imported_modules(path) for name, path in PRODUCT_MODULES.items()}).prepare()


def test_no_test_imports_another_test() -> None:
    """Tests share code through tests/support or a conftest.py, so a test can be deleted without another one failing."""
    importing = {
        name
        for name, path in modules_in("tests").items()
        if any(module.rpartition(".")[2].startswith("test_") for module in imported_modules(path))
    }
    assert importing == set()


def test_functions_are_short() -> None:
    """Docstring included."""
    lengths = {
        f"{name}.{node.name}": node.end_lineno - node.lineno + 1
        for name, path in PRODUCT_MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    }
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


def test_modules_are_short() -> None:
    """One that grows longer is split by what changes together."""
    lengths = {name: len(path.read_text().splitlines()) for name, path in PRODUCT_MODULES.items()}
    assert {name for name, lines in lengths.items() if lines > MODULE_LINES_MAX} == set()


def test_only_the_handler_reads_environment_variables() -> None:
    """And hands them to the parts, which are therefore made of anything that a test gives them."""
    reading = {
        name for name, path in PRODUCT_MODULES.items() if any(is_in(imported, "os") for imported in imports_of(path))
    }
    assert reading == {"onecharge.runtime.functions"}


def test_only_parts_are_made_of_environment_variables() -> None:
    """A module of parts, or an app.py, says which part is made of which; everything else takes its value."""
    naming = {name for name, path in PRODUCT_MODULES.items() if re.search(r"\benvironment\[", path.read_text())}
    services = {"onecharge.runtime.parts", "onecharge.payments.parts"}
    assert naming <= {*services, *(f"{function}.app" for function in FUNCTIONS)}


def test_importing_opens_no_connection() -> None:
    """Nor needs an environment variable: with none set, every module of the product is imported in one process."""
    program = (
        "import importlib, sys\n"
        "sys.addaudithook(lambda event, _: sys.exit(event) if event.startswith('socket.connect') else None)\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
    )
    path = f"{PROJECT / 'functions'}:{PROJECT / 'shared'}"
    command = [sys.executable, "-c", program, *PRODUCT_MODULES]
    subprocess.run(command, env={"PYTHONPATH": path}, check=True, timeout=120)
