"""What docs/threat-model.md claims of the template, the packages and CI, and of hostile input."""

import io
import json
import re
import time
from typing import Any

import pytest

from onecharge.runtime.logs import RedactingFormatter
from onecharge.runtime.redaction import redacted
from ops.output import Report, show
from tests.support.harness import Log, load_template

RESOURCES: dict[str, Any] = load_template()["Resources"]


def of_type(kind: str) -> dict[str, Any]:
    return {name: each.get("Properties", {}) for name, each in RESOURCES.items() if each["Type"] == kind}


# ---------------------------------------------------------------- the template


def test_no_environment_variable_holds_a_secret() -> None:
    """A variable is a name, an ARN, a URL or a number of the template: no parameter hides its value (NoEcho)."""
    parameters = load_template()["Parameters"]
    assert [name for name, each in parameters.items() if each.get("NoEcho")] == []
    texts = [
        str(value)
        for each in of_type("AWS::Serverless::Function").values()
        for value in each["Environment"]["Variables"].values()
    ]
    assert [text for text in texts if "resolve:secretsmanager" in text or "resolve:ssm-secure" in text] == []
    assert [text for text in texts if redacted(text) != text] == []


def test_every_queue_is_encrypted() -> None:
    """By SQS's own keys, or by one of KMS; every topic by one of KMS: SNS has none of its own."""
    queues, topics = of_type("AWS::SQS::Queue"), of_type("AWS::SNS::Topic")
    assert len(queues) > len(topics) > 0
    encrypted = {name for name, each in (queues | topics).items() if "KmsMasterKeyId" in each}
    encrypted |= {name for name, each in queues.items() if each.get("SqsManagedSseEnabled") is True}
    assert encrypted == {*queues, *topics}


def test_every_queue_names_its_one_source() -> None:
    """Whoever may send to a queue by its policy is a service, on behalf of topics that are named."""
    for name, policy in of_type("AWS::SQS::QueuePolicy").items():
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Allow":
                assert set(statement["Principal"]) == {"Service"}, name
                assert "aws:SourceArn" in json.dumps(statement["Condition"]), name


def test_the_api_and_the_queues_are_bounded() -> None:
    """A flood is refused at the API, and waits in the queue: few workers at once reach Stripe."""
    [api] = of_type("AWS::Serverless::HttpApi").values()
    assert 0 < api["DefaultRouteSettings"]["ThrottlingRateLimit"] <= 1000
    assert 0 < api["DefaultRouteSettings"]["ThrottlingBurstLimit"] <= 1000
    rates = load_template()["Mappings"]["ChargesPerSecond"]
    assert all(rate["Concurrency"] <= max(2, int(per_second) / 5) for per_second, rate in rates.items())
    webhook = api["RouteSettings"]["POST /stripe/events"]["ThrottlingRateLimit"]
    assert "EventsPerSecond" in str(webhook)
    assert all(rate["EventsPerSecond"] == 5 * int(per_second) for per_second, rate in rates.items())
    source = RESOURCES["ChargeOrderFunction"]["Properties"]["Events"]["OrderPlaced"]["Properties"]
    assert "Concurrency" in str(source["ScalingConfig"]["MaximumConcurrency"])


def test_the_access_log_holds_nothing_of_a_request() -> None:
    """A path, a query or a header may hold a card number or a token: the route and the status are enough."""
    [api] = of_type("AWS::Serverless::HttpApi").values()
    logged = set(re.findall(r"\$context\.([A-Za-z.]+)", api["AccessLogSettings"]["Format"]))
    assert {"requestId", "routeKey", "status", "authorizer.error"} <= logged
    assert json.loads(re.sub(r"\$context\.[\w.]+", "-", api["AccessLogSettings"]["Format"]))
    assert not re.search("path|query|header|userAgent|claims|jwt|body", " ".join(logged), re.IGNORECASE)


# ---------------------------------------------------------------- hostile input


@pytest.mark.parametrize("part", ["eyJ", "eyJa.", "a", "1 ", "a@", "pi_", "sk_test_", "whsec_", "a.b@c."])
def test_a_long_text_is_redacted_in_time(part: str) -> None:
    """In linear time: a line is written while the customer waits."""
    text, started = part * 100_000, time.thread_time()
    redacted(text)
    assert time.thread_time() - started < 10


def test_a_value_cannot_forge_a_log_line(log: Log) -> None:
    """A line break is escaped: one event is one line, and a line is one JSON object."""
    forged = 'x"}\n{"level":"ERROR","message":"forged","_aws":{}}\r\n\u2028'
    log.logger.registered_handler.setFormatter(RedactingFormatter())
    log.logger.info(forged, extra={"why": forged})
    [line] = log.text.removesuffix("\n").split("\n")
    assert json.loads(line)["why"] == forged
    assert "\r" not in line


@pytest.mark.parametrize("as_json", [True, False])
def test_a_stored_value_cannot_control_the_terminal(as_json: bool) -> None:
    """A poison message can hold anything: control sequences are shown as text, and nothing is taken for markup."""
    out = io.StringIO()
    hostile = "\x1b]0;owned\x07\x1b[2J\x9b31m\r[red]x[/red]\x08"
    show(Report({hostile: hostile, "rows": [{"c": hostile}]}), as_json=as_json, out=out)
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out.getvalue()) == []
    assert "[red]x[/red]" in out.getvalue()
