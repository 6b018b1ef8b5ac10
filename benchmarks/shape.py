"""`make shape`: the size of the project, and of what a reader has to know of it, for any number of checkouts.

    python benchmarks/shape.py . ../an-earlier-checkout --time unit --time test

Only files that git knows are counted. A code line holds code: no blank line, no comment, no docstring. From HTTP to
Stripe means every module of the project that the API function or the charge function imports, directly or not.
`--time` runs `make TARGET` in each checkout and adds its seconds; the targets install what they need.
"""

import argparse
import ast
import io
import re
import statistics
import subprocess
import sys
import time
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PRODUCT = ("functions/", "shared/")
SUPPORT = ("local/", "testing/", "tests/", "benchmarks/")
"""A test is a test_*.py or a conftest.py; everything else in these folders supports tests, demo and benchmarks."""

ENTRIES = (
    ("functions/orders_api/app.py", "functions/place_order/app.py"),
    ("functions/charge_order/app.py",),
)
"""The two functions on the way, each under the names that it has had."""

WORDS = {
    "told, tell": r"told|tells?|telling",
    "stand, stood": r"(?:stands?|stood)(?![-_]in)",
    "comes again": r"(?:comes?|came) again",
    "for good": r"for good",
    "what became of": r"what (?:became|becomes) of",
    "bring, brought": r"brings?|brought|bringing",
    "news": r"news",
    "look (no object)": r"looks?(?![\s_]+(?:up|it|for|at|like|them|everything))",
    "settle": r"settle[sd]?|settling|settler",
    "quiet": r"quiet|quietly",
}
"""Words that AWS's and Stripe's documentation have better ones for. Parts of names count, too: `wait_until_quiet`."""

_NOT_PROSE = ("docs/glossary.md", "docs/vocabulary.md", "benchmarks/shape.py")
_NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


