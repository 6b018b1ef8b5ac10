"""The engine behind HTTP: a thread for each connection, a lock around each step of a request, injected faults."""

import base64
import binascii
import json
import mimetypes
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from stripe_standin import outgoing
from stripe_standin.admin import ACTS, Admin
from stripe_standin.engine import StripeEngine
from stripe_standin.errors import ApiError, invalid, missing
from stripe_standin.faults import Fault, FaultPlan, FaultRule
from stripe_standin.messages import Request, Response, Ticket
from stripe_standin.webhook_endpoints import WebhookEndpoint, signature

ADMIN_PREFIX = "/_standin/"
_BROWSER = Path(__file__).with_name("browser")
_BROWSER_FILES = {f"/{each.name}": each for each in _BROWSER.iterdir()}
"""A stub of Stripe.js, and what it shows in frames."""
_READ_ONLY = ("ledger", "events")
"""What the admin API also answers to a GET."""
_TRICKLE_SECONDS = 0.5
_OVERLAP_EVERY_SECONDS = 0.05
_WEBHOOKS_EVERY_SECONDS = 0.5


class ConnectionClosed(Exception):
    """A fault closes the connection without a response."""


class StandIn(ThreadingHTTPServer):
    """The HTTP server. `lock` guards all state, and is never held while waiting."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, host: str, port: int) -> None:
        self.lock, self.stopping = threading.Lock(), threading.Event()
        self.clock: Callable[[], float] = time.time
        self.latency_seconds = 0.0
        self.webhook_url: str | None = None
        self.webhook_secret = "whsec_local"
        self.webhooks_by_themselves = False
        """Whether events are delivered as they happen; otherwise the admin API delivers them."""
        self.hosts = {host, "localhost", "127.0.0.1"}
        """The names by which a request may call this server."""
        self.reset()
        super().__init__((host, port), _Handler)

    @property
    def base_url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"

    def now(self) -> float:
        return self.clock() + self.clock_offset_seconds

    def reset(self) -> None:
        """Delete all state: objects, keys, faults, counts, the clock's offset."""
        self.clock_offset_seconds = 0.0
        self.engine, self.faults = StripeEngine(self.now), FaultPlan()
        self.counts: Counter[str] = Counter()

    # ------------------------------------------------------------ one request of Stripe's API

    def serve(self, request: Request, connection: "_Handler") -> Response:
        """Process one request, or raise ConnectionClosed. HANG_AFTER writes to the connection itself."""
        with self.lock:
            # After a reset, this request still charges into the old engine, not into the next test's ledger.
            engine = self.engine
            request, headers = engine.identify(request)
            self.counts.update(("requests", f"{request.method} {request.path}"))
        response = self._respond(engine, request, connection)
        with self.lock:
            self.counts["replays"] += "Idempotent-Replayed" in response.headers
        return replace(response, headers={**headers, **response.headers})

    def _respond(self, engine: StripeEngine, request: Request, connection: "_Handler") -> Response:
        with self.lock:
            faults, created_with = self.faults, engine.created_with(request)
            rule = faults.find(request, before_execution=True, created_with=created_with)
            if rule is not None and rule.error_response is None:
                raise ConnectionClosed
            if rule is not None and rule.error_response is not None:
                return rule.error_response
            ticket = engine.begin(request)
            if isinstance(ticket, Response):
                return ticket
            rule = faults.find(request, before_execution=False, created_with=created_with)
        # Executed midway: a client that is killed while it waits may have charged or not.
        self.stopping.wait(self.latency_seconds / 2)
        response = self._executed(engine, ticket, rule, connection)
        self.stopping.wait(self.latency_seconds / 2)
        return response

    def _executed(
        self, engine: StripeEngine, ticket: Ticket, rule: FaultRule | None, connection: "_Handler"
    ) -> Response:
        kind, seconds = (rule.kind, rule.seconds) if rule else (None, 0)
        if kind is Fault.LATENCY:
            self.stopping.wait(seconds)
        if rule and kind is Fault.OVERLAP:
            deadline = time.monotonic() + seconds
            while rule.hits != rule.times and time.monotonic() < deadline:
                if self.stopping.wait(_OVERLAP_EVERY_SECONDS):
                    break
        with self.lock:
            response = engine.carry_out(ticket, rule)
        if kind is Fault.HANG_AFTER:
            connection.trickle(seconds)
        if kind in (Fault.DROP_AFTER, Fault.HANG_AFTER):
            raise ConnectionClosed
        return response

    # ------------------------------------------------------------ the admin API

    def act(self, method: str, name: str, given: dict[str, Any]) -> Any:
        """Process one request under /_standin/ (see admin.py)."""
        if name not in ACTS or (method != "POST" and name not in _READ_ONLY):
            raise missing("admin endpoint", name, "path")
        # A delivery waits for its receiver, which may call this stand-in.
        with nullcontext() if name == "deliver_webhooks" else self.lock:
            self.engine.run_due()
            result = getattr(Admin(self), name)(**given)
            # The request may have moved the clock.
            self.engine.run_due()
        return result

    def deliver(self, events: Sequence[Mapping[str, Any]]) -> list[int]:
        """Send events, each delivery with a new signature; returns the HTTP statuses."""
        with self.lock:
            endpoints = list(self.engine.account.all(WebhookEndpoint).values())
        if self.webhook_url is None and not endpoints:
            raise invalid("Set webhook_url first.", param="webhook_url")
        statuses = []
        for event in events:
            given = [(self.webhook_url, self.webhook_secret)] if self.webhook_url else []
            created = [(each.url, each.secret) for each in endpoints if each.gets(event["type"])]
            payload = json.dumps(event)
            for url, secret in given + created:
                header = signature(payload, secret, int(self.now()))
                headers = {"Stripe-Signature": header, "Content-Type": "application/json"}
                statuses.append(outgoing.send("POST", url, payload, headers)[0])
        return statuses

    def deliver_new_events(self) -> None:
        """Deliver each event as it happens, until the stand-in stops. A failed delivery is not repeated."""
        seen = 0
        while not self.stopping.wait(_WEBHOOKS_EVERY_SECONDS):
            with self.lock:
                if self.webhooks_by_themselves:
                    self.engine.run_due()
                events = list(self.engine.account.events)
            new, seen = events[min(seen, len(events)) :], len(events)
            if self.webhooks_by_themselves and new:
                with suppress(OSError, ApiError):
                    self.deliver(new)


