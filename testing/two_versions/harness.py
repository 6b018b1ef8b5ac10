"""Two releases at one order: each step of its life is done by one of them, and both have to agree on what is stored.

    world.http("POST /orders") ─► changed items ─► publish_events ─► message ─► charge_order ─► changed items ─► …
                new                                    former                      new

What a step stores is what the next one reads, whichever release that is. Stripe is one stand-in for both.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

import requests

from local.stripe_standin.admin import StandInAdmin
from local.stripe_standin.server import running_standin
from onecharge.payments.stripe_client import STRIPE_VERSION
from ops.index import TABLES as INDEXED
from ops.index import index_table
from testing.simulation.dynamodb import MemoryDynamoDB
from testing.two_versions.release import STRIPE_KEY

Item = Mapping[str, Any]
Tables = dict[str, list[Item]]

FORMER, NEW = "former", "new"

CONSUMERS = {
    "onecharge.order.": "charge_order",
    "onecharge.refund.requested": "refund_charge",
    "onecharge.payment.": "update_order",
    "onecharge.refund.": "update_order",
}
"""By the beginning of an event's type, the longest that matches: the function whose queue gets it (template.yaml)."""

PUBLISHED = {"OrdersTable", "OrderRefundsTable", "PaymentsTable", "RefundsTable"}
"""The tables whose streams publish_events reads."""

MUST_NOT_COUNT = {"PoisonMessage", "DeliveryFailed", "OrderUnreadable", "ReconcileFailed"}
"""What a release counts when it cannot read what it is given."""

_EVENTS_AGE_SECONDS = -900
"""The clock of the stand-in: its events are old enough for reconcile, which leaves new ones to webhooks."""

_STEPS_MAX = 60
"""More steps than any life of an order has: two releases that send each other messages for ever are stopped."""


class Disagreement(AssertionError):
    """One release cannot read, or understands otherwise, what the other one has stored or sent."""


