"""docs/openapi.json against the schema of OpenAPI 3.1, by a validator that has an environment of its own."""

import subprocess

from tests.support import openapi
from tests.support.harness import PROJECT


def test_the_document_is_valid() -> None:
    """By the schema of OpenAPI 3.1."""
    validator = PROJECT / ".venv/opt/checks/bin/openapi-spec-validator"
    subprocess.run([validator, "--schema", "3.1", openapi.DOCUMENT], check=True, timeout=120)
