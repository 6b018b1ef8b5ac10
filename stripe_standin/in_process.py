"""Stripe's Python SDK over the engine, with no server and no thread.

    client = stripe.StripeClient("sk_test_x", http_client=InProcess(StripeEngine(time.time)))

Everything of the SDK runs, from the form that it encodes to the objects and errors that it makes of an answer. Only the
connection is left out, and with it the faults of a connection: those need the server.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import stripe

from stripe_standin.engine import StripeEngine
from stripe_standin.messages import Request
from stripe_standin.server import api_key_of, parse_form


class InProcess(stripe.HTTPClient):
    """An HTTP client of the SDK's that calls the engine."""

    name = "in process"

    def __init__(self, engine: StripeEngine) -> None:
        super().__init__()
        self._engine = engine

    def request(
        self, method: str, url: str, headers: Mapping[str, str] | None, post_data: Any = None, **_: Any
    ) -> tuple[str, int, Mapping[str, str]]:
        """Answer one request of the SDK's, which calls this for each of its tries."""
        sent, given = urlsplit(url), headers or {}
        request = Request(
            method=method.upper(),
            path=sent.path,
            parameters=parse_form(post_data or sent.query),
            api_key=api_key_of(given.get("Authorization", "")),
            idempotency_key=given.get("Idempotency-Key"),
            version=given.get("Stripe-Version"),
        )
        request, own = self._engine.identify(request)
        response = self._engine.respond(request)
        return json.dumps(response.body), response.status, {**own, **response.headers}

    def close(self) -> None:
        """Nothing is open."""