class Process:
    """A release that runs in its folder; see release.py."""

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self.name, self._process = name, process
        self._lock = threading.Lock()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Raises Disagreement if the release raises."""
        with self._lock:
            if self._process.stdin is None or self._process.stdout is None:
                raise AssertionError("a process without pipes")
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        answer = json.loads(line or '{"error": "it ended; its log says why"}')
        if "error" in answer:
            asked = {name: value for name, value in request.items() if name != "tables"}
            raise Disagreement(f"the {self.name} release failed at {json.dumps(asked)[:600]}\n{answer['error']}")
        return dict(answer)


@dataclass
class World:
    """Everything that outlives an invocation: tables, messages that are under way, Stripe."""

    releases: Mapping[str, Process]
    stripe: StandInAdmin
    standin_url: str
    turns: Iterator[str]
    """Which release does the next step."""
    tables: Tables = field(default_factory=dict)
    changed: list[tuple[str, str, Item]] = field(default_factory=list)
    """Stream records that are not published yet: table, event name, item."""
    messages: list[str] = field(default_factory=list)
    delivered: list[str] = field(default_factory=list)
    steps: int = 0
    busy: list[str] = field(default_factory=list)
    """The releases that are doing a step; a question of one is answered by the other."""
    written_by: dict[str, set[str]] = field(default_factory=dict)
    """What each release has stored and sent: `OrdersTable PAID`, `onecharge.order.placed`."""

    def step(self, release: str | None = None, **request: Any) -> Any:
        """Let a release do something with the tables as they are, and take over what it changed. Returns its result."""
        self.steps += 1
        if self.steps > _STEPS_MAX:
            raise Disagreement(f"{_STEPS_MAX} steps, and still no end")
        name = release or next(self.turns)
        before = {table: list(items) for table, items in self.tables.items()}
        answer = self._ask(name, tables=before, **request)
        if unread := MUST_NOT_COUNT & set(answer["counted"]) or answer["dead_letters"]:
            raise Disagreement(f"the {name} release cannot read what it was given: {unread}")
        self._take_over(name, before, answer["tables"])
        for body in answer["published"]:
            self.written_by.setdefault(name, set()).add(json.loads(body)["type"])
            self.messages.append(body)
        return answer["result"]

    def _ask(self, name: str, **request: Any) -> dict[str, Any]:
        self.busy.append(name)
        try:
            return self.releases[name].ask(**request)
        finally:
            self.busy.remove(name)

    def _take_over(self, release: str, before: Tables, after: Mapping[str, list[Item]]) -> None:
        for table, items in after.items():
            known = before.get(table, [])
            for item in (each for each in items if each not in known):
                former = next((each for each in self.tables.get(table, []) if _same_key(each, item)), None)
                self.tables.setdefault(table, [])
                if former is not None:
                    self.tables[table].remove(former)
                self.tables[table].append(item)
                if table in PUBLISHED:
                    self.changed.append((table, "MODIFY" if former else "INSERT", item))
                state = item.get("status") or item.get("state") or {}
                self.written_by.setdefault(release, set()).add(f"{table} {state.get('S', '')}".strip())

    def index(self) -> None:
        """What `python -m ops index` does, which a release that changed the index asks for (docs/guides/changes.md)."""
        for table in INDEXED:
            memory = MemoryDynamoDB(keys={table.name: table.key})
            for item in self.tables.get(table.name, []):
                memory.put_item(TableName=table.name, Item=dict(item))
            index_table(memory, table.name, table, write=True)  # type: ignore[arg-type]  # The operations that it uses.
            self.tables[table.name] = list(memory.tables.get(table.name, {}).values())

    def key(self) -> str:
        """A new idempotency key."""
        return str(uuid4())

    # optional: webhook
    def stripe_events(self) -> list[dict[str, Any]]:
        """Every event of the account, as its API lists them."""
        headers = {"Authorization": f"Bearer {STRIPE_KEY}", "Stripe-Version": STRIPE_VERSION}
        url = f"{self.standin_url}/v1/events"
        return list(requests.get(url, headers=headers, params={"limit": "100"}, timeout=30).json()["data"])

    # end optional

    def http(self, method_and_path: str, body: Any = None, *, key: str | None = None) -> dict[str, Any]:
        """A request, which must succeed; returns the response's body."""
        result = self.step(http=method_and_path, body=body, key=key)
        if result["status"] >= 400:
            raise Disagreement(f"{method_and_path} is answered with {result}")
        return dict(result["body"])

    def run_until_idle(self, order_id: str) -> dict[str, Any]:
        """Publish and deliver until nothing is under way; returns the order as both releases show it."""
        order = self.shown(order_id)
        while self.changed or self.messages:
            if self.changed:
                records, self.changed = [_record(*change) for change in self.changed], []
                self.step(invoke="publish_events", event={"Records": records})
            for body in self._taken_messages():
                # What comes back is delivered again at the next turn, by the other release.
                self.messages += self.step(deliver=consumer_of(body), bodies=[body])
                self.delivered.append(body)
            order = self.shown(order_id)
        return order

    def _taken_messages(self) -> list[str]:
        taken, self.messages = self.messages, []
        return taken

    def shown(self, order_id: str) -> dict[str, Any]:
        """The order, which both releases have to show alike; and it is never charged twice."""
        shown = {
            name: self._ask(name, tables=self.tables, http=f"GET /orders/{order_id}")["result"]
            for name in self.releases
        }
        if shown[FORMER] != shown[NEW] or shown[NEW]["status"] != 200:
            raise Disagreement(f"the releases show different orders: {json.dumps(shown, indent=1)}")
        if len(self.stripe.ledger().charges_of(order_id)) > 1:
            raise Disagreement(f"{order_id} is charged twice")
        return dict(shown[NEW]["body"])

    def redeliver_everything(self, order_id: str) -> None:
        """Every message once more, to each of the releases: duplicates change nothing that anybody sees."""
        before = self.shown(order_id)
        for body in dict.fromkeys(self.delivered):
            for name in self.releases:
                self.step(name, deliver=consumer_of(body), bodies=[body])
        self.changed, self.messages = [], []
        if self.shown(order_id) != before:
            raise Disagreement(f"a duplicate changed the order: {before} became {self.shown(order_id)}")


