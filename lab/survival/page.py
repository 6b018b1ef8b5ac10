"""docs/survival.html: the table, whose cells open a recorded schedule beside ours. page.html is its template."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.survival.designs import DESIGNS
from lab.survival.faults import FAULTS
from lab.survival.recording import OURS, PROJECT, Recording, record, record_ours, source_of
from lab.survival.report import LEGEND, cell_lines, heading
from lab.survival.results import Cell, Results
from lab.survival.trial import AMOUNT_MINOR

PAGE = PROJECT / "docs/survival.html"
_TEMPLATE = Path(__file__).with_name("page.html")
_DATA = "{{data}}"


def page(results: Results) -> str:
    """The page with a recording of each cell. It takes a minute; the same results give the same page."""
    template = _TEMPLATE.read_text()
    # "</script>" in a docstring would end the element that holds the data.
    data = json.dumps(_data(results), ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return template.replace(_DATA, data)


def data_of(page: str) -> dict[str, Any]:
    """The data of a written page."""
    before, after = _TEMPLATE.read_text().split(_DATA)
    data: dict[str, Any] = json.loads(page.removeprefix(before).removesuffix(after))
    return data


class _Indexed:
    """Values that recordings name by their index, so that each is on the page once."""

    def __init__(self) -> None:
        self.values: dict[Any, int] = {}

    def index(self, value: Any) -> int:
        return self.values.setdefault(value, len(self.values))


def _data(results: Results) -> dict[str, Any]:
    texts, lines = _Indexed(), _Indexed()
    beside: dict[str, dict[str, Any]] = {}
    cells: dict[str, dict[str, Any]] = {}
    stood_in: dict[str, set[tuple[str, int]]] = {design: set() for design in DESIGNS}

    def recorded(design: str, recording: Recording) -> dict[str, Any]:
        stood_in[design].update(step.line for step in recording.steps if step.line)
        return {
            "number": recording.number,
            "charges": recording.charges,
            "fault_at": recording.fault_at,
            "steps": [
                [
                    step.seconds,
                    step.worker,
                    texts.index(step.text),
                    step.paid_minor,
                    lines.index((str(Path(step.line[0]).relative_to(PROJECT)), step.line[1])) if step.line else -1,
                ]
                for step in recording.steps
            ],
        }

    def cell_of(fault: str, design: str, cell: Cell) -> dict[str, Any]:
        recording = record(fault, design, results.seed, cell)
        shown = {
            "double": cell.double,
            "lost": cell.lost,
            "by_people": [text[2:] for text in LEGEND if text[0] in "".join(cell_lines(cell))],
            "shown": cell_lines(cell),
            **recorded(design, recording),
        }
        if design != OURS:
            was_paid = recording.was_paid_at_fault
            ours = record_ours(fault, results.seed, was_paid_at_fault=was_paid, schedules=results.schedules)
            beside.setdefault(fault, {}).setdefault(str(ours.number), recorded(OURS, ours))
            shown["beside"] = str(ours.number)
        return shown

    for fault, row in results.cells.items():
        cells[fault] = {design: cell_of(fault, design, row[design]) for design in DESIGNS if design in row}
    return {
        "heading": heading(results),
        "legend": " ".join(LEGEND),
        "seed": results.seed,
        "schedules": results.schedules,
        "versions": results.versions,
        "amount_minor": AMOUNT_MINOR,
        "ours": OURS,
        "faults": [_fault(name) for name in results.cells],
        "designs": [_design(name, sorted(stood_in[name])) for name in DESIGNS],
        "cells": cells,
        "beside": beside,
        "texts": list(texts.values),
        "lines": list(lines.values),
    }


def _fault(name: str) -> dict[str, Any]:
    return {"name": name, "title": FAULTS[name].title, "seen": FAULTS[name].seen}


def _design(name: str, stood_in: Sequence[tuple[str, int]]) -> dict[str, Any]:
    design = DESIGNS[name]
    return {
        "name": name,
        "title": design.title.split("\n"),
        "excluded": design.excluded_faults,
        "source": source_of(name, stood_in),
    }
