"""What is shipped: small, compiled, the same each time, and nothing that no function imports."""

import ast
import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from local.samples import SAMPLES, logical_id_of
from local.stack import Stack
from sam_build.build import AWS_SERVICES, KEPT, LEFT_OUT, build, compile_all
from testing.artifacts import Run, fed_with_its_samples, interpreter
from testing.harness import PROJECT

MB = 1_000_000
LARGEST = 45 * MB
"""Of a function with all its layers, unzipped."""

SHIPPED_ALL_THE_SAME = {
    "stripe": "an object of any kind may be in what Stripe sends: the SDK imports its class by the object's own name",
    "dateutil/zoneinfo": "read where a machine has no time zones of its own",
    "aws_lambda_powertools/event_handler/middlewares": "imported by the resolver for routes that validate",
    "aws_lambda_powertools/logging/formatters": "small",
    "aws_lambda_powertools/metrics/provider/datadog": "small",
    "aws_lambda_powertools/utilities/metadata": "small",
    "aws_lambda_powertools/utilities/typing": "small",
    "aws_lambda_powertools/utilities/validation": "imported by the resolver's middlewares",
    "aws_lambda_powertools/utilities/data_classes/appsync": "small",
    "pydantic/deprecated": "what calls the former API gets its warning from there",
    "pydantic/experimental": "imported by name, from pydantic itself",
}
"""Packages of which no sample event has imported anything, with the reason."""

NEVER_RUNS = {
    ("aws_lambda_powertools.event_handler.api_gateway", "openapi.swagger_ui"): "in enable_swagger, which nothing calls",
    ("pydantic._internal._generate_schema", "pydantic.v1"): "for classes with validators of pydantic 1",
    ("stripe._util", "stripe.events"): "for responses of /v2/, which nothing requests",
    ("stripe.v2.core._event", "stripe.events"): "in from_json of thin events, which nothing parses",
    ("urllib3", "urllib3.contrib.emscripten"): "in a browser",
}
"""Import statements that name what is left out, and why they never run: module, part of what it imports."""


@pytest.fixture
def runs(stack: Stack, stack_dir: Path) -> dict[str, Run]:
    """Each built function, fed its sample events."""
    return {function: fed_with_its_samples(function, stack, stack_dir / "build") for function in SAMPLES}


@pytest.fixture
def roots(runs: dict[str, Run]) -> list[Path]:
    """Where the modules of the functions and layers are."""
    return sorted({root for run in runs.values() for root in run.roots})


def size_of(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def test_a_function_and_its_layers_are_small(runs: dict[str, Run]) -> None:
    """Unzipped, .pyc files included; `make sizes` shows the figures."""
    sizes = {function: sum(map(size_of, run.roots)) for function, run in runs.items()}
    assert {function: size for function, size in sizes.items() if size > LARGEST} == {}


def test_stripe_is_shipped_once_and_to_those_that_use_it(runs: dict[str, Run]) -> None:
    """Each library is in one layer; a function has the layer whose modules it imports."""
    for function, run in runs.items():
        unused = [root for root in run.roots if not any(module.startswith(str(root)) for module in run.modules)]
        assert unused == [], function
    roots = {root for run in runs.values() for root in run.roots}
    packages = [path.name for root in roots for path in root.glob("*.dist-info")]
    assert len(packages) == len(set(packages)) > 0
    assert sum((root / "stripe").exists() for root in roots) == 1


def test_nothing_is_shipped_that_no_function_imports(runs: dict[str, Run], roots: list[Path]) -> None:
    """Of each package some function imports a module, or there is a reason."""
    imported = {Path(module).parent for run in runs.values() for module in run.modules}
    shipped = {path.parent: root for root in roots for path in root.rglob("*.py")}
    idle = {package.relative_to(root).as_posix() for package, root in shipped.items() if package not in imported}
    unexplained = {name for name in idle if not any(is_within(name, reason) for reason in SHIPPED_ALL_THE_SAME)}
    assert unexplained == set()
    assert {reason for reason in SHIPPED_ALL_THE_SAME if not any(is_within(name, reason) for name in idle)} == set()


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}/")


def test_nothing_that_is_left_out_is_ever_imported(roots: list[Path]) -> None:
    """By every import statement of every module that is shipped, wherever it is."""
    asked = {(module, wanted) for root in roots for module, wanted in imports_of(root) if is_left_out(wanted)}
    assert {each for each in asked if not any(is_exempt(*each, *never) for never in NEVER_RUNS)} == set()
    assert {never for never in NEVER_RUNS if not any(is_exempt(*each, *never) for each in asked)} == set()


def is_exempt(module: str, wanted: str, exempt: str, part: str) -> bool:
    return module == exempt and part in wanted


def is_left_out(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in modules_left_out())


