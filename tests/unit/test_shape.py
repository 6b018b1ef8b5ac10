"""`make shape` counts what it says: on a project of five files."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.shape import Checkout, measure

FILES = {
    "functions/orders_api/app.py": '"""Docs."""\n\nfrom onecharge.store import Store\n\ndef handler():\n    pass\n',
    "functions/charge_order/app.py": "from onecharge import gateway  # A comment counts with its line.\n",
    "shared/onecharge/store.py": 'class Store:\n    def read(self):\n        """Docs."""\n\n        return 1\n',
    "shared/onecharge/gateway.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import onecharge.unused\n",
    "shared/onecharge/unused.py": "A = 1\n# A comment.\nB = '''x\ny'''\n",
    "tests/unit/test_store.py": "assert True\n",
    "testing/fake.py": "look_up = 'told'\n",
    "README.md": "# Told\n\n## Reading order\n\n"
    "1. [app](functions/orders_api/app.py)\n2. [store](shared/onecharge/store.py)\n\n"
    "## Else\n\n[gateway](shared/onecharge/gateway.py) stands here: a stand-in for good looks.\n",
}


@pytest.fixture
def figures(tmp_path: Path) -> dict[str, str]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    return measure(Checkout(tmp_path), ["unit"])


def test_the_way_to_stripe_is_what_is_imported_when_it_runs(figures: dict[str, str]) -> None:
    """Both entries and what they import; nothing that is imported for types alone."""
    assert figures["from HTTP to Stripe, code lines with imports"] == "4 files, 10"


def test_a_code_line_is_neither_blank_nor_comment_nor_docstring(figures: dict[str, str]) -> None:
    assert figures["product (functions, shared), code lines"] == "5 files, 13"
    assert figures["tests, code lines"] == "1 files, 1"
    assert figures["support (local, testing, benchmarks), code lines"] == "1 files, 1"


def test_functions_are_measured_with_their_docstrings(figures: dict[str, str]) -> None:
    assert figures["functions and methods of the product"] == "2"
    assert figures["  lines: median / p90 / longest"] == "2 / 4 / 4"


def test_the_reading_order_ends_with_its_section(figures: dict[str, str]) -> None:
    assert figures["README's reading order, code lines"] == "2 files, 6"


def test_words_are_counted_in_names_and_prose(figures: dict[str, str]) -> None:
    """`look_up` and `stand-in` are the field's own words."""
    counted = {name: count for name, count in figures.items() if name.startswith("  ") and count != "0"}
    del counted["  lines: median / p90 / longest"]
    assert counted == {"  told, tell": "2", "  stand, stood": "1", "  for good": "1", "  look (no object)": "1"}


def test_a_target_that_is_missing_is_not_timed(figures: dict[str, str]) -> None:
    assert figures["make unit, seconds"] == "no such target"
