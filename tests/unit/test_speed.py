"""`make bench` and `make bench-check`: they measure what they say, and conclude what follows from it."""

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed.aws_server import AwsServer, read_message, response_of
from benchmarks.speed.built import folders_of
from benchmarks.speed.check import FORMER_RELEASE
from benchmarks.speed.checkpoints import Checkpoints
from benchmarks.speed.deliveries import again, fresh
from benchmarks.speed.deployed_environment import Template
from benchmarks.speed.measure import Figures, Requests
from benchmarks.speed.picture import PICTURE, svg
from benchmarks.speed.regression import Costs, Interval, findings
from benchmarks.speed.results import OURS, PEER, RESULTS, Run, rows_of
from benchmarks.speed.tables import OWN_README, README, in_full, in_short
from onecharge.contract.events import OrderPlacedEvent
from testing.harness import PROJECT
from testing.two_versions.former import NoFormerRelease, unpack_former

ASKED = Costs(Requests(30, 20, 50, 0), Requests(10, 0, 10, 0))
PAIRS = 12


def pairs_of(ratio: float, noise: float) -> list[float]:
    """What so many pairs of processes measure, when the machine disturbs each of them."""
    chance = random.Random(7)
    return [ratio * (1 + chance.uniform(-noise, noise)) for _ in range(PAIRS)]


def cpu(ratio: float, noise: float = 0.03) -> Mapping[str, Interval]:
    return {"fresh_cpu": Interval.of(pairs_of(ratio, noise))}


# ------------------------------------------------------------ bench-check


def test_a_change_that_costs_nothing_passes() -> None:
    """The same requests, the same CPU, on a machine that disturbs each measurement by up to 15 %."""
    assert list(findings(ASKED, ASKED, cpu(1.0, noise=0.15))) == []


@pytest.mark.parametrize("kind", ["fresh", "duplicate"])
@pytest.mark.parametrize("service", ["stripe", "dynamodb"])
def test_one_request_more_fails(kind: str, service: str) -> None:
    """Of ten orders: it may be made for one of them only."""
    before: Requests = getattr(ASKED, kind)
    more = replace(before, **{service: getattr(before, service) + 1})
    [found] = findings(ASKED, replace(ASKED, **{kind: more}), cpu(1.0))
    assert f"10 {kind} orders" in found
    fewer = replace(before, **{service: getattr(before, service) - 1})
    assert list(findings(ASKED, replace(ASKED, **{kind: fewer}), cpu(1.0))) == []


def test_ten_percent_more_cpu_fails() -> None:
    """Measured in each pair of processes, with noise."""
    [found] = findings(ASKED, ASKED, cpu(1.10))
    assert "fresh_cpu" in found


def test_four_percent_more_cpu_passes() -> None:
    """Up to five are allowed."""
    assert list(findings(ASKED, ASKED, cpu(1.04, noise=0.01))) == []


def test_what_is_not_sure_passes() -> None:
    """The median is above the limit, but the machine is so restless that it may be chance."""
    interval = Interval.of([0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6])
    assert interval.low < 1.05 < interval.median
    assert not interval.is_more


def test_one_disturbed_pair_decides_nothing() -> None:
    """Another program had the core while one pair ran."""
    assert not Interval.of([*pairs_of(1.0, 0.02)[1:], 3.0]).is_more


def test_the_release_that_it_is_compared_with_is_there(tmp_path: Path) -> None:
    """With its handler and its template; a clone that has no history and reaches no origin skips this."""
    try:
        unpack_former(PROJECT, tmp_path, FORMER_RELEASE)
    except NoFormerRelease as reason:
        pytest.skip(str(reason))
    assert (tmp_path / "functions/charge_order/app.py").exists()
    assert Template(tmp_path / "template.yaml", {}).variables_of("ChargeOrderFunction")["PAYMENTS_TABLE"]


# ------------------------------------------------------------ the table


def figures(**times: float) -> Figures:
    named = {"fresh_cpu": 40.0, "duplicate_cpu": 15.0, "fresh_wall": 3150.0, "duplicate_wall": 60.0, **times}
    return Figures(Requests(20, 10, 20, 0), Requests(10, 0, 10, 0), {name: [each] * 3 for name, each in named.items()})


