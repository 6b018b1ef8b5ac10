"""Idempotency keys of one account. Source: Stripe documentation, "Idempotent requests"."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from stripe_standin.errors import ApiError
from stripe_standin.messages import Request, Response

KEY_LENGTH_MAX = 255
KEY_RETENTION_SECONDS = 24 * 3600
_IN_USE = (
    "There is currently another in-progress request using this Idempotent Key (that probably means you submitted "
    "twice, and the other request is still going through). Please try again later."
)


@dataclass(frozen=True)
class StoredResponse:
    """The first request with a key, and its response; None while the request runs."""

    request: Request
    created: float
    response: Response | None


@dataclass
class IdempotencyKeys:
    """The keys in use and the stored responses."""

    forgets: Callable[[str], bool] = lambda _: True
    """Whether a key of 24 hours is gone: Stripe says that it can be by then, not that it is."""
    _stored: dict[str, StoredResponse] = field(default_factory=dict)

    def __contains__(self, key: object) -> bool:
        return key in self._stored

    def begin(self, request: Request, now: float) -> Response | None:
        """Returns the replay of a stored response; None if the key is new, which is then in use.

        Raises:
            ApiError: 400, the key is too long or belongs to another request; 409, it is in use.
        """
        key = request.idempotency_key
        if not request.uses_idempotency_key or key is None:
            return None
        if len(key) > KEY_LENGTH_MAX:
            raise ApiError(400, "idempotency_error", "Idempotency keys must be at most 255 characters.")
        first = self._stored.get(key)
        if first is None or (_has_expired(first, now) and self.forgets(key)):
            self._stored[key] = StoredResponse(request, now, None)
            return None
        return _replay(first, request)

    def finish(self, request: Request, response: Response, *, stored: bool) -> None:
        """Store the response, or delete the key."""
        key = request.idempotency_key
        if request.uses_idempotency_key and key is not None:
            begun = self._stored.pop(key)
            if stored:
                self._stored[key] = replace(begun, response=response)

    def delete(self, key: str | None = None) -> int:
        """Delete one key, or all that are not in use, before they expire. Returns the number of deleted keys."""
        deleted = [name for name, stored in self._stored.items() if stored.response is not None and key in (None, name)]
        for name in deleted:
            del self._stored[name]
        return len(deleted)


def _has_expired(stored: StoredResponse, now: float) -> bool:
    """Stripe deletes a key after 24 hours; never one in use, which would let a second request run."""
    return stored.response is not None and stored.created <= now - KEY_RETENTION_SECONDS


def _replay(first: StoredResponse, request: Request) -> Response:
    """The texts are as recorded from test mode by others (README.md)."""
    if first.response is None:
        raise ApiError(409, "idempotency_error", _IN_USE, code="idempotency_key_in_use")
    only = "with the same parameters they were first used with"
    if first.request.path != request.path:
        only = f"for the same endpoint they were first used for ('{request.path}' vs '{first.request.path}')"
    if (first.request.path, first.request.parameters) != (request.path, request.parameters):
        text = f"Keys for idempotent requests can only be used {only}. Try using a key other than "
        text += f"'{request.idempotency_key}' if you meant to execute a different request."
        raise ApiError(400, "idempotency_error", text)
    headers = {"Idempotent-Replayed": "true", "Original-Request": first.request.id or ""}
    return replace(first.response, headers={**first.response.headers, **headers})
