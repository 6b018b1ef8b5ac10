"""Why an order was charged once, in a few sentences: lines ─► text. Pure."""

from collections.abc import Iterator, Sequence

from lab.console.lines import DUPLICATE, HELD, LEASED, TIMED_OUT, WAITS, Line


def why_once(lines: Sequence[Line], charges: int | None) -> str:
    """What kept the deliveries from charging twice; "" if there is no charge, or nothing to explain.

    Args:
        lines: the order's, the earliest first.
        charges: those that succeeded, by Stripe's ledger; None if it was not read.
    """
    worker = [line for line in lines if line.service == "charge_order"]
    deliveries = len({line.delivery for line in worker if line.delivery})
    if charges != 1 or not deliveries:
        return ""
    said = [f"Delivered {_times(deliveries)}, charged once.", *_reasons(worker)]
    if (webhooks := sum(line.message == "event processed" for line in lines)) > 1:
        said.append(f"{webhooks} webhooks came: each had the row compared with Stripe, and not charged.")
    return " ".join(said)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _reasons(lines: Sequence[Line]) -> Iterator[str]:
    died, waited = ([line.at for line in lines if line.message == message][:1] for message in (TIMED_OUT, WAITS))
    confirmed = [line.at for line in lines if line.verb == "confirm" and line.fields.get("status") == "2xx"]
    refused = [line.at for line in lines if line.verb == "confirm" and line.fields.get("status") == "5xx"]
    replayed = {line.verb for line in lines if line.is_replay}
    if any(line.verb == "retrieve" and line.at > died[0] for line in lines if died):
        yield "A worker died after Stripe had charged. The next one retrieved the PaymentIntent whose id was stored:"
        yield "it had succeeded, so nothing was confirmed again."
    if "confirm" in replayed:
        yield "Stripe's answer to the confirm was lost. The confirm was sent again under its idempotency key, and"
        yield "Stripe replayed its answer."
    if refused and not confirmed:
        yield "Stripe answered the confirm with 5xx although it had charged, and replays that answer: what the"
        yield "PaymentIntent showed afterwards decided."
    if waited and confirmed and confirmed[-1] > waited[0]:
        yield "Nothing could be charged at first: the message waited in its queue, and the attempt was made again."
    if "create" in replayed:
        yield "The create was sent again under its idempotency key, which led to the same PaymentIntent."
    if any(line.message == HELD for line in lines):
        yield "The order was so old that Stripe may have forgotten its keys: no PaymentIntent was created, and the"
        yield "order is held until an operator has looked at Stripe."
    if leased := sum(line.message == LEASED for line in lines):
        yield f"A claim was refused {_times(leased)}, since a worker had the lease: the message came back later."
    if ended := sum(line.message.startswith(DUPLICATE) for line in lines):
        yield f"A claim was refused {_times(ended)}, since the payment had ended: the message was deleted."