def run_with(ours: Figures) -> Run:
    return Run("now", "a machine", 3, {}, {PEER: figures(), OURS: ours})


def reached(run: Run) -> dict[str, bool | None]:
    return {row.what: row.reached for row in rows_of(run)}


def test_each_row_says_whether_its_target_is_reached() -> None:
    """Just inside of each, and just outside."""
    inside = figures(fresh_cpu=55, duplicate_cpu=8.9, fresh_wall=689, duplicate_wall=14.9)
    inside = replace(inside, fresh=Requests(30, 20, 50, 0), duplicate=Requests(10, 0, 10, 0))
    assert set(reached(run_with(inside)).values()) == {True}
    outside = figures(fresh_cpu=57, duplicate_cpu=9.1, fresh_wall=691, duplicate_wall=15.1)
    outside = replace(outside, fresh=Requests(31, 20, 50, 0), duplicate=Requests(11, 0, 10, 0))
    assert set(reached(run_with(outside)).values()) == {False}


def test_what_is_published_is_what_was_measured() -> None:
    """results.json, the tables of both READMEs and docs/speed.svg say the same."""
    run = Run.of_json(RESULTS.read_text())
    assert in_short(run) in README.read_text()
    assert in_full(run) in OWN_README.read_text()
    assert svg(run) == PICTURE.read_text()


# ------------------------------------------------------------ what is measured


def test_a_batch_is_what_the_function_receives() -> None:
    """Ten orders, each another one, and each an event of the contract; again the same orders and messages."""
    batch = fresh()
    events = [OrderPlacedEvent.model_validate_json(record["body"]) for record in batch["Records"]]
    assert len({event.data.order_id for event in events}) == 10
    assert [record["body"] for record in again(batch)["Records"]] == [record["body"] for record in batch["Records"]]
    assert {record["attributes"]["ApproximateReceiveCount"] for record in again(batch)["Records"]} == {"2"}


def test_ours_has_the_variables_that_the_template_gives_it() -> None:
    """All of them, evaluated; those of this run in the place of what CloudFormation would fill in."""
    given = {"PaymentsTable": "payments-1", "StripeApiBase": "http://127.0.0.1:1", "StripeSecretArn": "arn:a:b:c:d:e:f"}
    variables = Template(PROJECT / "template.yaml", given).variables_of("ChargeOrderFunction")
    assert variables["PAYMENTS_TABLE"] == "payments-1"
    assert variables["STRIPE_API_BASE"] == "http://127.0.0.1:1"
    assert variables["STRIPE_SECRET_ARN"] == "arn:a:b:c:d:e:f"
    assert variables["FUNCTION_TIMEOUT_SECONDS"] == "30"
    assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "onecharge/bench"
    assert {"AWS_LAMBDA_EXEC_WRAPPER", "AWS_ENDPOINT_URL"} & variables.keys() == set()
    elsewhere = Template(PROJECT / "template.yaml", {"AwsEndpointUrl": "http://127.0.0.1:2"})
    assert elsewhere.variables_of("ChargeOrderFunction")["AWS_ENDPOINT_URL"] == "http://127.0.0.1:2"


def test_the_path_of_a_built_function_is_what_its_template_says(tmp_path: Path) -> None:
    """Its own folder, then the layers of all functions and its own; a layer of somebody else's is not here."""
    layer = {"Type": "AWS::Serverless::LayerVersion"}
    template = {
        "Globals": {
            "Function": {"Layers": [{"Ref": "Shared"}, {"Fn::If": ["IsTraced", {"Ref": "TracingLayerArn"}, 0]}]}
        },
        "Resources": {
            "Charge": {"Properties": {"CodeUri": "Charge", "Layers": [{"Ref": "Stripe"}, {"Ref": "Shared"}]}},
            "Shared": {**layer, "Properties": {"ContentUri": "Shared"}},
            "Stripe": {**layer, "Properties": {"ContentUri": "Stripe"}},
        },
    }
    (tmp_path / "template.yaml").write_text(json.dumps(template))
    expected = (tmp_path / "Charge", tmp_path / "Shared/python", tmp_path / "Stripe/python")
    assert folders_of(tmp_path, "Charge") == expected


