"""Functions of the product, replaced in every module that calls them, while one world runs."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import Mock, patch

Function = Callable[..., Any]

_PROOF = ("lab", "tests")
"""Replacements call the function that they replace: in their own modules it stays as it is."""


@contextmanager
def replaced(by: Mapping[Function, Function]) -> Iterator[list[Mock]]:
    """Replace each function by a mock that calls its replacement; yields the mocks."""
    mocks = {function: Mock(side_effect=replacement) for function, replacement in by.items()}
    modules = [each for name, each in sys.modules.items() if name.partition(".")[0] not in _PROOF] if by else []
    with ExitStack() as undo:
        for function, mock in mocks.items():
            for module in modules:
                if vars(module).get(function.__name__) is function:
                    undo.enter_context(patch.object(module, function.__name__, mock))
        yield [*mocks.values()]