def consumer_of(body: str) -> str:
    """The function that a message is delivered to."""
    event_type = json.loads(body)["type"]
    return CONSUMERS[max((start for start in CONSUMERS if event_type.startswith(start)), key=len)]


def _same_key(one: Item, other: Item) -> bool:
    keys = ("id", "order_id", "refund_id", "event_id", "name", "due_date", "document_id")
    return [one.get(key) for key in keys] == [other.get(key) for key in keys]


def _record(table: str, event_name: str, item: Item) -> dict[str, Any]:
    return {
        "eventID": "1",
        "eventName": event_name,
        "eventSource": "aws:dynamodb",
        "eventSourceARN": f"arn:aws:dynamodb:us-east-1:123456789012:table/{table}/stream/2026-01-01T00:00:00.000",
        "dynamodb": {
            "Keys": {key: item[key] for key in ("order_id", "refund_id") if key in item},
            "NewImage": item,
            "SequenceNumber": "1",
            "StreamViewType": "NEW_IMAGE",
        },
    }


# ---------------------------------------------------------------- starting it


@contextmanager
def two_releases(former: Path, new: Path, logs: Path) -> Iterator[Callable[[Sequence[str]], World]]:
    """Start both; gives what makes a new world, with the turns of the releases, which repeat."""
    with ExitStack() as parts:
        standin = parts.enter_context(running_standin())
        questions = parts.enter_context(_questions())
        releases = {
            name: parts.enter_context(_running(name, folder, standin.base_url, questions.url, logs))
            for name, folder in ((FORMER, former), (NEW, new))
        }

        def world(turns: Sequence[str]) -> World:
            standin.reset()
            standin.clock_offset_seconds = _EVENTS_AGE_SECONDS
            made = World(releases, StandInAdmin(standin.base_url), standin.base_url, cycle(turns))
            questions.world = made
            return made

        yield world


@contextmanager
def _running(name: str, folder: Path, standin_url: str, questions_url: str, logs: Path) -> Iterator[Process]:
    environment = {
        "PATH": os.environ["PATH"],
        # moto answers what botocore would send by itself, and behind a proxy that is everything (runtime/aws.py).
        "https_proxy": "http://127.0.0.1:9",
        "PYTHONPATH": os.pathsep.join(str(folder / each) for each in ("functions", "shared", ".")),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        # What orders_api asks payment_questions comes back to us, who let a release answer.
        "AWS_ENDPOINT_URL_LAMBDA": questions_url,
        "POWERTOOLS_METRICS_NAMESPACE": "onecharge",
        "POWERTOOLS_SERVICE_NAME": name,
        "STANDIN_URL": standin_url,
        "NO_PROXY": "127.0.0.1,localhost",
    }
    log = (logs / f"{name}.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "testing.two_versions.release"],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    try:
        if process.stdout is None or process.stdout.readline() != '"ready"\n':
            raise Disagreement(f"the {name} release did not start: {(logs / f'{name}.log').read_text()[-2000:]}")
        yield Process(name, process)
    finally:
        process.kill()
        process.communicate()
        log.close()


class _Questions(ThreadingHTTPServer):
    """Lambda's Invoke, for what orders_api asks payment_questions: the release that does not ask answers."""

    daemon_threads = True
    world: World

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Question(BaseHTTPRequestHandler):
    server: _Questions

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        world = self.server.world
        [free] = world.releases.keys() - world.busy
        answer = json.dumps(world.step(free, invoke="payment_questions", event=question)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _questions() -> Iterator[_Questions]:
    server = _Questions(("127.0.0.1", 0), _Question)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
