"""template.yaml gives each function the environment variables that it reads."""

from importlib import import_module
from typing import Any

import pytest

from testing.harness import PROJECT, load_template, number_of

FUNCTIONS = sorted(path.parent.name for path in (PROJECT / "functions").glob("*/app.py"))


class Environment(dict[str, str]):
    """Environment variables that remember which of them were read."""

    def __init__(self, variables: dict[str, Any]) -> None:
        super().__init__({name: number_of(name) or value for name, value in variables.items()})
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.read.add(name)
        return super().__getitem__(name)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_has_the_variables_that_it_reads(aws: None, function: str) -> None:
    """No other variable is needed, and each is read: an unused one would be a needless dependency of the function."""
    resource = f"{function.title().replace('_', '')}Function"
    variables = load_template()["Resources"][resource]["Properties"]["Environment"]["Variables"]
    environment = Environment(variables)
    import_module(f"{function}.app").Application(environment)
    assert environment.read == {name for name in variables if not name.startswith("POWERTOOLS_")}
