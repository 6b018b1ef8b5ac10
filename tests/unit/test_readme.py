"""README.md shows the code as it is. Its commands, and those of the API's guide, work when they are pasted."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from local.issuer import running_issuer
from onecharge.orders.ids import order_id_of
from onecharge.payments.charge import charge
from tests.support.harness import PROJECT

README = (PROJECT / "README.md").read_text()
COMMANDS = README + (PROJECT / "docs/guides/api.md").read_text()
API_URL = "http://127.0.0.1:4566/_aws/execute-api/ab12/$default"
# Instead of curl: one line for each word that it was called with.
_STUBS = """
curl() { printf '%s\\n' "$@"; }
make() { echo "make $*"; }
"""


def block(containing: str) -> str:
    """The one block of shell commands that holds the text."""
    [found] = [each for each in re.findall(r"```sh\n(.*?)```", COMMANDS, re.DOTALL) if containing in each]
    return str(found)


@pytest.fixture
def private_key(tmp_path: Path) -> Iterator[Path]:
    with running_issuer(tmp_path) as issuer:
        yield issuer.key_file


def customer_of(words: list[str], private_key: Path) -> str:
    """The subject of the access token that curl was called with; its signature and audience are verified."""
    [token] = {word.removeprefix("Authorization: Bearer ") for word in words if word.startswith("Authorization:")}
    key = load_pem_private_key(private_key.read_bytes(), None)
    assert isinstance(key, RSAPrivateKey)
    return str(jwt.decode(token, key.public_key(), algorithms=["RS256"], audience="here")["sub"])


@pytest.fixture
def checkout(tmp_path: Path, private_key: Path) -> Path:
    """A folder with a hostile name, as `make install` and `make local` leave it."""
    folder = tmp_path / "my shop (Zoë's)"
    for path in (".venv/bin", ".venv/opt/sam/bin", ".local"):
        (folder / path).mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to(sys.executable)
    for path in (".venv/pyvenv.cfg", ".venv/lib", "local"):
        (folder / path).symlink_to(PROJECT / path)
    (folder / ".venv/opt/sam/bin/sam").write_text('#!/bin/sh\nprintf "%s\\n" sam "$@"\n')
    (folder / ".venv/opt/sam/bin/sam").chmod(0o755)
    addresses = {"api_url": API_URL, "jwt_issuer": "http://127.0.0.1:1", "jwt_audience": "here"}
    (folder / ".local/stack.json").write_text(json.dumps({**addresses, "jwt_key_file": str(private_key)}))
    return folder


def paste(commands: str, checkout: Path) -> list[str]:
    """Run them in a fresh shell, which has no variables, and stops at the first mistake."""
    done = subprocess.run(
        ["bash", "-euc", _STUBS + commands],
        cwd=checkout,
        env={"PATH": "/usr/bin:/bin", "STRIPE_SECRET_KEY": "sk_test_x"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_order_goes_to_the_stack_that_runs(checkout: Path, private_key: Path) -> None:
    """Its address is read from stack.json; the dollar in it is no variable. The token is of its issuer."""
    words = paste(block("my-first-order"), checkout)
    assert f"{API_URL}/orders" in words
    assert customer_of(words, private_key) == "cus_1"


def test_the_order_has_the_id_that_is_shown() -> None:
    """It derives from the customer and the key of the command."""
    commands = block("my-first-order")
    [customer_id] = re.findall(r"local.token (\w+)", commands)
    [key] = re.findall(r"Idempotency-Key: ([\w-]+)", commands)
    order_id = order_id_of(customer_id, key)
    assert f"# Location: /orders/{order_id}\n" in commands
    [shown] = re.findall(r'"order_id":"(\w+)…"', commands)
    assert order_id.startswith(shown)


def test_sam_local_finds_sam(checkout: Path) -> None:
    assert "sam" in paste(block("sam local invoke"), checkout)


def test_the_pictures_load_quickly() -> None:
    """The recording is animated, in at most 1.5 MB; the picture of the page has at most 200 kB."""
    recording, picture = (PROJECT / "docs" / name for name in ("console.webp", "page-3d-secure.png"))
    assert recording.read_bytes().count(b"ANMF") > 1
    assert recording.stat().st_size <= 1_500_000
    assert picture.stat().st_size <= 200_000


def test_readme_shows_the_function_that_charges() -> None:
    """The page of code is the code that runs."""
    assert f"```python\n{inspect.getsource(charge)}```" in README
