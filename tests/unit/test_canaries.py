"""No secret, card number or personal data comes out of any function, whatever it is fed and whatever goes wrong.

Every field that others fill is given each canary: of every sample event, and of Stripe's responses. Then all that comes
out is searched: log lines at DEBUG (the libraries' too), metrics, errors, responses, what is kept in tables.
"""

import json
import logging
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from io import StringIO
from threading import Thread
from typing import Any

import boto3
import pytest

from local.samples import logical_id_of
from onecharge.orders.ids import order_id_of
from onecharge.runtime.functions import lambda_handler
from stripe_standin.webhook_endpoints import signature
from tests.support import canaries
from tests.support.canaries import API_KEY, CARD, CLIENT_SECRET, EMAIL, FED, JSON, OPAQUE, SIGNING_SECRET, found_in
from tests.support.harness import PROJECT, LambdaContext, create_table, load_template
from tests.support.samples import STREAMED, api_event, outcome_body, stream_record, stripe_event, unsigned

FUNCTIONS = sorted(path.name for path in (PROJECT / "events").iterdir())
ASK_STRIPE = [
    name
    for name in FUNCTIONS
    if "STRIPE_API_BASE" in load_template()["Resources"][logical_id_of(name)]["Properties"]["Environment"]["Variables"]
]

OTHERS_FILL: Mapping[str, tuple[canaries.Path, ...]] = {
    "http": (
        ("headers",),
        ("rawPath",),
        ("rawQueryString",),
        ("queryStringParameters",),
        ("requestContext", "http", "path"),
        ("requestContext", "http", "userAgent"),
        ("pathParameters",),
        ("body",),
    ),
    "queue": (("Records", "*", "body"), ("Records", "*", "messageAttributes", "event_type", "stringValue")),
    "stream": (("Records", "*", "dynamodb", "NewImage"),),
    "schedule": (),
}
"""The fields of an event that are not AWS's own. What a queue or a stream carries is ours, as long as nobody errs."""

STRIPES_IDS = ("id", "payment_intent")
"""In an event that Stripe has signed, its own ids: they are in the URL of a request to Stripe, and so in its trace."""

NAMED_IN_LOGS = (
    "correlationid",
    "correlation_id",
    "order_id",
    "subject",
    "refund_id",
    "document_id",
    "payment_intent_id",
)
"""Identifiers that log lines carry, if they are valid: an opaque value that passes as one is one."""


def kind_of(event: Mapping[str, Any]) -> str:
    """Who invokes a function with it."""
    if "requestContext" in event:
        return "http"
    if "Records" in event:
        return "stream" if any("dynamodb" in record for record in event["Records"]) else "queue"
    assert event["source"] == "aws.events"
    return "schedule"


@dataclass
class Output:
    """All that came out of the invocations: what others than the sender can read."""

    printed: pytest.CaptureFixture[str]
    logged: StringIO = field(default_factory=StringIO)
    answered: list[str] = field(default_factory=list)

    def taken(self) -> str:
        """All of it since the last time."""
        text = "\n".join([self.logged.getvalue(), *self.printed.readouterr(), *self.answered])
        self.logged.seek(0)
        self.logged.truncate()
        self.answered.clear()
        return text


class EchoingStripe(BaseHTTPRequestHandler):
    """A Stripe that answers with all that it was sent, the API key included, and with secrets of its own."""

    mode: str

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        echo = f"{self.headers} {self.path} {sent} {EMAIL.value}"
        intent = {
            "id": "pi_canary",
            "object": "payment_intent",
            "amount": 3097,
            "currency": "eur",
            "status": {"paid": "succeeded", "bank": "requires_action"}.get(self.mode, "requires_payment_method"),
            "client_secret": CLIENT_SECRET.value,
            "receipt_email": EMAIL.value,
            "description": f"{CARD.value} {OPAQUE.value}",
            "metadata": {"note": OPAQUE.value},
            "last_payment_error": {"message": echo, "code": "card_declined", "payment_method": {"card": CARD.value}},
        }
        error = {"message": echo, "param": OPAQUE.value, "doc_url": OPAQUE.value, "payment_intent": intent}
        status, body = {
            "paid": (200, intent),
            "bank": (200, intent),
            "declined": (402, {"error": {"type": "card_error", "code": "card_declined", **error}}),
            "refused": (400, {"error": {"type": "invalid_request_error", **error}}),
            "wrong key": (401, {"error": {"type": "invalid_request_error", **error}}),
            "failing": (500, {"error": {"type": "api_error", **error}}),
            "no Stripe": (200, echo),
        }[self.mode]
        answer = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Request-Id", "req_canary")
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST  # As BaseHTTPRequestHandler names it.

    def log_message(self, *_: object) -> None:
        """Say nothing."""


STRIPE_MODES = ("paid", "bank", "declined", "refused", "wrong key", "failing", "no Stripe")


