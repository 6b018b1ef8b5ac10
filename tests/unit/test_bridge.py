"""Containers reach what listens on 127.0.0.1, by way of Docker's bridge."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

from local.bridge import open_to_containers


class _Echo(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_a_local_server_is_reached_by_way_of_the_bridge() -> None:
    """Requests and answers of any size pass; a server elsewhere, as Stripe's, needs no way."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_port}"
        with open_to_containers([here, "https://api.stripe.com"], bridge="127.0.0.2") as addresses:
            assert addresses.keys() == {here}
            assert addresses[here].startswith("http://127.0.0.2:")
            body = "x" * 1_000_000
            assert requests.post(addresses[here], data=body, timeout=60).text == body
        server.shutdown()
