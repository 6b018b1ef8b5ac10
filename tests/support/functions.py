"""The functions of functions/, and their parts."""

from importlib import import_module
from typing import Any

from local.samples import logical_id_of
from onecharge.runtime.parts import Parts
from tests.support.harness import PROJECT

FUNCTIONS = sorted(path.parent.name for path in (PROJECT / "functions").glob("*/app.py"))


def parts_of(function: str) -> type[Parts]:
    """The class of a function's parts: ChargeOrderParts of `charge_order`."""
    name = logical_id_of(function).removesuffix("Function") + "Parts"
    kind: type[Parts] = getattr(import_module(f"{function}.app"), name)
    return kind


def handle(parts: Parts, event: Any, context: Any) -> Any:
    """The answer of the handler to which these parts belong; its metrics are flushed."""
    try:
        return import_module(type(parts).__module__).handler.__wrapped__(parts, event, context)
    finally:
        parts.counts.flush()
