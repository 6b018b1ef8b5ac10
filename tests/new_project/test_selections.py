"""Whichever parts are chosen, nothing names what was left out: no import, no path, no reference of a template.

All 64 selections are looked at, and no project is written: a text depends on no parts but those of its own marks, so
that all selections together have a few versions of each file.
"""

import ast
import posixpath
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import pytest

from new_project.__main__ import read_project
from new_project.parts import PARTS, conditions_of
from new_project.project import OWN_NAME, new_project

type Selection = frozenset[str]
type Selections = frozenset[Selection]

SELECTIONS = frozenset(
    frozenset(chosen) for size in range(len(PARTS) + 1) for chosen in combinations(sorted(PARTS), size)
)
FILES_HERE = read_project(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Version:
    """A text of a file, and the selections that have it."""

    path: str
    text: str
    selections: Selections


@dataclass(frozen=True)
class Use:
    """What a version names."""

    version: Version
    name: str


# ---------------------------------------------------------------- versions


def versions_of(files: Mapping[str, str]) -> list[Version]:
    """Every text that a file has in a selection."""
    made: dict[tuple[str, str], set[Selection]] = defaultdict(set)
    for path, text in files.items():
        of_parts: dict[Selection, set[Selection]] = defaultdict(set)
        for selection in SELECTIONS:
            of_parts[selection & parts_of(path, text)].add(selection)
        for chosen, selections in of_parts.items():
            for own in new_project({path: text}, chosen, OWN_NAME).items():
                made[own] |= selections
    return [Version(path, text, frozenset(selections)) for (path, text), selections in made.items()]


def parts_of(path: str, text: str) -> Selection:
    """The parts that the file and its marks are kept for."""
    conditions = " ".join([*conditions_of(path), *re.findall(r"optional: ([a-z|, ]+)", text)])
    return frozenset(PARTS) & set(re.findall(r"[a-z]+", conditions))


def linted(versions: Iterable[Version], folder: Path) -> tuple[list[Version], str]:
    """The versions of modules, without the imports that `make new` drops, and what the linter has against them."""
    files = {}
    for number, version in enumerate(version for version in versions if version.path.endswith(".py")):
        path = folder / str(number) / version.path
        path.parent.mkdir(parents=True)
        path.write_text(version.text)
        files[path] = version
    ruff, options = Path(sys.executable).with_name("ruff"), "--no-cache --isolated --quiet --output-format concise"
    command = [str(ruff), "check", "--fix", "--select", "F", "--target-version", "py313", *options.split(), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return [replace(version, text=path.read_text()) for path, version in files.items()], run.stdout + run.stderr


def left_out(uses: Iterable[Use], there: Mapping[str, Selections]) -> set[str]:
    """Which uses are of what a selection has not, with the smallest such selection."""
    without: dict[tuple[str, str], set[Selection]] = defaultdict(set)
    for use in uses:
        without[use.version.path, use.name] |= use.version.selections - there.get(use.name, frozenset())
    smallest = {
        use: min(selections, key=lambda selection: (len(selection), sorted(selection)))
        for use, selections in without.items()
        if selections
    }
    return {
        f"{path}: {name} is not there with {' '.join(sorted(selection)) or 'the core'}"
        for (path, name), selection in smallest.items()
    }


def united(uses: Iterable[Use]) -> dict[str, Selections]:
    """Each name, and the selections in which any version has it."""
    there: dict[str, Selections] = defaultdict(frozenset)
    for use in uses:
        there[use.name] |= use.version.selections
    return there


# ---------------------------------------------------------------- modules


@dataclass(frozen=True)
class Module:
    """A version of a module: what it has and what it needs, as `package.module.name`."""

    version: Version
    tree: ast.Module

    @property
    def dotted(self) -> str:
        path = re.sub("^(functions|shared)/", "", self.version.path).removesuffix(".py").removesuffix("/__init__")
        return path.replace("/", ".")

    def packages(self) -> Iterator[str]:
        """Itself, and those around it."""
        names = self.dotted.split(".")
        return (".".join(names[: count + 1]) for count in range(len(names)))

    def has(self) -> Iterator[Use]:
        names = (f"{self.dotted}.{name}" for name in _bound(self.tree.body))
        return (Use(self.version, name) for name in (*self.packages(), *names))

    def needs(self, known: set[str]) -> Iterator[Use]:
        """What it imports, the attributes of the modules that it has by a name, and modules that a string names."""
        aliases: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                aliases |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
                yield from (Use(self.version, f"{node.module}.{each.name}") for each in node.names)
            elif isinstance(node, ast.Import):
                aliases |= {each.asname: each.name for each in node.names if each.asname}
                yield from (Use(self.version, each.name) for each in node.names)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                if aliases[node.value.id] in known and not node.attr.startswith("__"):
                    yield Use(self.version, f"{aliases[node.value.id]}.{node.attr}")
            elif isinstance(node, ast.Constant) and "." in str(node.value) and node.value in known:
                yield Use(self.version, str(node.value))


def _bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names that statements bind, in functions and classes not looked at."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (each.asname or each.name.split(".")[0] for each in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        yield from _bound(ast.iter_child_nodes(node))


def imports_left_out(versions: Iterable[Version]) -> set[str]:
    modules = [Module(version, ast.parse(version.text)) for version in versions]
    there = united(use for module in modules for use in module.has())
    known = {name for module in modules for name in module.packages()}
    ours = {name for name in known if "." not in name} | {"benchmarks", "new_project"}
    uses = (use for module in modules for use in module.needs(known) if use.name.split(".")[0] in ours)
    return left_out(uses, there)


# ---------------------------------------------------------------- paths and templates


def paths_left_out(versions: Iterable[Version], files: Iterable[str]) -> set[str]:
    """A path in any text, a link of a document, the name of a sample event."""
    versions, named = list(versions), {path for path in files if "/" in path}
    samples = {path.removeprefix("events/").removesuffix(".json"): path for path in named if path.startswith("events/")}

    def uses() -> Iterator[Use]:
        for version in versions:
            folder = posixpath.dirname(version.path)
            for word in set(re.findall(r"[\w.@-]+(?:/[\w.@-]+)+", version.text)):
                path = word.rstrip(".")
                linked = posixpath.normpath(posixpath.join(folder, path)) if version.path.endswith(".md") else path
                found = {path, linked, samples.get(path, path)} & named
                yield from (Use(version, each) for each in found)

    return left_out(uses(), united(Use(version, version.path) for version in versions))


_TEMPLATES = ("template.yaml", "monitoring.yaml")
_DEFINITION = re.compile(r"^  (\w+):", re.MULTILINE)
_REFERENCE = re.compile(
    r"!(?:Ref|Condition) (\w+)|!GetAtt (\w+)\.|!If \[(\w+),|\$\{(\w+)[.}]|(?:Condition|DependsOn): (\w+)"
)


def references_left_out(versions: Iterable[Version]) -> set[str]:
    """Parameters, conditions and resources that a template refers to. What SAM adds to it has no definition."""
    found = set()
    for template in _TEMPLATES:
        texts = [version for version in versions if version.path == template]
        there = united(Use(version, name) for version in texts for name in _DEFINITION.findall(version.text))
        uses = {Use(version, name) for version in texts for names in _REFERENCE.findall(version.text) for name in names}
        found |= left_out((use for use in uses if use.name in there), there)
    return found


# ---------------------------------------------------------------- this project


@pytest.fixture(scope="module")
def versions() -> list[Version]:
    return versions_of(FILES_HERE)


def test_every_name_is_imported_and_there(versions: list[Version], tmp_path: Path) -> None:
    """In the module that uses it, and in the one that it is imported from."""
    modules, complaints = linted(versions, tmp_path)
    assert complaints == ""
    assert imports_left_out(modules) == set()


def test_every_path_is_there(versions: list[Version]) -> None:
    """A document, a test or a comment that names a file is left out with it."""
    assert paths_left_out(versions, FILES_HERE) == set()


def test_every_reference_of_a_template_is_there(versions: list[Version]) -> None:
    """SAM would refuse the template."""
    assert references_left_out(versions) == set()


# ---------------------------------------------------------------- what is found

OWNER = {"shared/onecharge/orders/cancellations.py": "LIMIT = 1\n"}
MARKED = {"shared/onecharge/a.py": "A = 1\n# optional: refunds, due\nB = 2\n# end optional\n"}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (OWNER | {"ops/b.py": "from onecharge.orders.cancellations import LIMIT\n\nprint(LIMIT)\n"}, "the core"),
        (OWNER | {"ops/b.py": "import onecharge.orders.cancellations as c\n\nprint(c.LIMIT)\n"}, "the core"),
        (OWNER | {"ops/b.py": "from onecharge.orders.cancellations import LIMIT\n"}, ""),
        (
            OWNER | {"functions/payment_questions/cancel.py": "from onecharge.orders import cancellations as c\nc.MAX"},
            "cancel",
        ),
        (
            OWNER | {"functions/orders_api/client_secret.py": "print('onecharge.orders.cancellations')"},
            "authentication",
        ),
        (MARKED | {"ops/b.py": "from onecharge.a import A\n\nprint(A)\n"}, ""),
        (MARKED | {"ops/refunds.py": "from onecharge.a import B\n\nprint(B)\n"}, "refunds"),
        (MARKED | {"ops/refunds.py": "import onecharge.a as a\n# optional: due\nprint(a.B)\n# end optional\n"}, ""),
        ({"ops/b.py": "import ops.refunds\n", "ops/refunds.py": ""}, ""),
        ({"ops/b.py": "import benchmarks.c as c\n\nprint(c)\n", "benchmarks/c.py": ""}, "the core"),
    ],
)
def test_an_import_of_what_is_left_out_is_found(files: dict[str, str], found: str, tmp_path: Path) -> None:
    """With the smallest selection that has it; an import that nobody uses is dropped."""
    modules, complaints = linted(versions_of(files), tmp_path)
    assert complaints == ""
    selections = {each.rpartition(" is not there with ")[2] for each in imports_left_out(modules)}
    assert selections == ({found} if found else set())


