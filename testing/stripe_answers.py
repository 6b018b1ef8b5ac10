"""A server in Stripe's place that answers what a test has set, over real connections.

with StripeAnswers() as stripe:
    stripe.post("/v1/payment_intents", breaks=Break.BEFORE)     # the first time
    stripe.post("/v1/payment_intents", json={...})              # from then on
    stripe_client("sk_test_x", api_base=stripe.url, bounds=BOUNDS)

The stand-in (local/stripe_standin) behaves as Stripe does; this says what Stripe, or what lies before it, could say.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from select import select
from threading import Condition, Event, Thread
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from urllib3 import HTTPHeaderDict

from testing.harness import PATIENCE_SECONDS


class Break(Enum):
    """How a connection fails."""

    BEFORE = auto()
    """Closed before a byte of the response."""
    RESET = auto()
    """Reset before a byte of the response."""
    WITHIN = auto()
    """Closed in the middle of the body."""
    SILENT = auto()
    """Open, and without a response as long as the test runs."""
    INFORMED = auto()
    """Not at all: an informational response, and the answer once the client sends more on the same connection."""
    STALLED = auto()
    """Open, and without the second half of the body as long as the test runs."""


@dataclass(frozen=True)
class Call:
    """One request that was received."""

    method: str
    path_url: str
    headers: Mapping[str, str]
    body: str

    @property
    def form(self) -> dict[str, str]:
        """What the body says."""
        return dict(parse_qsl(self.body))

    @property
    def key(self) -> str | None:
        """Its idempotency key."""
        return self.headers.get("Idempotency-Key")


@dataclass
class _Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]
    breaks: Break | None
    closes_after: bool


@dataclass
class StripeAnswers:
    """Each path's answers, in their order; the last one stays. Any other path is answered 599."""

    calls: list[Call] = field(default_factory=list)
    """All that were received; `await_calls` if the client did not wait for the answer."""
    connections: int = 0
    """How many were opened."""
    connections_closed: int = 0
    ended: Event = field(default_factory=Event)
    _answers: defaultdict[tuple[str, str], list[_Answer]] = field(default_factory=lambda: defaultdict(list))
    _changed: Condition = field(default_factory=Condition)

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"answers": self}))
        self._server.answers = self
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def get(self, path: str, **answer: Any) -> None:
        """As `post`."""
        self._add("GET", path, **answer)

    def post(self, path: str, **answer: Any) -> None:
        """Add an answer of this path.

        Args:
            answer: `json` or `body`; `status`, `headers`; `breaks`, a Break; `closes_after`, without a word.
        """
        self._add("POST", path, **answer)

    def _add(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        body: str | bytes = b"",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        breaks: Break | None = None,
        closes_after: bool = False,
    ) -> None:
        raw = _dumped(json) if json is not None else body.encode() if isinstance(body, str) else body
        self._answers[method, path].append(_Answer(status, raw, headers or {}, breaks, closes_after))

    def await_calls(self, number: int) -> list[Call]:
        """All that were received, when there are so many: a client that gives up is ahead of the server."""
        self._wait_until(lambda: len(self.calls) >= number)
        return self.calls

    def await_closed(self, connections: int) -> None:
        """Until the server has closed so many: it does so after the client has the answer."""
        self._wait_until(lambda: self.connections_closed >= connections)

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, PATIENCE_SECONDS)

    def was_opened(self) -> None:
        """Called by the server, as the following ones."""
        with self._changed:
            self.connections += 1

    def was_closed(self) -> None:
        with self._changed:
            self.connections_closed += 1
            self._changed.notify_all()

    def answer_to(self, call: Call) -> _Answer:
        """The next answer."""
        with self._changed:
            answers = self._answers[call.method, urlsplit(call.path_url).path]
            self.calls.append(call)
            self._changed.notify_all()
            if not answers:
                return _Answer(599, b"no answer is set for this path", {}, None, False)
            return answers.pop(0) if len(answers) > 1 else answers[0]


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # Clients that connect while it is busy need not try again.
    answers: StripeAnswers

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.answers.was_closed()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answers: StripeAnswers

    def setup(self) -> None:
        super().setup()
        self.answers.was_opened()

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        answer = self.answers.answer_to(Call(self.command, self.path, HTTPHeaderDict(self.headers.items()), body))
        match answer.breaks:
            case Break.BEFORE:
                self.close_connection = True
                return
            case Break.RESET:
                # With SO_LINGER of 0, closing resets.
                self.connection.setsockopt(1, 13, b"\x01\0\0\0\0\0\0\0")
                self.close_connection = True
                return
            case Break.SILENT:
                self.answers.ended.wait(30)
            case Break.INFORMED:
                self.connection.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </>; rel=preload\r\n\r\n")
                # Or until it closes.
                select([self.connection], [], [], 30)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if answer.breaks in (Break.WITHIN, Break.STALLED):
            self.wfile.write(answer.body[: len(answer.body) // 2])
            self.wfile.flush()
            if answer.breaks is Break.STALLED:
                self.answers.ended.wait(30)
            self.close_connection = True
            return
        self.wfile.write(answer.body)
        self.close_connection = answer.closes_after

    do_GET = do_POST = _handle

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # The client has closed.
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass
