"""The engine behind HTTP: one thread a connection, one lock around each step of a request, faults where ordered."""

import base64
import binascii
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import requests

from local.stripe_standin import administration
from local.stripe_standin.engine import StripeEngine
from local.stripe_standin.errors import ApiError, invalid
from local.stripe_standin.faults import Executed, Fault, FaultPlan, FaultRule, FaultyAnswer
from local.stripe_standin.messages import Request, Response, Ticket
from local.stripe_standin.webhooks import signature

ADMIN = "/_standin/"
_TRICKLE_SECONDS = 0.5


class ConnectionLost(Exception):
    """The connection ends without an answer."""


class StandIn(ThreadingHTTPServer):
    """Stripe on loopback. Everything that changes is guarded by `lock`, which is never held while waiting."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, host: str, port: int, *, seed: int = 0) -> None:
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.clock_offset_seconds = 0.0
        self.latency_seconds = 0.0
        self.webhook_url: str | None = None
        self.webhook_secret = "whsec_local"
        self.seed = seed
        self.reset()
        super().__init__((host, port), _Handler)

    @property
    def base_url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"

    def now(self) -> float:
        return time.time() + self.clock_offset_seconds

    def reset(self) -> None:
        """Forget everything: charges, keys, faults, counts, and how far the clock was moved."""
        self.clock_offset_seconds = 0.0
        self.engine = StripeEngine(self.now, seed=self.seed)
        self.faults = FaultPlan()
        self.counts: Counter[str] = Counter()

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()

    # ------------------------------------------------------------ one request of Stripe's API

    def serve(self, request: Request, connection: "_Handler") -> Response:
        """Answer one request, or raise ConnectionLost; a fault that trickles writes to the connection itself."""
        with self.lock:
            # A reset in the meantime must not let this request charge into the next test's ledger.
            engine = self.engine
            request, headers = engine.identify(request)
            self.counts["requests"] += 1
            self.counts[f"{request.method} {request.path if request.method == 'POST' else '*'}"] += 1
        response = self._answer(engine, request, connection)
        with self.lock:
            self.counts[f"status_{response.status}"] += 1
            self.counts["replays"] += bool(response.headers.get("Idempotent-Replayed"))
        return Response(response.status, response.body, {**headers, **response.headers})

    def _answer(self, engine: StripeEngine, request: Request, connection: "_Handler") -> Response:
        with self.lock:
            faults = self.faults
            about = engine.about(request)
            unstarted = faults.meet(request, unstarted=True, about=about)
        if unstarted is not None:
            return self._turn_away(unstarted)
        with self.lock:
            begun = engine.begin(request)
            rule = faults.meet(request, unstarted=False, about=about) if isinstance(begun, Ticket) else None
        if isinstance(begun, Response):
            return begun
        self.stopping.wait(self.latency_seconds)
        if rule is None:
            return self._execute(engine, begun)
        if rule.answer is not None:
            return self._answer_instead(engine, begun, rule.answer, rule.seconds)
        return self._with_fault(engine, begun, rule, connection)

    def _turn_away(self, rule: FaultRule) -> Response:
        if rule.answer is not None:
            return rule.answer.response
        self.stopping.wait(rule.seconds if rule.kind is Fault.HANG_BEFORE else 0)
        raise ConnectionLost

    def _execute(self, engine: StripeEngine, ticket: Ticket, *, stays_processing: bool = False) -> Response:
        with self.lock:
            response, remembered = engine.execute(ticket, stays_processing=stays_processing)
            engine.finish(ticket, response, remembered=remembered)
        return response

    def _answer_instead(self, engine: StripeEngine, ticket: Ticket, answer: FaultyAnswer, seconds: float) -> Response:
        """Answer with an error; execute the request now, later or never, and remember the error or not."""
        with self.lock:
            if answer.executed is Executed.NOW:
                engine.execute(ticket)
            if answer.executed is Executed.LATER:
                engine.execute_later(ticket, seconds)
            engine.finish(ticket, answer.response, remembered=answer.stored)
        return answer.response

    def _with_fault(self, engine: StripeEngine, ticket: Ticket, rule: FaultRule, connection: "_Handler") -> Response:
        if rule.kind is Fault.LATENCY:
            self.stopping.wait(rule.seconds)
        response = self._execute(engine, ticket, stays_processing=rule.kind is Fault.STAYS_PROCESSING)
        match rule.kind:
            case Fault.DROP_AFTER:
                raise ConnectionLost
            case Fault.SILENT_AFTER:
                self.stopping.wait(rule.seconds)
                raise ConnectionLost
            case Fault.HANG_AFTER:
                connection.trickle(rule.seconds)
                raise ConnectionLost
            case _:
                return response

    # ------------------------------------------------------------ what tests and the demo steer

    def administer(self, method: str, path: str, given: dict[str, Any]) -> Any:
        """Answer one request under /_standin/ (see README.md)."""
        with self.lock:
            self.engine.run_due()
            answer = administration.administer(self, method, path, given)
            # What has become due by the answer, as by a clock that was moved.
            self.engine.run_due()
            events = list(self.engine.account.events)
        if isinstance(answer, administration.DeliverWebhooks):
            return self._deliver_webhooks(events, answer.order)
        return answer

    def _deliver_webhooks(self, events: list[dict[str, Any]], order: Sequence[int] | None) -> dict[str, Any]:
        """Send the events, each delivery signed anew; `order` lists their places, so any order and repetition."""
        if self.webhook_url is None:
            raise invalid("Set webhook_url first.", param="webhook_url")
        statuses = []
        for event in [events[place] for place in (range(len(events)) if order is None else order)]:
            payload = json.dumps(event)
            header = signature(payload, self.webhook_secret, int(self.now()))
            headers = {"Stripe-Signature": header, "Content-Type": "application/json"}
            statuses.append(requests.post(self.webhook_url, payload, headers=headers, timeout=30).status_code)
        return {"statuses": statuses}


class _Handler(BaseHTTPRequestHandler):
    """Reads one request, has it answered, writes the answer."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Seconds that a kept-alive connection may stay silent before its thread ends.
    timeout = 300

    @property
    def standin(self) -> StandIn:
        return cast(StandIn, self.server)

    def _handle(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        try:
            if url.path.startswith(ADMIN):
                self._answer_admin(url.path.removeprefix(ADMIN), body)
            else:
                self._answer_api(url.path, form(body or url.query))
        except ConnectionLost:
            self._drop()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_DELETE = _handle  # The names that http.server looks for.

    def _answer_api(self, path: str, parameters: dict[str, str]) -> None:
        request = Request(
            method=self.command,
            path=path,
            parameters=parameters,
            api_key=api_key_of(self.headers.get("Authorization", "")),
            idempotency_key=self.headers.get("Idempotency-Key"),
            version=self.headers.get("Stripe-Version"),
        )
        response = self.standin.serve(request, self)
        self._write(response.status, response.body, dict(response.headers))

    def _answer_admin(self, path: str, body: str) -> None:
        try:
            self._write(200, self.standin.administer(self.command, path, json.loads(body or "{}")), {})
        except ApiError as error:
            self._write(error.status, error.body, {})
        except (KeyError, TypeError, ValueError) as wrong:
            self._write(400, invalid(f"The admin request is not understood: {wrong!r}").body, {})

    def _write(self, status: int, body: Any, headers: dict[str, str]) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {
            **headers,
            "Content-Type": "application/json",
            "Content-Length": str(len(payload)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def trickle(self, seconds: float) -> None:
        """Send the head of an answer byte by byte, until the time is over or the peer is gone."""
        deadline = time.monotonic() + seconds
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Trickle: ")
        while time.monotonic() < deadline and not self.standin.stopping.wait(_TRICKLE_SECONDS):
            self.wfile.write(b".")
            self.wfile.flush()

    def _drop(self) -> None:
        self.close_connection = True
        # The peer sees the connection end where it expected an answer.
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:  # The name of the method overridden.
        """Say nothing: the ledger and its counts tell what happened."""


def api_key_of(authorization: str) -> str | None:
    """`Bearer sk_test_x`, or `Basic` with the key as the user: `curl -u sk_test_x:`."""
    kind, _, value = authorization.partition(" ")
    if kind == "Bearer":
        return value
    if kind != "Basic":
        return None
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        return None


def form(encoded: str) -> dict[str, str]:
    """Parameters by name; `x[]=a&x[]=b` becomes `x[0]` and `x[1]`."""
    given: dict[str, str] = {}
    for name, value in parse_qsl(encoded, keep_blank_values=True):
        if name.endswith("[]"):
            place = next(place for place in count() if f"{name[:-2]}[{place}]" not in given)
            name = f"{name[:-2]}[{place}]"
        given[name] = value
    return given


@contextmanager
def running_standin(host: str = "127.0.0.1", port: int = 0, *, seed: int = 0) -> Iterator[StandIn]:
    """A stand-in on a thread of this process; ends with the block."""
    standin = StandIn(host, port, seed=seed)
    thread = threading.Thread(target=standin.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield standin
    finally:
        standin.stop()
        thread.join()
