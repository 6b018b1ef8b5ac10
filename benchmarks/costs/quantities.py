"""What one order uses: what was measured here, and what AWS adds by itself."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

MEASURED = Path(__file__).with_name("measured.json")
"""Written by `python -m benchmarks.costs.measure`."""


@dataclass(frozen=True)
class PerInvocation:
    """The median of the invocations of one size."""

    cpu_ms: float
    """Of the function's process, on this machine."""
    wall_ms: float
    """With Stripe at `stripe_seconds`, and AWS on this machine."""
    log_bytes: int


@dataclass(frozen=True)
class Measured:
    """Everything that was measured."""

    machine: str
    stripe_seconds: float
    functions: Mapping[str, Mapping[str, PerInvocation]]
    """By function, then by the number of records of the batch."""
    units: Mapping[str, Mapping[str, float]]
    """Capacity units of DynamoDB for one order, by the orders of its batch, which share some; then by kind, table and
    index: `write OrdersTable/by_customer`; and `requests`."""
    naive_units: Mapping[str, Mapping[str, float]]
    """The same of the naive loop."""

    def writes(self, batch: int) -> dict[str, float]:
        """Write units of one order of such a batch, by table and index."""
        units = self.units[str(batch)]
        return {name.removeprefix("write "): each for name, each in units.items() if name.startswith("write ")}

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def of_json(cls, text: str) -> Self:
        fields: dict[str, Any] = json.loads(text)
        fields["functions"] = {
            name: {size: PerInvocation(**each) for size, each in sizes.items()}
            for name, sizes in fields["functions"].items()
        }
        return cls(**fields)
