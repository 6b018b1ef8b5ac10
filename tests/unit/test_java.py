"""DynamoDB Local is used only where a Java is recent enough."""

from pathlib import Path

import pytest

from testing.java import java_version


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("The operation could not be completed. Unable to locate a Java Runtime.", 0),
    ],
)
def test_the_version_of_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: int) -> None:
    """As each of them prints it, on standard error; Java 8 called itself 1.8."""
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java_version() == version


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java_version() == 0