@cache
def modules_left_out() -> set[str]:
    """By name, of the packages as they are installed here: the same versions."""
    installed = Path(pytest.__file__).parent.parent
    paths = {path for pattern in LEFT_OUT for path in installed.glob(pattern)}
    names = {path.relative_to(installed).as_posix() for path in paths} - set(KEPT)
    shipped = "botocore stripe aws_lambda_powertools pydantic urllib3".split()
    return {name.removesuffix(".py").replace("/", ".") for name in names if name.split("/")[0] in shipped}


def imports_of(root: Path) -> Iterator[tuple[str, str]]:
    """Each module with each name that it imports when it runs: not for type checkers alone."""
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        package = parts[:-1]
        module = ".".join(package if path.name == "__init__.py" else parts)
        for node in running_statements(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((module, name.name) for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else ()
                base = ".".join((*above, *((node.module,) if node.module else ())))
                yield from ((module, f"{base}.{name.name}") for name in node.names)


def running_statements(tree: ast.AST) -> Iterator[ast.AST]:
    remaining = [tree]
    while remaining:
        node = remaining.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).removeprefix("typing.") == "TYPE_CHECKING":
            remaining += node.orelse
            continue
        yield node
        remaining += ast.iter_child_nodes(node)


def test_every_module_is_compiled(roots: list[Path]) -> None:
    """For Python 3.13, from just this source, and without a look at it: PEP 552's unchecked hash."""
    for root in roots:
        for source in root.rglob("*.py"):
            compiled = Path(importlib.util.cache_from_source(source)).read_bytes()
            assert compiled[:4] == importlib.util.MAGIC_NUMBER
            assert compiled[4:8] == (0b01).to_bytes(4, "little"), source
            assert compiled[8:16] == importlib.util.source_hash(source.read_bytes()), source


def test_a_traceback_has_the_paths_of_lambda(stack_dir: Path, stack: Stack) -> None:
    """Not those of the machine that has built."""
    for module, path in (("SharedLayer/python/onecharge/runtime/aws.py", "/opt/python/onecharge/runtime/aws.py"),):
        compiled = Path(importlib.util.cache_from_source(stack_dir / "build" / module)).read_bytes()
        assert path.encode() in compiled
        assert str(stack_dir).encode() not in compiled


def test_the_same_sources_make_the_same_bytes(stack: Stack, stack_dir: Path, tmp_path: Path) -> None:
    """Built elsewhere and later: an unchanged layer is no new version."""
    built = stack_dir / "build"
    build("SharedLayer", "x86_64", source=PROJECT / "shared", artifacts=tmp_path / "SharedLayer")
    function = logical_id_of("charge_order")
    build(function, "x86_64", source=PROJECT / "functions/charge_order", artifacts=tmp_path / function)
    for layer in ("LibrariesLayer", "StripeLayer"):
        shutil.copytree(built / layer, tmp_path / layer, ignore=shutil.ignore_patterns("__pycache__"))
        compile_all(tmp_path / layer / "python", "/opt/python")
    for name in ("SharedLayer", function, "LibrariesLayer", "StripeLayer"):
        assert contents(tmp_path / name) == contents(built / name), name


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# What only an error or a rare event asks for: every module there is, the class of each of Stripe's objects, a client of
# each AWS service. It prints what could not be imported, and which module was missing.
_IMPORT_EVERYTHING = """
import importlib, json, pathlib, sys
sys.path += sys.argv[2:]
from botocore.session import get_session
from stripe._object_classes import OBJECT_CLASSES, V2_OBJECT_CLASSES
session = get_session()
session.set_credentials("any", "any")
for service in sys.argv[1].split():
    session.create_client(service, region_name="us-east-1").exceptions
wanted = {module for module, name in [*OBJECT_CLASSES.values(), *V2_OBJECT_CLASSES.values()]}
for root in map(pathlib.Path, sys.argv[2:]):
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        if path.name != "__main__.py":
            wanted.add(".".join(parts[:-1] if path.name == "__init__.py" else parts))
missing = {}
for module in sorted(wanted):
    try:
        importlib.import_module(module)
    except ImportError as error:
        missing[module] = error.name
print(json.dumps(missing))
"""


def test_whatever_is_shipped_can_be_imported(roots: list[Path]) -> None:
    """An error or a rare event finds what it asks for; only packages that are installed nowhere here may be missing."""
    done = subprocess.run(
        [interpreter(), "-I", "-S", "-W", "ignore", "-c", _IMPORT_EVERYTHING, " ".join(AWS_SERVICES), *roots],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    missing = json.loads(done.stdout)
    assert "fastjsonschema" in missing.values(), "an optional package of Powertools', which no function needs"
    assert {module: name for module, name in missing.items() if is_left_out(name)} == {}
