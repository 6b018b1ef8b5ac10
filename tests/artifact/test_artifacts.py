"""What `sam build` made works by itself: each handler, in a process of its own, fed all of its sample events.

The process sees Python's standard library, the built function and the built layer, and nothing else.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from local.demo import drain
from local.samples import SAMPLES, in_brief, path_of
from local.stack import Stack
from local.stripe_standin.admin import StandInAdmin
from testing.artifacts import fed_with_its_samples
from testing.harness import PROJECT


def test_every_sample_event_is_fed() -> None:
    """None in events/ is left out, for any function of the template."""
    samples = {path.parent.name: set[str]() for path in (PROJECT / "events").glob("*/*.json")}
    for path in (PROJECT / "events").glob("*/*.json"):
        samples[path.parent.name].add(path.stem)
    assert samples == {function: set(expected) for function, expected in SAMPLES.items()}


@pytest.mark.parametrize("function", SAMPLES)
def test_a_built_function_handles_its_sample_events(function: str, stack: Stack, stack_dir: Path) -> None:
    """Imported from the artifact alone, with the environment that the template gives it."""
    run = fed_with_its_samples(function, stack, stack_dir / "build")
    assert [in_brief(answer) for answer in run.answers] == list(SAMPLES[function].values()), run.log[-3000:]
    standard_library = str(Path(json.__file__).parent.parent)
    roots = (*map(str, run.roots), standard_library)
    assert [m for m in run.modules if not m.startswith(roots) or "site-packages" in m] == []


def test_the_samples_came_to_what_their_names_say(stack: Stack) -> None:
    """`batchItemFailures: []` alone would also be the answer to a good order that was taken for poison."""
    ledger = StandInAdmin(stack.stripe_api_base).ledger()
    charged = {name: len(ledger.charges_of(order_of(name))) for name in ("order_placed", "declined", "requires_action")}
    assert charged == {"order_placed": 1, "declined": 0, "requires_action": 0}
    asked = json.loads(records("refund_requested", "refund_charge")[0]["body"])["data"]
    made = [each["amount"] for each in ledger.refunds if each["metadata"].get("refund_id") == asked["refund_id"]]
    assert made == [asked["amount_minor"]]
    bodies = [record["body"] for name in ("poison", "batch") for record in records(name)]
    poison = {body for body in bodies if "data" not in body or "10.5" in body}
    assert {message["Body"] for message in drain(stack, stack.payments_dlq_url)} == poison


def records(sample: str, function: str = "charge_order") -> list[dict[str, Any]]:
    return list(json.loads(path_of(function, sample).read_text())["Records"])


def order_of(sample: str) -> str:
    return str(json.loads(records(sample)[0]["body"])["subject"])
