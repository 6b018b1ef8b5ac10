"""Stripe's npm packages, and the TypeScript compiler that holds the stand-in against the types in them."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NODE_MODULES = Path(os.environ.get("STRIPE_TYPES", Path(__file__).parents[2] / ".venv/opt/stripe-types/node_modules"))
"""Where `npm install stripe @stripe/stripe-js typescript` has put them."""


def require_node() -> None:
    """Skip the test if node or the packages are missing; in CI, fail."""
    if not shutil.which("node") or not (NODE_MODULES / "stripe").exists():
        reason = "Stripe's types need npm, which this machine lacks, or `make test` was not run"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


class TypeScript:
    """The TypeScript compiler, with the types that Stripe publishes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def errors(self, *files: Path, types_of: str, **options: Any) -> list[str]:
        """The errors that it finds in the files, one line each; `types_of` is the path of a package's types."""
        compiler_options = {
            **{"noEmit": True, "strict": True, "skipLibCheck": True, "types": [], **options},
            "paths": {types_of.partition("/cjs/")[0]: [str(NODE_MODULES / types_of)]},
        }
        tsconfig = {"compilerOptions": compiler_options, "files": [str(each) for each in files]}
        (self.folder / "tsconfig.json").write_text(json.dumps(tsconfig))
        command = ["node", str(NODE_MODULES / "typescript/bin/tsc"), "--pretty", "false", "-p", str(self.folder)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.stdout.splitlines()

    def errors_of_scripts(self, *files: Path, strict: bool) -> list[str]:
        """The errors of the JSDoc types in these scripts of a browser, which use Stripe.js."""
        options = {"allowJs": True, "checkJs": True, "strict": strict, "target": "es2023"}
        modules = {"lib": ["es2023", "dom", "dom.iterable"], "module": "esnext", "moduleResolution": "bundler"}
        return self.errors(*files, types_of="@stripe/stripe-js", **options, **modules)
