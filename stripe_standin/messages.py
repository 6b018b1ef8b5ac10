"""The engine's input and output: one HTTP request to Stripe's API and its response."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """One HTTP request. Form or query parameters are flat: `{"metadata[order_id]": "…", "types[0]": "…"}`."""

    method: str
    path: str
    parameters: Mapping[str, str]
    api_key: str | None = None
    idempotency_key: str | None = None
    version: str | None = None
    """The header Stripe-Version; None is the account's default."""
    id: str | None = None
    """The response's Request-Id."""
    account: str | None = None
    """The header Stripe-Account. There is no Connect: a key has access to its own account alone."""

    @property
    def is_of_a_page(self) -> bool:
        """Whether it has a publishable key, which anyone can read in a page."""
        return (self.api_key or "").startswith("pk_")

    @property
    def uses_idempotency_key(self) -> bool:
        """Stripe ignores the key of a GET or DELETE."""
        return self.method == "POST" and bool(self.idempotency_key)


@dataclass(frozen=True)
class Response:
    """One HTTP response."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ticket:
    """A request that may be executed; its idempotency key is in use until `finish`."""

    request: Request
    account_id: str
    received_at: int
    """In epoch seconds."""
