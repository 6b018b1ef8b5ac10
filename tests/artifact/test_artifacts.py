"""What `sam build` made works by itself: each handler, in a process of its own, fed all of its sample events.

The process sees Python's standard library, the built function and its layers, and nothing else.
"""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from local.emulator import CREDENTIALS
from local.observe import drain
from local.samples import SAMPLES, deployed_environment, in_brief, logical_id_of, path_of
from local.stack import Stack
from stripe_standin.admin import StandInAdmin
from tests.support.harness import PROJECT

# Reads events from stdin, one a line, and answers each with what the handler returned.
_HOST = """
import importlib, json, sys, time
sys.path += sys.argv[2:]
out, sys.stdout = sys.stdout, sys.stderr
handler = importlib.import_module(sys.argv[1] + ".app").handler
class Context:
    function_name = memory_limit_in_mb = invoked_function_arn = aws_request_id = "artifact"
    get_remaining_time_in_millis = lambda self: 30000
for line in sys.stdin:
    event = json.loads(line)
    answer = handler(event, Context())
    failed = [each["itemIdentifier"] for each in (answer or {}).get("batchItemFailures", [])]
    if failed:  # Delivered again, as SQS does: the stack's worker has the row, or its webhook has finalized it.
        time.sleep(2)
        event["Records"] = [record for record in event["Records"] if record["messageId"] in failed]
        answer = handler(event, Context())
    print(json.dumps(answer), file=out, flush=True)
"""


_SAMPLED_AT, _NOW = "2026-11-01T09:00:00", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}"


def event_of(function: str, sample: str) -> str:
    """The sample with the present time, also as it is stored: an order of its own day is too old, and is held."""
    return path_of(function, sample).read_text().replace(_SAMPLED_AT, _NOW)


def test_every_sample_event_is_fed() -> None:
    """None in events/ is left out."""
    samples = {path.name: {event.stem for event in path.glob("*.json")} for path in (PROJECT / "events").iterdir()}
    assert samples == {function: set(expected) for function, expected in SAMPLES.items()}


@pytest.mark.parametrize("function", SAMPLES)
def test_a_built_function_handles_its_sample_events(function: str, stack: Stack, stack_dir: Path) -> None:
    """Imported from the artifact alone, with the environment that the template gives it."""
    logical_id = logical_id_of(function)
    functions = stack.aws.client("lambda").list_functions()["Functions"]
    [deployed] = [each for each in functions if f"-{logical_id}-" in each["FunctionName"]]
    # Named after the stack: `onecharge-shared` is what SharedLayer was built as.
    layers = [f"{each['Arn'].split(':')[6].rpartition('-')[2].title()}Layer" for each in deployed["Layers"]]
    roots = [stack_dir / "build" / name for name in (logical_id, *(f"{layer}/python" for layer in layers))]
    python = Path(sys.base_prefix) / "bin/python3.13"  # without the packages of this environment
    done = subprocess.run(
        [str(python), "-I", "-S", "-c", _HOST, function, *map(str, roots)],
        env={**CREDENTIALS, **deployed_environment(functions, logical_id), "AWS_ENDPOINT_URL": stack.aws_endpoint_url},
        input="\n".join(json.dumps(json.loads(event_of(function, name))) for name in SAMPLES[function]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [in_brief(json.loads(line)) for line in done.stdout.splitlines()]
    assert answers == list(SAMPLES[function].values()), done.stderr[-3000:]


def test_the_samples_came_to_what_their_names_say(stack: Stack) -> None:
    """`batchItemFailures: []` alone would also be the answer to a good order that was taken for poison."""
    ledger = StandInAdmin(stack.stripe_api_base).ledger()
    *bodies, poison = [record["body"] for record in records("batch")]
    placed = [json.loads(body)["data"] for body in bodies]
    charged = {each["payment_method"]: len(ledger.charges_of(each["order_id"])) for each in placed}
    assert charged == {"pm_card_visa": 1, "pm_card_visa_chargeDeclined": 0, "pm_card_threeDSecure2Required": 0}
    asked = json.loads(records("refund_requested", "refund_charge")[0]["body"])["data"]
    made = [each["amount"] for each in ledger.refunds if each["metadata"].get("refund_id") == asked["refund_id"]]
    assert made == [asked["amount_minor"]]
    # At least once: boto3 repeats what SQS has not answered in time.
    assert {message["Body"] for message in drain(stack, stack.payments_dlq_url)} == {poison}


def records(sample: str, function: str = "charge_order") -> list[dict[str, Any]]:
    return list(json.loads(event_of(function, sample))["Records"])
