"""The engine behind HTTP: one thread a connection, one lock around each step of a request, faults where ordered."""

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import requests

from local.stripe_standin.engine import Request, Response, StripeEngine, Ticket
from local.stripe_standin.errors import ApiError, invalid, missing, server_error
from local.stripe_standin.faults import Fault, FaultPlan, FaultRule
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
            engine, faults = self.engine, self.faults
            self.counts["requests"] += 1
            self.counts[f"{request.method} {request.path if request.method == 'POST' else '*'}"] += 1
            unstarted = faults.meet(request, unstarted=True)
        if unstarted is not None:
            return self._counted(self._refuse(unstarted))
        with self.lock:
            begun = engine.begin(request)
            rule = faults.meet(request, unstarted=False) if isinstance(begun, Ticket) else None
        if isinstance(begun, Response):
            return self._counted(begun)
        self.stopping.wait(self.latency_seconds)
        if rule is None:
            return self._counted(self._execute(engine, begun))
        return self._counted(self._with_fault(engine, begun, rule, connection))

    def _execute(self, engine: StripeEngine, ticket: Ticket, *, remember: Response | None = None) -> Response:
        with self.lock:
            response, remembered = engine.execute(ticket)
            engine.finish(ticket, remember or response, remembered=remembered or remember is not None)
        return remember or response

    def _with_fault(self, engine: StripeEngine, ticket: Ticket, rule: FaultRule, connection: "_Handler") -> Response:
        failed = Response(500, server_error().body, {"Stripe-Should-Retry": "false"})
        if rule.kind is Fault.ERROR_500_BEFORE:
            with self.lock:
                engine.finish(ticket, failed, remembered=True)
            return failed
        if rule.kind is Fault.LATENCY:
            self.stopping.wait(rule.seconds)
        response = self._execute(engine, ticket, remember=failed if rule.kind is Fault.ERROR_500_AFTER else None)
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

    def _refuse(self, rule: FaultRule) -> Response:
        match rule.kind:
            case Fault.RATE_LIMIT_429:
                error = ApiError(429, "invalid_request_error", "Too many requests.", code="rate_limit")
            case Fault.UNAVAILABLE_503:
                error = ApiError(503, "api_error", "Stripe is unavailable.")
            case Fault.UNAUTHORIZED_401:
                error = ApiError(401, "invalid_request_error", "Invalid API Key provided.")
            case _:
                self.stopping.wait(rule.seconds if rule.kind is Fault.HANG_BEFORE else 0)
                raise ConnectionLost
        return Response(error.status, error.body)

    def _counted(self, response: Response) -> Response:
        with self.lock:
            self.counts[f"status_{response.status}"] += 1
            if response.headers.get("Idempotent-Replayed"):
                self.counts["replays"] += 1
        return response

    # ------------------------------------------------------------ what tests and the demo steer

    def administer(self, method: str, path: str, given: dict[str, Any]) -> Any:
        """Answer one request under /_standin/ (see README.md)."""
        with self.lock:
            match method, path.split("/"):
                case "GET", ["ledger"]:
                    return self._ledger()
                case "POST", ["faults"]:
                    self.faults.rules += [FaultRule.from_json(rule) for rule in given["rules"]]
                    return {"rules": len(self.faults.rules)}
                case "GET", ["faults"]:
                    return {"rules": [asdict(rule) for rule in self.faults.rules]}
                case "DELETE", ["faults"]:
                    self.faults = FaultPlan()
                    return {"rules": 0}
                case "POST", ["clock"]:
                    self._move_clock(given)
                    return {"now": self.now()}
                case "POST", ["settings"]:
                    self._set(given)
                    return {}
                case "POST", ["reset"]:
                    self.reset()
                    return {}
                case "POST", ["payment_intents", intent_id, "authenticate"]:
                    return self.engine.authenticate(intent_id, succeed=given.get("succeed", True)).as_json()
                case "GET", ["webhooks"]:
                    return {"events": self.engine.events}
                case "POST", ["webhooks", "deliver"]:
                    events = list(self.engine.events)
                case _:
                    raise missing("admin endpoint", path, "path")
        return self._deliver_webhooks(events, given)

    def _ledger(self) -> dict[str, Any]:
        return {
            "charges": [asdict(charge) for charge in self.engine.charges],
            "payment_intents": [intent.as_json() for intent in self.engine.intents.values()],
            "refunds": self.engine.refunds,
            "counts": dict(self.counts),
        }

    def _move_clock(self, given: dict[str, Any]) -> None:
        if "now" in given:
            self.clock_offset_seconds = given["now"] - time.time()
        self.clock_offset_seconds += given.get("advance_seconds", 0)

    def _set(self, given: dict[str, Any]) -> None:
        self.latency_seconds = given.get("latency_seconds", self.latency_seconds)
        self.engine.search_lag_seconds = given.get("search_lag_seconds", self.engine.search_lag_seconds)
        self.webhook_url = given.get("webhook_url", self.webhook_url)
        self.webhook_secret = given.get("webhook_secret", self.webhook_secret)

    def _deliver_webhooks(self, events: list[dict[str, Any]], given: dict[str, Any]) -> dict[str, Any]:
        """Send the events, each delivery signed anew; `order` lists their places, so any order and repetition."""
        if self.webhook_url is None:
            raise invalid("Set webhook_url first.", param="webhook_url")
        chosen = [events[place] for place in given.get("order", range(len(events)))]
        statuses = []
        for event in chosen:
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
                self._answer_api(url.path, dict(parse_qsl(body or url.query, keep_blank_values=True)))
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
            api_key=self.headers.get("Authorization", "").removeprefix("Bearer ") or None,
            idempotency_key=self.headers.get("Idempotency-Key"),
        )
        response = self.standin.serve(request, self)
        self._write(response.status, response.body, dict(response.headers))

    def _answer_admin(self, path: str, body: str) -> None:
        try:
            self._write(200, self.standin.administer(self.command, path, json.loads(body or "{}")), {})
        except ApiError as error:
            self._write(error.status, error.body, {})

    def _write(self, status: int, body: Any, headers: dict[str, str]) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {
            **headers,
            "Content-Type": "application/json",
            "Content-Length": str(len(payload)),
            "Request-Id": f"req_{id(payload):x}",
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