class _Handler(BaseHTTPRequestHandler):
    """Reads a request, writes the response."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Seconds until the thread of an idle keep-alive connection ends.
    timeout = 300

    @property
    def standin(self) -> StandIn:
        return cast(StandIn, self.server)

    def parse_request(self) -> bool:
        """Refuse a page of another site, which runs in the developer's browser on the same machine.

        DNS rebinding sends the site's own name as the Host, never an address. A form, or fetch without CORS, sends its
        Origin.
        """
        if not super().parse_request():
            return False
        host, is_of_admin = self.headers.get("Host", ""), urlsplit(self.path).path.startswith(ADMIN_PREFIX)
        name = host.partition(":")[0]
        if name not in self.standin.hosts and not re.fullmatch(r"[0-9.]+", name):
            self.send_error(403, "Another Host", "Start the stand-in with --host and the name that you call it by.")
        elif is_of_admin and self.headers.get("Origin", f"http://{host}") != f"http://{host}":
            self.send_error(403, "Another Origin")
        else:
            return True
        return False

    def _handle(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        try:
            if url.path in _BROWSER_FILES:
                content_type = f"{mimetypes.guess_type(url.path)[0]}; charset=utf-8"
                self._send(200, _BROWSER_FILES[url.path].read_bytes(), {"Content-Type": content_type})
            elif url.path.startswith(ADMIN_PREFIX):
                self._act(url.path.removeprefix(ADMIN_PREFIX), body)
            else:
                response = self.standin.serve(self._request(url.path, parse_form(body or url.query)), self)
                self._send_json(response.status, response.body, response.headers)
        except ConnectionClosed:
            self.close_connection = True
            # The client sees the connection close instead of a response.
            self.connection.shutdown(socket.SHUT_RDWR)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_DELETE = _handle  # http.server requires these names.

    def _request(self, path: str, parameters: dict[str, str]) -> Request:
        return Request(
            method=self.command,
            path=path,
            parameters=parameters,
            api_key=api_key_of(self.headers.get("Authorization", "")),
            idempotency_key=self.headers.get("Idempotency-Key"),
            version=self.headers.get("Stripe-Version"),
            account=self.headers.get("Stripe-Account"),
        )

    def _act(self, name: str, body: str) -> None:
        try:
            self._send_json(200, self.standin.act(self.command, name, json.loads(body or "{}")))
        except ApiError as error:
            self._send_json(error.status, error.body)
        except (LookupError, TypeError, ValueError) as wrong:
            self._send_json(400, invalid(f"The admin request is invalid: {wrong!r}").body)

    def _send_json(self, status: int, body: Any, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        payload = json.dumps(body, default=vars).encode()
        self._send(status, payload, {**headers, "Content-Type": "application/json"})

    def _send(self, status: int, payload: bytes, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)  # The engine gives the Date, by its own clock.
        for name, value in {**headers, "Content-Length": str(len(payload))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def trickle(self, seconds: float) -> None:
        """Send a response header byte by byte, until the time is over or the client disconnects."""
        deadline = time.monotonic() + seconds
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Trickle: ")
        while time.monotonic() < deadline and not self.standin.stopping.wait(_TRICKLE_SECONDS):
            self.wfile.write(b".")
            self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # The parameter names of the overridden method.
        """Log nothing: the ledger has the counts."""


def api_key_of(authorization: str) -> str | None:
    """The API key of `Bearer sk_test_x`, or of `Basic` with the key as the user name: `curl -u sk_test_x:`."""
    kind, _, value = authorization.partition(" ")
    if kind == "Basic":
        with suppress(binascii.Error, UnicodeDecodeError):
            return base64.b64decode(value, validate=True).decode().partition(":")[0]
    return value if kind == "Bearer" else None


def parse_form(encoded: str) -> dict[str, str]:
    """Parse a form or query string. Each `x[]` gets a number of its own: its position."""
    pairs = enumerate(parse_qsl(encoded, keep_blank_values=True))
    return {name.replace("[]", f"[{index}]"): value for index, (name, value) in pairs}


@contextmanager
def running_standin(host: str = "127.0.0.1", port: int = 0) -> Iterator[StandIn]:
    """A stand-in on a thread of this process, until the block ends."""
    standin = StandIn(host, port)
    threads = [
        threading.Thread(target=standin.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True),
        threading.Thread(target=standin.deliver_new_events, daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield standin
    finally:
        standin.stopping.set()
        standin.shutdown()
        standin.server_close()
        for thread in threads:
            thread.join()
