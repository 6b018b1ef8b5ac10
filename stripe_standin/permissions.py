"""Restricted API keys: which permission each endpoint needs, and which of them a key has used.

A key has the permissions that `StandInAdmin.restrict_api_key` gave it; before that it has all. Write includes read.
Sources: Stripe documentation, "Restricted API keys", "Permissions reference". The error is as public issues quote it:
403, code `more_permissions_required`, and the message names the permission.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stripe_standin.errors import ApiError
from stripe_standin.messages import Request

READ, WRITE = "read", "write"

_RESOURCES: Mapping[str, str] = {
    "balance": "balance",
    "balance_transactions": "balance",
    "charges": "charge",
    "disputes": "dispute",
    "events": "event",
    "payment_intents": "payment_intent",
    "payment_methods": "payment_method",
    "refunds": "charge",  # The Dashboard has one row for both, "Charges and Refunds".
    "webhook_endpoints": "webhook",
}
"""What a permission is called, by the first part of the path after /v1/."""


def needed_for(request: Request) -> str | None:
    """The permission that a request needs, as `payment_intent_write`; None for an unknown path."""
    resource = _RESOURCES.get(request.path.removeprefix("/v1/").split("/")[0])
    return f"{resource}_{READ if request.method == 'GET' else WRITE}" if resource else None


def is_included(needed: str, given: Iterable[str]) -> bool:
    """Whether one of these permissions is the needed one, or includes it."""
    resource, _, access = needed.rpartition("_")
    return needed in given or (access == READ and f"{resource}_{WRITE}" in given)


@dataclass
class ApiKeys:
    """The restricted keys, and what each key has asked for."""

    _given: dict[str, frozenset[str]] = field(default_factory=dict)
    _used: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def restrict(self, api_key: str, permissions: Iterable[str]) -> None:
        """Give the key these permissions, and no other."""
        self._given[api_key] = frozenset(permissions)

    def check(self, request: Request, account_id: str) -> None:
        """Note what the request asks for. Raises ApiError (403) if its key may not."""
        needed, api_key = needed_for(request), request.api_key or ""
        if needed is None:
            return
        self._used[api_key].add(needed)
        given = self._given.get(api_key)
        if given is not None and not is_included(needed, given):
            raise ApiError(
                403,
                "invalid_request_error",
                f"The provided key '{api_key[:8]}***{api_key[-4:]}' does not have the required permissions for this "
                f"endpoint on account '{account_id}'. Having the 'rak_{needed}' permission would allow this request "
                "to continue.",
                code="more_permissions_required",
            )

    @property
    def used(self) -> dict[str, list[str]]:
        """By key, every permission that its requests needed, refused requests too; without a read that a write of
        the same resource includes."""
        return {
            api_key: sorted(each for each in needed if not is_included(each, needed - {each}))
            for api_key, needed in self._used.items()
        }
