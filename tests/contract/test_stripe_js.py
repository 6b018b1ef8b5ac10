"""The page, and the stand-in's stub of Stripe.js, have the types that Stripe publishes (@stripe/stripe-js).

A call, an option or a result that Stripe.js does not have does not compile. JSDoc gives the types: nothing is built.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from testing.harness import PROJECT
from tests.contract.conftest import TOOLS

TYPES = TOOLS / "stripe-types/node_modules"
WEB, STUB = PROJECT / "web", PROJECT / "local/stripe_standin/browser"


@pytest.fixture(scope="module")
def compiler() -> Path:
    if not shutil.which("node") or not (TYPES / "@stripe/stripe-js").exists():
        reason = "Stripe's types need npm, which this machine lacks, or `make test` was not run"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return TYPES / "typescript/bin/tsc"


def compile_errors(compiler: Path, folder: Path, *files: Path, strict: bool) -> list[str]:
    """The errors of `tsc --checkJs --noEmit`, one line each."""
    options = {
        **{"noEmit": True, "allowJs": True, "checkJs": True, "strict": strict, "skipLibCheck": True, "types": []},
        **{"target": "es2023", "lib": ["es2023", "dom", "dom.iterable"]},
        **{"module": "esnext", "moduleResolution": "bundler"},
        "paths": {"@stripe/stripe-js": [str(TYPES / "@stripe/stripe-js")]},
    }
    tsconfig = folder / "tsconfig.json"
    tsconfig.write_text(json.dumps({"compilerOptions": options, "files": [str(each) for each in files]}))
    command = ["node", str(compiler), "--pretty", "false", "-p", str(tsconfig)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_page_compiles(compiler: Path, tmp_path: Path) -> None:
    """Every module, with Stripe's objects typed as Stripe publishes them."""
    assert compile_errors(compiler, tmp_path, *sorted(WEB.glob("*.js")), strict=False) == []


def test_the_stub_compiles_strictly(compiler: Path, tmp_path: Path) -> None:
    assert compile_errors(compiler, tmp_path, *sorted(STUB.glob("*.js")), strict=True) == []


def test_what_stripe_does_not_have_does_not_compile(compiler: Path, tmp_path: Path) -> None:
    """One call, option or result of card.js after the other."""
    changes = [
        ("stripe.createPaymentMethod({ elements })", "stripe.createPaymentMethods({ elements })"),
        ("stripe.createPaymentMethod({ elements })", "stripe.createPaymentMethod({ element: elements })"),
        ("return paymentMethod.id", "return paymentMethod.identifier"),
        ("stripe.handleNextAction({ clientSecret })", "stripe.handleNextAction({ secret: clientSecret })"),
        ('paymentMethodCreation: "manual"', 'paymentMethodCreation: "by hand"'),
        ('mode: "payment"', 'mode: "pay"'),
        ("amount,\n", "amount: currency,\n"),
        ("elements.update({ amount })", "elements.update({ total: amount })"),
        ('card.on("loaderror"', 'card.on("broken"'),
        ('applePay: "never"', "applePay: false"),
    ]
    source = (WEB / "card.js").read_text()
    for number, (right, wrong) in enumerate(changes):
        assert right in source
        (tmp_path / f"card{number}.js").write_text(source.replace(right, wrong))
    errors = compile_errors(compiler, tmp_path, *tmp_path.glob("*.js"), strict=False)
    wrong_files = {error.partition("(")[0] for error in errors if error.startswith("card")}
    assert wrong_files == {f"card{number}.js" for number in range(len(changes))}
