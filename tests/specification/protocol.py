"""The charge protocol, one request to DynamoDB or Stripe a step, against the world of world.py.

Each function is what a worker does at one point: it yields every way in which that can end. `broken` names rules that
are left out, to see that this is noticed; read past it.
"""

from collections.abc import Callable, Iterator

from tests.specification.world import (
    CANCELED,
    DECLINED,
    ERROR,
    NEEDS_REVIEW,
    OLD,
    OPEN,
    PENDING,
    REQUIRES_ACTION,
    SUCCEEDED,
    YOUNG,
    Row,
    State,
    Step,
    Worker,
    by_itself,
    cancel,
    confirm,
    create,
    end,
    go,
    post,
    starts,
)

Rules = frozenset[str]
NONE_BROKEN: Rules = frozenset()
UNPAID = (PENDING, DECLINED, REQUIRES_ACTION)


def steps(s: State, broken: Rules = NONE_BROKEN) -> Iterator[Step]:
    """Every state that can follow, and what happened."""
    yield from by_itself(s)
    for started, w in starts(s):
        for label, after in _start(started, w, broken):
            yield f"{w.kind}#{w.id} {label}", after
    for w in s.workers:
        for label, after in _PROTOCOL[w.at](s, w, broken):
            yield f"{w.kind}#{w.id} {label}", after