def test_a_name_that_is_bound_in_another_part_is_found(tmp_path: Path) -> None:
    """It is undefined as soon as only one of the two is chosen."""
    text = "# optional: due\nimport os\n\n# end optional\nprint(os.name)  # optional: refunds\n"
    assert "F821 Undefined name `os`" in linted(versions_of({"ops/b.py": text}), tmp_path)[1]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/a.md", "[due](guides/due-payments.md)"),
        ("ops/b.py", "# See docs/guides/due-payments.md."),
        ("tests/b.py", "sample('place_due_orders/schedule')"),
    ],
)
def test_a_path_of_what_is_left_out_is_found(path: str, text: str) -> None:
    """But not if the line is left out with it."""
    files = {"docs/guides/due-payments.md": "", "events/place_due_orders/schedule.json": "{}"}
    [found] = paths_left_out(versions_of(files | {path: text}), files)
    assert found.startswith(f"{path}: ")
    assert found.endswith(" is not there with the core")
    mark = "<!-- optional: due -->" if path.endswith(".md") else "# optional: due"
    assert paths_left_out(versions_of(files | {path: f"{text}  {mark}\n"}), files) == set()


@pytest.mark.parametrize(
    "reference", ["!Ref Due", "!GetAtt Due.Arn", "!If [Due, 1, 2]", '!Sub "a${Due}"', "Condition: Due"]
)
def test_a_reference_to_what_is_left_out_is_found(reference: str) -> None:
    """What SAM adds to the template is not known here, and passes."""
    text = (
        f"Resources:\n  # optional: due\n  Due:\n    A: 1\n  # end optional\n  B: {reference}\n  C: !Ref DueVersion\n"
    )
    assert references_left_out(versions_of({"template.yaml": text})) == {
        "template.yaml: Due is not there with the core"
    }