def test_a_checkpoint_stores_what_a_step_has_returned() -> None:
    """The execution goes on with what Lambda has stored; each checkpoint gives the token for the next one."""
    checkpoints = Checkpoints()
    step = {"Id": "1", "Name": "charge", "Type": "STEP"}
    begun = json.loads(checkpoints.store("arn", json.dumps({"Updates": [{**step, "Action": "START"}]}).encode()))
    [operation] = begun["NewExecutionState"]["Operations"]
    assert operation["Status"] == "STARTED"
    ended = {"Updates": [{**step, "Action": "SUCCEED", "Payload": '"pi_1"'}]}
    done = json.loads(checkpoints.store("arn", json.dumps(ended).encode()))
    [operation] = done["NewExecutionState"]["Operations"]
    assert (operation["Status"], operation["StepDetails"]) == ("SUCCEEDED", {"Result": '"pi_1"'})
    assert done["CheckpointToken"] != begun["CheckpointToken"]


REQUEST = b'{"TableName": "t", "Key": {}}'


async def through_the_server(answer: bytes, status: str, **settings: Any) -> tuple[bytes, bytes, AwsServer]:
    """One PutItem: what DynamoDB Local was asked, what the function got, and the server that counted."""
    asked: list[bytes] = []

    async def dynamodb_local(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        message = await read_message(reader)
        assert message
        asked.append(message[2])
        writer.write(response_of(answer, status))
        writer.close()

    upstream = await asyncio.start_server(dynamodb_local, "127.0.0.1", 0)
    aws = AwsServer("127.0.0.1", upstream.sockets[0].getsockname()[1])
    aws._configure(**{"seconds": 0.0, "metering": False, **settings})
    server = await asyncio.start_server(aws.serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    head = f"POST / HTTP/1.1\r\nx-amz-target: DynamoDB_20120810.PutItem\r\ncontent-length: {len(REQUEST)}\r\n\r\n"
    writer.write(head.encode() + REQUEST)
    message = await read_message(reader)
    assert message
    writer.close()
    server.close()
    upstream.close()
    assert message[0] == f"HTTP/1.1 {status}"
    return asked[0], message[2], aws


def test_without_metering_nothing_is_changed_on_the_way() -> None:
    """The function pays for the bytes that DynamoDB sends, and for no others."""
    asked, answered, aws = asyncio.run(through_the_server(b'{"a":  1}', "200 OK"))
    assert (asked, answered) == (REQUEST, b'{"a":  1}')
    assert aws.requests == {"PutItem": 1}


def test_metering_takes_the_consumed_units_out_of_the_answer() -> None:
    """DynamoDB is asked for them, the function does not see them."""
    answer = json.dumps({"ConsumedCapacity": {"TableName": "t", "CapacityUnits": 3.0}}).encode()
    asked, answered, aws = asyncio.run(through_the_server(answer, "200 OK", metering=True))
    assert json.loads(asked)["ReturnConsumedCapacity"] == "TOTAL"
    assert json.loads(answered) == {}
    assert aws.units == {"read": 0, "write": 3}


@pytest.mark.parametrize(("stored_bytes", "units"), [(0, 1), (600, 1), (1500, 2)])
def test_a_refused_write_is_metered_by_the_stored_item(stored_bytes: int, units: int) -> None:
    """DynamoDB takes write units for a failed condition, too, and does not say how many."""
    item = {"Item": {"x": {"S": "y" * stored_bytes}}} if stored_bytes else {}
    refused = json.dumps({"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException", **item})
    _, _, aws = asyncio.run(through_the_server(refused.encode(), "400 Bad Request", metering=True))
    assert aws.units["write"] == units


def test_an_answer_is_as_late_as_it_is_to_be() -> None:
    """And the first write is known by the time of its answer."""

    async def timed() -> float:
        began = asyncio.get_running_loop().time()
        _, _, aws = await through_the_server(b"{}", "200 OK", seconds=0.2)
        assert aws.first_write
        return aws.first_write - began

    assert asyncio.run(timed()) >= 0.2
