"""The customer's page (web/) on this machine: its files, config.json, prices.json, and the headers that a host of it
should send.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from local.project_files import PROJECT

WEB = PROJECT / "web"
PRICES = PROJECT / "functions/orders_api/prices.json"


def headers_for(config: Mapping[str, str]) -> dict[str, str]:
    """The headers of every file of the page.

    The Content-Security-Policy allows Stripe.js, its frames and its API (Stripe documentation, "Integration security
    guide"), our API and the issuer, and nothing else. docs/guides/page.md has the same for other hosts.
    """
    stripe, frames, stripe_api = _origin(config["stripe_js"]), "", ""
    if stripe == "https://js.stripe.com":
        stripe += " https://*.js.stripe.com"
        frames, stripe_api = "https://hooks.stripe.com", "https://api.stripe.com"
    policy = {
        "default-src": "'none'",
        "script-src": f"'self' {stripe}",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": f"'self' {_origin(config['api'])} {_origin(config['token_url'])} {stripe_api}",
        "frame-src": f"{stripe} {frames}",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value.strip()}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "strict-origin-when-cross-origin",
        "Cache-Control": "no-cache",
    }


@contextmanager
def running_page(server: ThreadingHTTPServer, config: Mapping[str, str]) -> Iterator[str]:
    """Serve the page with this configuration until the block ends; returns its address."""
    server.RequestHandlerClass = partial(_Files, config)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


class _Files(SimpleHTTPRequestHandler):
    def __init__(self, config: Mapping[str, str], *args: Any) -> None:
        self._config = config
        super().__init__(*args, directory=str(WEB))

    def do_GET(self) -> None:
        generated = {"/config.json": json.dumps(self._config).encode, "/prices.json": PRICES.read_bytes}
        make = generated.get(urlsplit(self.path).path)
        if make is None:
            return super().do_GET()
        body = make()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        for name, value in headers_for(self._config).items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
