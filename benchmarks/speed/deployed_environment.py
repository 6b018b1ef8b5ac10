"""The environment variables that template.yaml gives a function, with what a deployment would fill in.

The template is one of any release: the former one is measured with its own. Only what variables are made of is
evaluated: references, mappings, conditions, joins.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testing.harness import load_intrinsics

_NO_VALUE = "AWS::NoValue"


class Template:
    """A template.yaml, and the values of its parameters and resources."""

    def __init__(self, path: Path, given: Mapping[str, str]) -> None:
        self.body = load_intrinsics(path)
        self._given = {"AWS::StackName": "bench", "AWS::Region": "us-east-1", _NO_VALUE: _NO_VALUE, **given}

    def variables_of(self, logical_id: str) -> dict[str, str]:
        """All variables of a function: the template's global ones, and its own."""
        globals_ = self.body["Globals"]["Function"]["Environment"]["Variables"]
        own = self.body["Resources"][logical_id]["Properties"]["Environment"]["Variables"]
        values = {name: self.value(node) for name, node in {**globals_, **own}.items()}
        return {name: value for name, value in values.items() if value != _NO_VALUE}

    def value(self, node: Any) -> str:
        """What CloudFormation makes of a value."""
        if not isinstance(node, dict):
            return str(node)
        [(function, arguments)] = node.items()
        match function:
            case "Ref":
                return self._referred(arguments)
            case "GetAtt":
                return self._referred(arguments.partition(".")[0])
            case "FindInMap":
                name, first, second = (self.value(each) for each in arguments)
                return str(self.body["Mappings"][name][first][second])
            case "If":
                condition, yes, no = arguments
                return self.value(yes if self._holds(self.body["Conditions"][condition]) else no)
            case "Join":
                return self.value(arguments[0]).join(self.value(each) for each in arguments[1])
            case "Split":
                raise ValueError("a list: only within Select")
            case "Select":
                index, of = arguments
                separator, text = of["Split"]
                return self.value(text).split(separator)[int(index)]
            case "Sub":
                return self._substituted(arguments)
        raise ValueError(f"{function} is not evaluated here")

    def _referred(self, name: str) -> str:
        if name in self._given:
            return self._given[name]
        return str(self.body["Parameters"].get(name, {}).get("Default", name))

    def _substituted(self, arguments: Any) -> str:
        text, own = arguments if isinstance(arguments, list) else (arguments, {})
        for name, node in own.items():
            text = text.replace(f"${{{name}}}", self.value(node))
        while "${" in text:
            before, _, rest = text.partition("${")
            name, _, after = rest.partition("}")
            text = before + self._referred(name.partition(".")[0]) + after
        return str(text)

    def _holds(self, condition: Any) -> bool:
        [(function, arguments)] = condition.items()
        match function:
            case "Condition":
                return self._holds(self.body["Conditions"][arguments])
            case "Equals":
                return self.value(arguments[0]) == self.value(arguments[1])
            case "Not":
                return not self._holds(arguments[0])
            case "And":
                return all(self._holds(each) for each in arguments)
            case "Or":
                return any(self._holds(each) for each in arguments)
        raise ValueError(f"{function} is no condition")
