"""What a run of `make bench` has found: results.json."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.publish import as_lines

RESULTS = Path(__file__).with_name("results.json")

OURS, NAIVE, POWERTOOLS, ASYNC, DURABLE = "onecharge", "naive", "powertools", "powertools_async", "durable"
PEERS = (NAIVE, POWERTOOLS, ASYNC, DURABLE)
DESIGNS = (*PEERS, OURS)
TITLES: Mapping[str, str] = {
    NAIVE: "get, charge, put",
    POWERTOOLS: "Powertools",
    ASYNC: "Powertools, async",
    DURABLE: "durable function",
    OURS: "onecharge",
}

Figures = dict[str, list[float]]
"""By design, one figure for each round."""


@dataclass(frozen=True)
class Invocation:
    """What an invocation of a function takes; worker.py says what is counted, and how."""

    function: str
    wall_ms: float
    cpu_ms: float
    log_bytes: int
    calls: Mapping[str, float]
    """Requests to AWS, as `sns.PublishBatch`."""
    units: Mapping[str, float]
    """Capacity units of DynamoDB, if they were metered, as `write OrdersTable/by_customer`; `durable steps`."""
    times: int = 1
    """For one batch of orders: each order is placed by an invocation of its own, and all are charged by one."""


@dataclass
class Run:
    """All that was measured, before any comparison."""

    at: str
    machine: str
    rounds: int
    versions: Mapping[str, str]
    fresh_ms: Figures = field(default_factory=lambda: defaultdict(list))
    """The invocation that charges ten orders: what Lambda bills, with one vCPU."""
    duplicates_ms: Figures = field(default_factory=lambda: defaultdict(list))
    """The invocation that gets the same ten messages again."""
    cpu_ms: Figures = field(default_factory=lambda: defaultdict(list))
    """CPU of an order, one of ten fresh ones."""
    cold_ms: Figures = field(default_factory=lambda: defaultdict(list))
    """From the start of the process until its first order is charged, as each design is built by default."""
    cold_pyc_ms: Figures = field(default_factory=lambda: defaultdict(list))
    """The same with .pyc files."""
    peak_mb: dict[str, float] = field(default_factory=dict)
    charges_again: list[str] = field(default_factory=list)
    """The designs that charge a duplicate."""
    ways: dict[str, dict[str, list[Invocation]]] = field(default_factory=dict)
    """By design and orders of a batch: each function on the way of such a batch."""

    def to_json(self) -> str:
        """One line for each design, so that a diff compares two runs."""
        return as_lines(asdict(self)) + "\n"

    @classmethod
    def of_json(cls, text: str) -> "Run":
        fields: dict[str, Any] = json.loads(text)
        fields["ways"] = {
            design: {size: [Invocation(**each) for each in way] for size, way in sizes.items()}
            for design, sizes in fields["ways"].items()
        }
        return cls(**fields)
