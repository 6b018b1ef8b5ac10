"""`make new`: makes a shop of your own: the application, its tests, and the local stack as wheels in vendor/.

It needs nothing but Python, so that it works in a fresh clone.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

from local.project_files import PROJECT, files_of_the_project
from local.wheels import build_all

COPIED = """
    LICENSE NOTICE Makefile .ci/* .github/workflows/check.yml .gitignore .python-version pyproject.toml samconfig.toml
    template.yaml monitoring.yaml conftest.py functions/* shared/* events/* layers/* ops/* web/*
    docs/protocol.md docs/runbook.md docs/guides/*
    tests/support/harness.py tests/support/aws_in_process.py tests/support/stacks.py
    tests/support/deployed_shop.py tests/support/orders_api.py tests/support/fixed_prices.py tests/support/openapi.py
    tests/shop/builders.py tests/shop/dynamodb.py tests/e2e/test_orders.py tests/e2e/conftest.py
    tests/unit/payments/test_charge_rules.py tests/unit/payments/test_sync_rules.py
    tests/unit/orders_api/test_place_order.py tests/unit/orders_api/test_change_order.py
    tests/unit/orders_api/test_show_orders.py tests/unit/orders_api/test_fingerprints.py
    tests/unit/orders_api/conftest.py tests/unit/test_refund_rules.py tests/unit/test_update_order.py
    tests/unit/test_template.py tests/unit/test_environment.py tests/unit/test_docs.py
""".split()
NOT_COPIED = """
    layers/requirements/bench* layers/requirements/stripe-types/* layers/requirements/browser/*
    layers/requirements/checks* layers/requirements/sbom* docs/guides/see-it-break.md
""".split()
"""Only a reference needs them. Of its tests a copy has those of what its owner changes: the decisions, the API, an
order's path, the template."""

README = PROJECT / "local/new_readme.txt"


def is_copied(path: str) -> bool:
    return any(fnmatch(path, each) for each in COPIED) and not any(fnmatch(path, each) for each in NOT_COPIED)


def refusal(folder: Path, name: str) -> str:
    """Returns why the project cannot be made there under this name; empty if it can."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or not 2 <= len(name) <= 20:
        return f"NAME={name} has to be 2 to 20 letters a-z, digits and hyphens, as NAME=corner-shop"
    if folder.is_relative_to(PROJECT):
        return f"DIR={folder} is inside this project: name a folder beside it, as DIR=../shop"
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        return f"DIR={folder} exists and is not an empty folder"
    return ""


def in_the_copy(path: str, text: str, name: str) -> str:
    """Returns a file's text as the copy has it: the stacks and the page have its name, and CI runs no demo."""
    match path:
        case "samconfig.toml":
            return text.replace('stack_name = "shop', f'stack_name = "{name}')
        case "web/words.js":
            return text.replace('SHOP = "Onecharge"', f'SHOP = "{name.replace("-", " ").capitalize()}"')
        case ".ci/run":
            return text.replace("make demo\n", "")
        case _:
            return text


def make_project(folder: Path, name: str) -> None:
    """Writes the files of the new project."""
    for path in filter(is_copied, files_of_the_project()):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / path, target)
        if b"\0" not in (content := target.read_bytes()):
            target.write_text(in_the_copy(path, content.decode(), name))
    (folder / "README.md").write_text(README.read_text().replace("NAME", name))
    wheels = build_all(folder / "vendor")
    pins = [f"./vendor/{each.name} --hash=sha256:{hashlib.sha256(each.read_bytes()).hexdigest()}" for each in wheels]
    (folder / "vendor/requirements.txt").write_text("\n".join(pins) + "\n")


def commit(folder: Path) -> str:
    """Makes the folder a git repository with a first commit; returns what is left to do, empty if nothing."""
    git = ["git", "-C", str(folder), "-c", "init.defaultBranch=main"]
    try:
        for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "A shop of its own"]):
            subprocess.run([*git, *command], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        return "git is missing, so it is no repository yet"
    except subprocess.CalledProcessError as error:
        then = f"git -C {folder} commit -m 'A shop of its own'"
        return f"nothing is committed yet. git says: {error.stderr.strip()}\nThen: {then}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make new", description=__doc__)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--name", required=True)
    options = parser.parse_args()
    folder = Path(options.dir).resolve()
    if reason := refusal(folder, options.name):
        print(f"{reason}. Nothing was written.", file=sys.stderr)
        return 2
    make_project(folder, options.name)
    print(f"{options.name} is in {folder}: try `make local` there. README.md says where to change it.")
    if left := commit(folder):
        print(f"But {left}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
