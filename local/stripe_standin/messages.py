"""What goes in and out of the engine: one HTTP request of Stripe's API, and its answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """One HTTP request, its form or query parameters flat: `{"metadata[order_id]": "…", "types[0]": "…"}`."""

    method: str
    path: str
    parameters: Mapping[str, str]
    api_key: str | None = None
    idempotency_key: str | None = None
    version: str | None = None
    """Of the header Stripe-Version; None is the account's default."""
    id: str | None = None
    """What the answer names in Request-Id."""

    @property
    def endpoint(self) -> str:
        """The method and the path, with * for each id: what Stripe counts requests by."""
        parts = self.path.strip("/").split("/")
        # "payment_intents" is the second part; an id, which has a _ as well, can only be the third.
        shown = ["*" if place == 2 and "_" in part else part for place, part in enumerate(parts)]
        return f"{self.method} /{'/'.join(shown)}"

    @property
    def remembers(self) -> bool:
        """Only a POST with a key is remembered."""
        return self.method == "POST" and bool(self.idempotency_key)


@dataclass(frozen=True)
class Response:
    """One HTTP answer."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ticket:
    """A request that may be executed; its key, if it has one, is in use until it is finished."""

    request: Request
    account_id: str
