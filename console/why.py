"""Why an order was charged once, in a few sentences: lines ─► text. Pure."""

from collections.abc import Callable, Sequence

from console.lines import DUPLICATE, HELD, LEASED, TIMED_OUT, Line


def why_once(lines: Sequence[Line], charges: int | None) -> str:
    """What kept the deliveries from charging twice; "" if there is no charge, or nothing to explain.

    Args:
        lines: the order's, the earliest first.
        charges: that succeeded, by Stripe's ledger; None if it is not known.
    """
    worker = [line for line in lines if line.service == "charge_order" or line.message == TIMED_OUT]
    deliveries = len({line.delivery for line in worker if line.delivery})
    if charges != 1 or not deliveries:
        return ""
    said = [text for text, has_happened in _REASONS if has_happened(worker)]
    if leased := sum(line.message == LEASED for line in worker):
        said.append(f"A claim was refused {_times(leased)}, since a worker had the lease: the message came back later.")
    if ended := sum(line.message.startswith(DUPLICATE) for line in worker):
        said.append(f"A claim was refused {_times(ended)}, since the payment had ended: the message was deleted.")
    webhooks = sum(line.message == "event processed" for line in lines)
    if webhooks > 1:
        said.append(f"{webhooks} webhooks came: each had the row compared with Stripe, and not charged.")
    return " ".join([f"Delivered {_times(deliveries)}, charged once.", *said])


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _is_replayed(verb: str) -> Callable[[Sequence[Line]], bool]:
    return lambda lines: any(line.is_replay and line.verb == verb for line in lines)


def _is_held(lines: Sequence[Line]) -> bool:
    return any(line.message == HELD for line in lines)


def _is_retrieved_after_a_death(lines: Sequence[Line]) -> bool:
    died = next((line.at for line in lines if line.message == TIMED_OUT), None)
    return died is not None and any(line.verb == "retrieve" and line.at > died for line in lines)


def _confirms(lines: Sequence[Line], status: str) -> list[float]:
    return [line.at for line in lines if line.verb == "confirm" and line.fields.get("status") == status]


def _is_charged_despite_5xx(lines: Sequence[Line]) -> bool:
    return bool(_confirms(lines, "5xx")) and not _confirms(lines, "2xx")


def _is_charged_after_a_wait(lines: Sequence[Line]) -> bool:
    waits = [line.at for line in lines if line.message == "message waits"]
    return any(at > waits[0] for at in _confirms(lines, "2xx")) if waits else False


_DIED = """A worker died after Stripe had charged. The next one retrieved the PaymentIntent whose id was stored: it had
succeeded, so nothing was confirmed again."""
_ANSWER_LOST = """Stripe's answer to the confirm was lost. The confirm was sent again under its idempotency key, and
Stripe replayed its answer."""
_DESPITE_5XX = """Stripe answered the confirm with 5xx although it had charged, and replays that answer: what the
PaymentIntent showed afterwards decided."""
_WAITED = "Nothing could be charged at first: the message waited in its queue, and the attempt was made again."
_CREATED_AGAIN = "The create was sent again under its idempotency key, which led to the same PaymentIntent."
_HELD = """The order was so old that Stripe may have forgotten its keys: no PaymentIntent was created, and the order was
held until an operator had looked at Stripe."""
_REASONS = (
    (_DIED, _is_retrieved_after_a_death),
    (_ANSWER_LOST, _is_replayed("confirm")),
    (_DESPITE_5XX, _is_charged_despite_5xx),
    (_WAITED, _is_charged_after_a_wait),
    (_CREATED_AGAIN, _is_replayed("create")),
    (_HELD, _is_held),
)
