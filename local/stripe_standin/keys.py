"""Idempotency keys of one account. Source: Stripe documentation, "Idempotent requests"."""

from dataclasses import dataclass, field

from local.stripe_standin.errors import ApiError
from local.stripe_standin.messages import Request, Response

KEY_LENGTH_MAX = 255
KEY_RETENTION_SECONDS = 24 * 3600


@dataclass(frozen=True)
class StoredAnswer:
    """What a key stands for: the request that came first, and its answer once there is one."""

    request: Request
    created: float
    response: Response | None


@dataclass
class IdempotencyKeys:
    """The keys in use, and the answers that are remembered."""

    _stored: dict[str, StoredAnswer] = field(default_factory=dict)

    def begin(self, request: Request, now: float) -> Response | None:
        """The replay of the first answer, if there is one; otherwise the key is in use from now on.

        Raises:
            ApiError: 400 or 409, when the key cannot be used for this request, or not now.
        """
        key = request.idempotency_key
        if not request.remembers or key is None:
            return None
        if len(key) > KEY_LENGTH_MAX:
            raise ApiError(400, "idempotency_error", "Idempotency keys must be at most 255 characters.")
        earlier = self._stored.get(key)
        if earlier is None or _is_forgotten(earlier, now):
            self._stored[key] = StoredAnswer(request, now, None)
            return None
        return _replay(earlier, request)

    def finish(self, request: Request, response: Response, *, remembered: bool) -> None:
        """Store the answer, or free the key if the answer is not one to remember."""
        key = request.idempotency_key
        if not request.remembers or key is None:
            return
        if remembered:
            self._stored[key] = StoredAnswer(request, self._stored[key].created, response)
        else:
            del self._stored[key]

    def forget(self, key: str | None = None) -> int:
        """Forget this answer, or all of them, however young; returns how many that was."""
        forgotten = [
            name for name, stored in self._stored.items() if stored.response is not None and key in (None, name)
        ]
        for name in forgotten:
            del self._stored[name]
        return len(forgotten)


def _is_forgotten(stored: StoredAnswer, now: float) -> bool:
    """After 24 hours. A key in use is kept however old: forgetting it would let a second request in."""
    return stored.response is not None and stored.created <= now - KEY_RETENTION_SECONDS


def _replay(earlier: StoredAnswer, request: Request) -> Response:
    if earlier.response is None:
        raise ApiError(
            409,
            "idempotency_error",
            "There is currently another in-progress request using this Idempotent Key (that probably means you "
            "submitted twice, and the other request is still going through). Please try again later.",
            code="idempotency_key_in_use",
        )
    if (earlier.request.path, earlier.request.parameters) != (request.path, request.parameters):
        raise ApiError(
            400,
            "idempotency_error",
            "Keys for idempotent requests can only be used with the same endpoint and parameters they were first used "
            f"with. Try using a key other than '{request.idempotency_key}' if you meant to execute a different "
            "request.",
        )
    marks = {"Idempotent-Replayed": "true", "Original-Request": earlier.request.id or ""}
    return Response(earlier.response.status, earlier.response.body, {**earlier.response.headers, **marks})
