"""docs/openapi.json: what the code says, and valid by the schema of OpenAPI 3.1."""

import subprocess

from tests.support import openapi
from tests.support.harness import PROJECT


def test_the_committed_document_is_what_the_code_says() -> None:
    """After a change of a route, a model or a problem, `make openapi` shows in the diff what clients will see."""
    assert openapi.DOCUMENT.read_text() == openapi.text(), "run `make openapi`"


def test_the_document_is_valid() -> None:
    """By a validator that has an environment of its own."""
    validator = PROJECT / ".venv/opt/checks/bin/openapi-spec-validator"
    subprocess.run([validator, "--schema", "3.1", openapi.DOCUMENT], check=True, timeout=120)