@pytest.fixture
def stripe_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the echoing Stripe is; it answers in the test's mode, or declines."""
    mode = request.node.callspec.params.get("mode", "declined")
    handler = type("EchoingStripeOfThisTest", (EchoingStripe,), {"mode": mode})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Output]:
    """Everything that is logged or printed, with Lambda's level and the root logger's at DEBUG."""
    output = Output(capsys)
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", "DEBUG")
    root, handler = logging.getLogger(), logging.StreamHandler(output.logged)
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield output
    root.removeHandler(handler)
    root.setLevel(level)


SAMPLED_TABLES = {"OrdersTable": "orders", "PaymentsTable": "payments"}


type Invoke = Callable[[dict[str, Any]], None]


@pytest.fixture
def functions(aws: None, stripe_url: str, output: Output, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Invoke]:
    """Makes a function as it is deployed: its handler, over an AWS in this process and the echoing Stripe."""

    def deployed(function: str) -> Invoke:
        resources = load_template()["Resources"]
        variables = resources[logical_id_of(function)]["Properties"]["Environment"]["Variables"]
        for name, value in variables.items():
            monkeypatch.setenv(name, value_of(name, str(value)))
        monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", f"canaries-{uuid.uuid4()}")
        monkeypatch.setenv("STRIPE_API_BASE", stripe_url)
        app = import_module(f"{function}.app")
        output.taken()  # What making this AWS has logged.
        return invoking(lambda_handler(app.Application)(app.handler.__wrapped__), output)

    return deployed


def invoking(handler: Callable[[dict[str, Any], Any], Any], output: Output) -> Invoke:
    """Invokes the handler as Lambda does, and keeps what it answers."""

    def invoke(event: dict[str, Any]) -> None:
        try:
            output.answered.append(json.dumps(handler(event, LambdaContext())))
        except Exception as error:  # Lambda logs it with its trace, and returns it to the invoker.
            output.answered.append("".join(traceback.format_exception(error)))

    return invoke


def value_of(variable: str, template_value: str) -> str:
    """What the deployed variable would hold: the name of a table, a queue's URL, …; each made when it is asked for."""
    if variable.endswith("_TABLE"):
        logical_id = template_value.removeprefix("Ref ")
        name = SAMPLED_TABLES.get(logical_id, logical_id)
        dynamodb = boto3.client("dynamodb")
        return name if name in dynamodb.list_tables()["TableNames"] else create_table(dynamodb, name, logical_id)
    if variable.endswith("_URL"):
        return str(boto3.client("sqs").create_queue(QueueName=variable)["QueueUrl"])
    if variable.endswith("_TOPIC_ARN"):
        return str(boto3.client("sns").create_topic(Name=variable)["TopicArn"])
    if variable.endswith("_ARN"):
        secret = SIGNING_SECRET if "WEBHOOK" in variable else API_KEY
        secrets = boto3.client("secretsmanager")
        return str(secrets.create_secret(Name=str(uuid.uuid4()), SecretString=secret.value)["ARN"])
    return "30"


def samples_of(function: str) -> list[tuple[str, dict[str, Any]]]:
    """Those in events/, and others that hold what these do not."""
    paths = sorted((PROJECT / "events" / function).glob("*.json"))
    return [(path.stem, json.loads(path.read_text())) for path in paths] + OTHERS.get(function, list)()


def read(name: str) -> dict[str, Any]:
    return dict(json.loads((PROJECT / "events" / f"{name}.json").read_text()))


def other_requests() -> list[tuple[str, dict[str, Any]]]:
    """The other routes, a refund of the staff's, a request without a key."""
    order_id = order_id_of("cus_sample", "sample-key-1")
    staff = api_event(read("orders_api/pay_again"), "POST", f"/orders/{order_id}/refunds", {"amount": 99999999})
    staff["requestContext"]["authorizer"]["jwt"]["claims"] |= {"sub": "staff_sample", "scope": "onecharge/refund"}
    keyless = read("orders_api/place_order")
    del keyless["headers"]["idempotency-key"]
    gets = [api_event(read("orders_api/place_order"), "GET", path) for path in (f"/orders/{order_id}", "/prices")]
    listed = api_event(read("orders_api/place_order"), "GET", "/orders") | {"queryStringParameters": {"limit": "10"}}
    cancel = api_event(read("orders_api/pay_again"), "POST", f"/orders/{order_id}/cancel", {})
    return [(str(event["rawPath"]), event) for event in (staff, keyless, *gets, listed, cancel)]


def other_outcomes() -> list[tuple[str, dict[str, Any]]]:
    [record] = read("update_order/payment_succeeded")["Records"]
    bodies = {
        "declined": outcome_body(
            read, "payment.declined", decline_code="generic_decline", advice_code="try_again_later"
        ),
        "failed": outcome_body(read, "refund.failed", failure_code="charge_already_refunded"),
    }
    return [(name, {"Records": [record | {"body": body}]}) for name, body in bodies.items()]