@dataclass(frozen=True)
class Module:
    """One Python file."""

    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def code_lines(self) -> int:
        docstrings = {line for first, last in _docstrings(self.tree) for line in range(first, last + 1)}
        tokens = tokenize.generate_tokens(io.StringIO(self.source).readline)
        lines = {
            line for token in tokens if token.type not in _NO_CODE for line in range(token.start[0], token.end[0] + 1)
        }
        return len(lines - docstrings)

    @property
    def function_lengths(self) -> list[int]:
        """From `def` to the last line, with the docstring."""
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        return [
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in ast.walk(self.tree)
            if isinstance(node, functions)
        ]

    @property
    def name(self) -> str:
        """As it is imported: `onecharge.payments.worker`."""
        parts = Path(self.path).with_suffix("").parts[1:]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def package(self) -> str:
        return self.name if self.path.endswith("__init__.py") else self.name.rpartition(".")[0]

    def imports(self) -> Iterator[str]:
        """Everything that is imported when it runs, each name also as the module that it may be."""
        for node in _without_type_checking(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.package.split(".")
        return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """The lines of every string that is a statement: the docstrings of modules, classes, functions and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.end_lineno or node.lineno


def _without_type_checking(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from _without_type_checking(node)


class Checkout:
    """The tracked files of one version of the project."""

    def __init__(self, path: Path) -> None:
        self.path = path
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=path, capture_output=True, text=True, check=True)  # noqa: S607
        self._files = [name for name in listed.stdout.split("\0") if name and (path / name).is_file()]
        self.modules = {
            name: Module(name, (path / name).read_text(encoding="utf-8"))
            for name in self._files
            if name.endswith(".py")
        }

    @property
    def product(self) -> list[Module]:
        return [module for path, module in self.modules.items() if path.startswith(PRODUCT)]

    @property
    def tests(self) -> list[Module]:
        return [module for path, module in self.modules.items() if _is_test(path)]

    @property
    def support(self) -> list[Module]:
        return [module for path, module in self.modules.items() if path.startswith(SUPPORT) and not _is_test(path)]

    def way_to_stripe(self) -> list[Module]:
        """Every module that is imported on the way, from the two entries to the Stripe gateway."""
        by_name = {module.name: module for module in self.product}
        found = dict[str, Module]()
        waiting = [self.modules[_first_of(names, self.modules)] for names in ENTRIES]
        while waiting:
            module = waiting.pop()
            if module.path not in found:
                found[module.path] = module
                waiting += [by_name[name] for name in _with_packages(module.imports()) if name in by_name]
        return [module for module in found.values() if module.code_lines]

    def reading_order(self) -> list[Module]:
        """The files of functions/ and shared/ that README.md gives as its reading order; none if it gives none."""
        readme = (self.path / "README.md").read_text(encoding="utf-8")
        start = re.search(r"^#+ .*\bread(ing)?\b.*\border\b.*$|in this order:", readme, re.MULTILINE | re.IGNORECASE)
        if not start:
            return []
        rest = readme[start.end() :]
        # A sentence ends with its full stop; a section with the next heading.
        end = re.search(r"^#" if start[0].startswith("#") else r"\.$", rest, re.MULTILINE)
        links = re.findall(r"\]\(((?:functions|shared)/[^)#]+\.py)", rest[: end.start()] if end else rest)
        return [self.modules[path] for path in dict.fromkeys(links)]

    def occurrences(self) -> dict[str, int]:
        """How often each of the ten words is in Python, Markdown and YAML files."""
        suffixes = (".py", ".md", ".yaml", ".yml")
        names = (name for name in self._files if name.endswith(suffixes) and name not in _NOT_PROSE)
        prose = "\n".join((self.path / name).read_text(encoding="utf-8") for name in names)
        return {
            word: len(re.findall(rf"(?<![a-z])(?:{pattern})(?![a-z])", prose, re.IGNORECASE))
            for word, pattern in WORDS.items()
        }

    def seconds(self, target: str) -> str:
        """How long `make TARGET` takes, and whether it failed."""
        if subprocess.run(["make", "-n", target], cwd=self.path, capture_output=True, check=False).returncode:  # noqa: S603, S607
            return "no such target"
        began = time.monotonic()
        done = subprocess.run(["make", target], cwd=self.path, stdout=sys.stderr, check=False)  # noqa: S603, S607
        return f"{time.monotonic() - began:.0f}" + (" (failed)" if done.returncode else "")


def _is_test(path: str) -> bool:
    name = Path(path).name
    return path.startswith("tests/") and (name.startswith("test_") or name == "conftest.py")


def _first_of(names: Iterable[str], modules: dict[str, Module]) -> str:
    return next(name for name in names if name in modules)


def _with_packages(names: Iterable[str]) -> set[str]:
    """Importing `a.b.c` runs `a` and `a.b` first."""
    return {".".join(name.split(".")[:length]) for name in names for length in range(1, name.count(".") + 2)}


def _files_and_lines(modules: Sequence[Module]) -> str:
    return f"{len(modules)} files, {sum(module.code_lines for module in modules):,}" if modules else "none"


def measure(checkout: Checkout, targets: Sequence[str]) -> dict[str, str]:
    """Each figure of a checkout by its name."""
    lengths = sorted(length for module in checkout.product for length in module.function_lengths)
    words = checkout.occurrences()
    return {
        "from HTTP to Stripe, code lines with imports": _files_and_lines(checkout.way_to_stripe()),
        "README's reading order, code lines": _files_and_lines(checkout.reading_order()),
        "product (functions, shared), code lines": _files_and_lines(checkout.product),
        "tests, code lines": _files_and_lines(checkout.tests),
        "support (local, testing, benchmarks), code lines": _files_and_lines(checkout.support),
        "functions and methods of the product": f"{len(lengths):,}",
        "  lines: median / p90 / longest": (
            f"{statistics.median_low(lengths)} / {lengths[len(lengths) * 9 // 10]} / {lengths[-1]}"
        ),
        "ten words": f"{sum(words.values()):,}",
        **{f"  {word}": str(count) for word, count in words.items()},
        **{f"make {target}, seconds": checkout.seconds(target) for target in targets},
    }


def as_table(columns: dict[str, dict[str, str]]) -> str:
    """In Markdown, a column for each checkout."""
    rows = [["", *columns], *([name, *(c[name] for c in columns.values())] for name in next(iter(columns.values())))]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(prog="make shape", description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path()], help="folders of the project")
    parser.add_argument("--time", action="append", default=[], metavar="TARGET", help="run `make TARGET` and time it")
    options = parser.parse_args()
    columns = {path.resolve().name: measure(Checkout(path), options.time) for path in options.checkouts}
    sys.stdout.write(as_table(columns))


if __name__ == "__main__":
    main()
