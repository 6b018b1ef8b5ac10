"""Functions of the product, replaced in every module that calls them, while one world runs."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

Function = Callable[..., Any]

_PROOF = ("lab", "tests")
"""Replacements call the function that they replace: in their own modules it stays as it is."""


@contextmanager
def replaced(by: Mapping[Function, Function]) -> Iterator[Counter[str]]:
    """Replace each function; yields how often each replacement was called, by the function's name."""
    calls: Counter[str] = Counter()
    with ExitStack() as undo:
        modules = [each for name, each in sys.modules.items() if name.partition(".")[0] not in _PROOF] if by else []
        for function, replacement in by.items():
            counted = _counted(function.__name__, replacement, calls)
            for module in modules:
                if vars(module).get(function.__name__) is function:
                    undo.enter_context(patch.object(module, function.__name__, counted))
        yield calls


def _counted(name: str, replacement: Function, calls: Counter[str]) -> Function:
    @wraps(replacement)
    def called(*given: Any, **named: Any) -> Any:
        calls[name] += 1
        return replacement(*given, **named)

    return called