def other_events_of_stripe() -> list[tuple[str, dict[str, Any]]]:
    """A decline, a dispute, one of another shop's, one that points to its object, one that nobody has signed."""
    error = {"type": "card_error", "code": "payment_intent_authentication_failure", "message": "Not authenticated."}
    thin = {"id": "mtr_1", "type": "billing.meter", "url": "/v1/billing/meters/mtr_1"}
    type_ = "v1.billing.meter.error_report_triggered"
    made = [
        stripe_event(read, "payment_intent.payment_failed", last_payment_error=error),
        stripe_event(read, "charge.dispute.created", object="dispute", payment_intent="pi_1", reason="fraudulent"),
        stripe_event(read, "payment_intent.succeeded", metadata={"invoice": "42"}),
        unsigned(read),
    ]
    body = {"id": "evt_1", "object": "v2.core.event", "type": type_, "livemode": False, "related_object": thin}
    return [(str(number), event) for number, event in enumerate([*made, made[0] | {"body": json.dumps(body)}])]


def other_changes() -> list[tuple[str, dict[str, Any]]]:
    return [(name, {"Records": [stream_record(read, name)]}) for name in STREAMED]


OTHERS: Mapping[str, Callable[[], list[tuple[str, dict[str, Any]]]]] = {
    "orders_api": other_requests,
    "update_order": other_outcomes,
    "stripe_webhook": other_events_of_stripe,
    "publish_events": other_changes,
}


def fed(event: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The event with each canary in each field that others fill, one at a time, and in a field that nobody knows."""
    prefixes = OTHERS_FILL[kind_of(event)]
    for number, path in enumerate(canaries.paths_in(event)):
        if not canaries.is_under(path, *prefixes) or is_stripes_id(path):
            continue
        # The opaque one, and the others in turn: each field has two, each kind of field all.
        names = [OPAQUE.name, REDACTED_ONES[number % len(REDACTED_ONES)]]
        if set(path) & set(NAMED_IN_LOGS):
            names.remove(OPAQUE.name)
        where = "/".join(str(step) for step in path if step != JSON)
        for name in names:
            yield f"{name} in {where}", canaries.with_value(event, path, FED[name])
            if canaries.holds_json(canaries.value_at(event, path)):
                yield f"{name} unknown in {where}", canaries.with_unknown_names(event, path, FED[name])


REDACTED_ONES = [name for name in FED if name != OPAQUE.name]


def is_stripes_id(path: canaries.Path) -> bool:
    return path[:2] == ("body", JSON) and path[-1] in STRIPES_IDS


def new_to(seen: set[canaries.Path], event: dict[str, Any]) -> dict[str, Any]:
    """A batch with those records only that have a field of which no record before had one."""
    if "Records" not in event:
        return event
    kept = []
    for record in event["Records"]:
        paths = set(canaries.paths_in(record))
        if paths - seen:
            kept.append(record)
        seen |= paths
    return {**event, "Records": kept}


def signed(event: dict[str, Any]) -> dict[str, Any]:
    """With Stripe's signature over the body as it is now, unless the canary is in the header itself."""
    header = event["headers"].get("stripe-signature", "")
    if not header.startswith("t="):
        return event
    valid = signature(event["body"], SIGNING_SECRET.value, int(time.time()))
    return {**event, "headers": {**event["headers"], "stripe-signature": valid}}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_canary_in_an_event_comes_out(function: str, functions: Callable[[str], Invoke], output: Output) -> None:
    """In no log line, metric, error or response: the sender's own response repeats nothing either."""
    invoke, leaks, seen = functions(function), [], set[canaries.Path]()
    for sample, event in samples_of(function):
        for where, variant in fed(new_to(seen, event)):
            invoke(signed(variant) if function == "stripe_webhook" else variant)
            leaks += [f"{sample}: {where}: {name}" for name in found_in(output.taken(), canaries.ALL)]
    assert leaks == []


@pytest.mark.parametrize("mode", STRIPE_MODES)
@pytest.mark.parametrize("function", ASK_STRIPE)
def test_nothing_that_stripe_says_comes_out(
    function: str,
    mode: str,
    functions: Callable[[str], Invoke],
    output: Output,
) -> None:
    """Neither a client secret, nor the API key in an error that repeats the request; not in a table either."""
    invoke = functions(function)
    for _, event in samples_of(function):
        invoke(signed(event) if function == "stripe_webhook" else event)
    allowed = [CLIENT_SECRET.name] if function == "get_payment" else []
    assert [name for name in found_in(output.taken(), canaries.ALL) if name not in allowed] == []
    dynamodb = boto3.client("dynamodb")
    stored = json.dumps([dynamodb.scan(TableName=name)["Items"] for name in dynamodb.list_tables()["TableNames"]])
    # What Stripe says of a refusal is kept for whoever investigates it, redacted: an opaque value cannot be known.
    assert [name for name in found_in(stored, canaries.ALL) if name != OPAQUE.name] == []
