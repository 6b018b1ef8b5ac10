"""template.yaml gives each function the environment variables that it reads."""

import re
from importlib import import_module
from inspect import getattr_static, getsource
from typing import Any

import pytest

from onecharge.runtime.parts import Parts, part
from tests.support.harness import FUNCTIONS, load_template, number_of, parts_of


class Environment(dict[str, str]):
    """Environment variables that remember which of them were read."""

    def __init__(self, variables: dict[str, Any]) -> None:
        super().__init__({name: number_of(name) or value for name, value in variables.items()})
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.read.add(name)
        return super().__getitem__(name)


def parts_in_use(kind: type[Parts]) -> tuple[set[str], set[str]]:
    """The parts that the handler uses, directly or for another one, and the variables that methods read for it."""
    in_use, methods, variables = set[str](), set[str](), set[str]()
    handler = import_module(kind.__module__).handler.__wrapped__
    names = re.findall(r"\bparts\.(\w+)", getsource(handler))
    while names:
        name = names.pop()
        found: Any = getattr_static(kind, name, None)
        if found is None or name in in_use | methods:
            continue
        (in_use if isinstance(found, part) else methods).add(name)
        source = ""
        for each in (vars(one)[name] for one in kind.__mro__ if name in vars(one)):
            source += getsource(each.func if isinstance(each, part) else each)
            if "super()." not in source:
                break
        variables |= set() if isinstance(found, part) else set(re.findall(r'environment\["(\w+)"\]', source))
        names += re.findall(r"\bself\.(\w+)", source)
    return in_use, variables


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_has_the_variables_that_it_reads(aws: None, function: str) -> None:
    """No other variable is needed, and each is read: an unused one would be a needless dependency of the function."""
    resource = f"{function.title().replace('_', '')}Function"
    variables = load_template()["Resources"][resource]["Properties"]["Environment"]["Variables"]
    environment = Environment(variables)
    parts = parts_of(function)(environment)
    in_use, read_by_methods = parts_in_use(type(parts))
    for name in in_use:
        getattr(parts, name)
    assert environment.read | read_by_methods == {name for name in variables if not name.startswith("POWERTOOLS_")}