def _start(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """A delivery claims. A cancellation first leaves its request in the row, for whoever holds it: that takes no lease."""
    if w.kind == "delivery":
        yield from _claim(s, w, broken)
    elif w.kind == "reconciler":
        yield from _reconcile(s, w, broken)
    elif (row := s.row or Row()).state in UNPAID:
        row = row._replace(cancel_requested=True)
        requested = go(s._replace(row=row), w, "claim", row=row._replace(lease_owner=0))
        yield "writes the request to cancel", requested
    else:
        yield f"finds it {row.state}", end(s, w)


def _claim(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """1. Claim: one conditional write, which takes the lease under a new random owner."""
    row = s.row or Row(w.attempt or 1)
    if w.kind == "delivery":
        is_claimable = (
            row.state in UNPAID if w.attempt > row.attempt else (w.attempt, PENDING) == (row.attempt, row.state)
        )
    else:
        is_claimable = row.state in UNPAID and row.cancel_requested
    if w.kind == "cancel" and w.row.intent >= 0:
        yield "meets a live lease", go(s, w, "cancel beside the lease")
    if not is_claimable:
        yield "is a duplicate, or superseded", end(s, w)
        return
    row = row._replace(attempt=max(row.attempt, w.attempt), state=PENDING, lease_owner=w.id)
    claimed, copy = s._replace(row=row), row._replace(lease_owner=0)
    w = w._replace(kind="holder", attempt=0, row=copy, intent=row.intent)
    if row.intent >= 0:
        yield "claims", go(claimed, w, "retrieve")
    elif s.row and "lookup only for a new row" in broken:
        yield "claims", go(claimed, w, "create", looked_up=True)
    else:
        yield from _ensure(claimed, w, "claims", broken)


def _cancel_beside_the_lease(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """Cancels what the row named, without the lease, and leaves the row to its holder. CANCELED only on Stripe's word."""
    after = cancel(s, w.row.intent, "by_customer")
    status = after.intents[w.row.intent].status
    words = [CANCELED] if status == "by_customer" or "CANCELED beside the lease without Stripe's word" in broken else []
    yield f"cancels: {status}", end(after._replace(said=after.said.union(words)), w)


def _ensure(s: State, w: Worker, label: str, broken: Rules) -> Iterator[Step]:
    """2. Ensure a PaymentIntent. An order that the clock calls old is looked up first, each time. A clock may be wrong."""
    if w.row.cancel_requested and "CANCELED without a trace" in broken:
        yield label, go(s, w, "finalize", outcome=CANCELED)
        return
    if s.age == YOUNG or "no lookup past 23 h" in broken:
        yield label, go(s, w, "create")
    if (s.age == OLD or s.left.skew) and "no lookup past 23 h" not in broken:
        yield f"{label}, the clock says old", go(s, w, "look up")


def _create(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """Without confirm: no money moves. After a 500 that is stored the next generation will do."""
    generation = w.row.generation
    for label, after, answer, is_replay in post(s, ("create", generation), lambda s: create(s, generation)):
        if answer == "refused":
            outcome = CANCELED if w.row.cancel_requested else DECLINED
            yield f"creates: {label}", go(after, w, "finalize", outcome=outcome)
        elif isinstance(answer, int):
            row = w.row._replace(intent=answer)
            yield f"creates: {label}", go(after, w, "write", row=row, is_new=not is_replay)
        else:
            if is_replay and s.row and _holds(s, w):
                after = after._replace(row=s.row._replace(generation=generation + 1))
            yield f"creates: {label}", end(after, w)


def _write(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """The id is written before money can move: on the lease, and on the id that it replaces."""
    if w.is_new and not w.looked_up and s.age == OLD and not {"late create trusted", "no lookup past 23 h"} & broken:
        yield "has created too late", go(s, w, "look up", row=w.row._replace(intent=w.intent), is_new=False)
    elif s.row and (_holds(s, w, broken) or "id written without the lease" in broken):
        row = s.row._replace(intent=w.row.intent, generation=w.row.generation)
        is_trusted = w.is_new or "no retrieve after a replayed create" in broken
        at = "cancel" if row.cancel_requested else "confirm" if is_trusted else "retrieve"
        after = s._replace(row=row)
        yield "writes the id", go(after, w, at, row=row._replace(lease_owner=0), intent=row.intent, is_new=False)
    else:
        yield "has lost its lease", end(s, w)


def _look_up(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """All that Stripe has of the order, complete. What is merely found is never confirmed."""
    found = [intent.status for intent in s.intents]
    still_open = [index for index, status in enumerate(found) if status in OPEN]
    if found.count("succeeded") > 1:
        yield "finds two paid", go(s, w, "finalize", outcome=NEEDS_REVIEW)
    elif "succeeded" in found:
        paid = w.row._replace(intent=found.index("succeeded"))
        yield "finds it paid", go(s, w, "finalize", outcome=SUCCEEDED, row=paid)
    elif "processing" in found:
        yield "finds it processing", end(s, w)
    elif still_open and "adopting what was found" in broken:
        adopted = w.row._replace(intent=still_open[0], generation=s.intents[still_open[0]].generation)
        yield "adopts it", go(s, w, "write", row=adopted, looked_up=True)
    elif still_open and "what is found stays open" not in broken:
        yield f"finds {still_open[0]} open, and cancels it", cancel(go(s, w, "look up"), still_open[0], "abandoned")
    elif "by_customer" in found and "what is found canceled is no trace" not in broken:
        canceled = w.row._replace(intent=found.index("by_customer"))
        yield "finds it canceled", go(s, w, "finalize", outcome=CANCELED, row=canceled)
    else:
        generation = max([w.row.generation, *(intent.generation + 1 for intent in s.intents)])
        yield "finds nothing open", go(s, w, "create", row=w.row._replace(generation=generation), looked_up=True)


def _retrieve(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """3. What the PaymentIntent is, decides. A decline is this attempt's if it made a charge that the row does not know
    from the decline before, or if this attempt's confirm has an answer; the payment method's name would not tell it from
    the same card's decline before."""
    intent, label = s.intents[w.row.intent], f"retrieves: {s.intents[w.row.intent].status}"
    is_canceled = intent.status in ("by_customer", *(["abandoned"] if "abandoned taken for canceled" in broken else []))
    is_ours = w.replayed not in ("", ERROR) or "a decline known by its card" in broken
    is_ours = is_ours or (w.replayed == ERROR and "a stored 500 taken for an answer" in broken)
    is_ours = is_ours or (intent.charge != w.row.declined_charge and "no charge of the decline before" not in broken)
    if intent.status == "succeeded":
        yield label, go(s, w, "finalize", outcome=SUCCEEDED)
    elif is_canceled:
        yield label, go(s, w, "finalize", outcome=CANCELED)
    elif intent.status in ("abandoned", "by_stripe"):
        yield from _next_generation(s, w, label, broken)
    elif intent.status == "processing":
        if "a generation beside processing" in broken:
            yield from _next_generation(s, w, label, broken)
        else:
            yield label, end(s, w)
    elif w.row.cancel_requested and "a request to cancel is overlooked" not in broken:
        yield label, go(s, w, "cancel")
    elif intent.status == "requires_action" and intent.attempt == w.row.attempt:
        yield label, go(s, w, "finalize", outcome=REQUIRES_ACTION)
    elif intent.status == "declined" and is_ours:
        yield label, go(s, w, "finalize", outcome=DECLINED, row=w.row._replace(declined_charge=intent.charge))
    elif (intent.status == "requires_action" or w.replayed) and "the next one without canceling" in broken:
        yield from _next_generation(s, w, label, broken)
    elif intent.status == "requires_action" or w.replayed:
        yield label, go(s, w, "abandon")
    else:
        yield label, go(s, w, "confirm")


def _next_generation(s: State, w: Worker, label: str, broken: Rules) -> Iterator[Step]:
    w = w._replace(row=w.row._replace(generation=w.row.generation + 1), replayed="", looked_up=False)
    yield from _ensure(s, w, label, broken)


def _confirm(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """4. Confirm, under one key for an attempt and PaymentIntent. A replay or a refusal says nothing: retrieve."""
    index, attempt = w.row.intent, w.row.attempt
    key = ("confirm", index, attempt, *([w.id] if "a second confirm key" in broken else []))
    for label, after, answer, is_replay in post(s, key, lambda s: confirm(s, index, attempt)):
        is_trusted = not is_replay or "no retrieve after a replayed confirm" in broken
        if answer in ("unexpected state", ERROR) and is_replay or answer == "unexpected state" or not is_trusted:
            then = go(after, w, "retrieve", replayed=str(answer) if is_replay else "")
        elif answer in ("processing", ERROR):
            then = end(after, w)
        else:
            charge = after.intents[index].charge if answer == "declined" else w.row.declined_charge
            then = go(after, w, "finalize", outcome=str(answer).upper(), row=w.row._replace(declined_charge=charge))
        yield f"confirms {index}: {label}", then


def _cancel(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """The one escape: cancel, then next. For the customer it is a trace that outlives the table."""
    if w.at == "cancel" and "CANCELED without Stripe's word" in broken:
        yield "does not wait for Stripe", go(s, w, "finalize", outcome=CANCELED)
    else:
        reason = "by_customer" if w.at == "cancel" else "abandoned"
        yield f"cancels {w.row.intent}: {reason}", cancel(go(s, w, "retrieve"), w.row.intent, reason)


def _finalize(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """5. Finalize: on the lease owner, the attempt, and unfinished."""
    row = s.row or Row(0)
    is_owner = row.lease_owner == w.id or bool({"finalize without the lease", "finalize on nothing"} & broken)
    is_same = row.attempt == w.row.attempt or bool({"finalize without the attempt", "finalize on nothing"} & broken)
    if s.row and is_owner and is_same and (row.state == PENDING or "finalize what is finished" in broken):
        yield from _say(s, w, row._replace(intent=w.row.intent, declined_charge=w.row.declined_charge))
    else:
        yield "is too late to finalize", end(s, w)


def _say(s: State, w: Worker, row: Row) -> Iterator[Step]:
    said = {DECLINED: [f"{DECLINED} {row.attempt}"], SUCCEEDED: []}.get(w.outcome, [w.outcome])
    after = s._replace(row=row._replace(state=w.outcome, lease_owner=0), said=s.said.union(said))
    yield f"writes {w.outcome}", end(after, w)


def _holds(s: State, w: Worker, broken: Rules = NONE_BROKEN) -> bool:
    is_replaced = s.row is not None and (s.row.intent == w.intent or "id written whatever it replaces" in broken)
    return s.row is not None and s.row.lease_owner == w.id and is_replaced


# ---------------------------------------------------------------- the reconciler, and webhooks: they never confirm


def _reconcile(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """Finishes a cancellation that died; reads the row for its PaymentIntent, or for any that an event says succeeded."""
    if s.row and s.row.cancel_requested and s.row.state in UNPAID:
        yield from _claim(s, w, broken)
    is_open = s.row is None or s.row.state not in (SUCCEEDED, CANCELED)
    for index, intent in enumerate(s.intents if is_open else ()):
        if intent.status == "succeeded" or (s.row and s.row.intent == index and s.row.state == REQUIRES_ACTION):
            row = (s.row or Row(0))._replace(lease_owner=0)
            yield f"reads the row for {index}", go(s, w, "compare", row=row, intent=index, is_fooled=False)
    yield "has nothing to do", end(s, w)


def _compare(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """Late truth wins. What waits for the customer is decided by the bank, or abandoned when nobody acts in time."""
    status, is_waiting = s.intents[w.intent].status, (w.row.intent, w.row.state) == (w.intent, REQUIRES_ACTION)
    if status == "succeeded" and w.row.state not in (SUCCEEDED, CANCELED):
        after = go(s, w, "correct", outcome=SUCCEEDED)
    elif is_waiting and status == "requires_action":
        after = go(s, w, "give up")
    elif is_waiting and status in ("declined", "abandoned", "by_stripe"):
        after = go(s, w, "correct", outcome=DECLINED)
    elif is_waiting and status == "by_customer":
        after = go(s, w, "correct", outcome=CANCELED)
    else:
        after = end(s, w)
    yield f"compares: {status}", after


def _give_up(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    yield "cancels what nobody authenticates", cancel(go(s, w, "compare"), w.intent, "abandoned")


def _correct(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """On the revision of the row that it read, which a restored table may have given out again; 0 is no row."""
    row = s.row or Row(0)
    is_same = row._replace(lease_owner=0) == w.row or "reconciled without the revision" in broken
    if is_same or (w.is_fooled and row.state != SUCCEEDED):
        row = row._replace(attempt=row.attempt or 1, intent=w.intent, declined_charge=s.intents[w.intent].charge)
        yield from _say(s, w, row._replace(generation=s.intents[w.intent].generation))
    if not is_same:
        yield "finds the row changed", end(s, w)


_PROTOCOL: dict[str, Callable[[State, Worker, Rules], Iterator[Step]]] = {
    "claim": _claim, "cancel beside the lease": _cancel_beside_the_lease, "create": _create,
    "write": _write, "look up": _look_up, "retrieve": _retrieve, "confirm": _confirm, "abandon": _cancel,
    "cancel": _cancel, "finalize": _finalize, "compare": _compare, "give up": _give_up, "correct": _correct,
}  # fmt: skip
