"""The charge protocol, one request to DynamoDB or Stripe a step, in the states of states.py.

    claim ─► create, retrieve ─► write the id ─► decide by what it is ─┬─► confirm ─► finalize
             (old: look up all others first)                           ├─► cancel, then the next generation
                                                                       └─► finalize, or wait

Each function yields every way in which what a worker does at one point can end. `broken` names rules that are left
out, to see that this is noticed; read past it.
"""

from collections.abc import Callable, Iterator

from lab.specification.states import (
    Intent,
    Key,
    Row,
    State,
    Step,
    Worker,
    cancel,
    confirm,
    create,
    finish,
    move_to,
    send_with_key,
    use_up,
)

Rules = frozenset[str]
Point = Callable[[State, Worker, Rules], Iterator[Step]]
NONE_BROKEN: Rules = frozenset()

# ---------------------------------------------------------------- 1. claim


def claim(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """One conditional write, which takes the lease under a new random owner: of an attempt that is unfinished, of a
    later one, or of whatever is to be canceled."""
    row = s.row or Row(w.attempt or 1)
    if w.kind != "delivery":
        is_claimable = row.is_unpaid and row.cancel_requested
    elif w.attempt > row.attempt:
        is_claimable = row.is_unpaid
    else:
        is_claimable = (w.attempt, "PENDING") == (row.attempt, row.state)
    if not is_claimable:
        yield "is a duplicate, or superseded", finish(s, w)
        return
    row = row._replace(attempt=max(row.attempt, w.attempt), state="PENDING", lease_owner=w.id, is_listed=True)
    w = w._replace(kind="holder", attempt=0, row=row._replace(lease_owner=0), intent=row.intent)
    claimed = s._replace(row=row)
    if row.intent >= 0:
        yield "claims", move_to(claimed, w, "retrieve")
    else:
        yield from _ensure(claimed, w, "claims", broken)


# ---------------------------------------------------------------- 2. ensure that there is a PaymentIntent


def _ensure(s: State, w: Worker, label: str, broken: Rules) -> Iterator[Step]:
    """The chain: generation 0, then one more each time that Stripe says that the former is canceled, or that its key
    answers a stored failure. While Stripe remembers its keys, it leads everyone to the same PaymentIntent."""
    if s.is_old and "the lookup comes before the create" in broken:
        yield label, move_to(s, w, "look up", seen=0)
    elif not s.is_old and "the clock is read before the create" in broken:
        yield label, move_to(s, w, "create", seen=-1)
    else:
        yield label, move_to(s, w, "create")


def _create(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """Without confirm: no money moves. A replay proves which PaymentIntent it is, not what it is by now."""
    generation = w.row.generation
    yield from _refused(s, w)
    for label, after, answer, is_replay in send_with_key(s, ("create", generation), lambda s: create(s, generation)):
        label = f"creates: {label}"
        if answer == "refused":
            yield label, move_to(after, w, "finalize", outcome="CANCELED" if w.row.cancel_requested else "DECLINED")
        elif isinstance(answer, int):
            created = w._replace(row=w.row._replace(intent=answer))
            if is_replay and "no retrieve after a replayed create" not in broken:
                yield label, move_to(after, created, "retrieve its own")
            else:
                # Only a broken rule takes a replayed body for the current status.
                is_safe = is_replay and "lookup only for a fresh create" in broken
                yield from _date(after, created, Intent(generation), label, broken, is_safe=is_safe)
        else:
            is_retried = answer == "refusal" and "a replayed refusal is sent again" in broken
            if is_replay and not is_retried and after.row and after.row.lease_owner == w.id:
                after = after._replace(row=after.row._replace(generation=generation + 1))
            yield label, finish(after, w)


def _retrieve_its_own(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    own = s.intents[w.row.intent]
    is_safe = not own.is_open or "lookup only for a fresh create" in broken
    yield from _date(s, w, own, f"retrieves {w.row.intent}: {own.status}", broken, is_safe=is_safe)


def _date(s: State, w: Worker, own: Intent, label: str, broken: Rules, *, is_safe: bool) -> Iterator[Step]:
    """The clock, once the answer is there: only an order that it calls young needs no lookup."""
    is_safe = is_safe or bool(w.seen or {"no lookup past 22 h", "the lookup comes before the create"} & broken)
    if is_safe or not s.is_old:
        yield label, move_to(s, w, "write", own=own, seen=0)
    if not is_safe:
        yield f"{label}, the clock says old", move_to(s, w, "look up", own=own)


def _look_up(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """Everything else of the order at Stripe, complete; what is open is canceled, one by one. What is merely found is
    never confirmed. Of two workers that look up once their own PaymentIntent exists, the later one sees both."""
    seen = w.seen or len(s.intents)
    others = {index: intent for index, intent in enumerate(s.intents[:seen]) if index != w.row.intent}
    found = {intent.status: index for index, intent in others.items()}
    still_open = [index for index, intent in others.items() if intent.is_open]
    if [intent.status for intent in others.values()].count("succeeded") > 1:
        yield "finds two paid", move_to(s, w, "finalize", outcome="NEEDS_REVIEW")
    elif "succeeded" in found:
        yield "finds it paid", _decided(s, w, "SUCCEEDED", found["succeeded"])
    elif "processing" in found:
        yield "finds it processing", finish(s, w)
    elif still_open and "adopting what was found" in broken:
        index, own = still_open[0], s.intents[still_open[0]]
        adopted = w.row._replace(intent=index, generation=own.generation)
        yield f"adopts {index}", move_to(s, w, "write", row=adopted, own=own, seen=0)
    elif still_open and "what is found stays open" not in broken:
        after = cancel(s, still_open[0], "abandoned") if w.seen else s
        what = f"cancels {still_open[0]}, found" if w.seen else f"finds {still_open[0]} open"
        yield what, move_to(after, w, "look up", seen=seen)
    elif "by_customer" in found and "what is found canceled is no trace" not in broken:
        yield "finds it canceled", _decided(s, w, "CANCELED", found["by_customer"])
    elif "what is found canceled by hand is passed over" not in broken and (
        stopped := [index for index, intent in others.items() if is_stopped_by_hand(w.row, index, intent)]
    ):
        yield "finds it canceled by hand", _decided(s, w, "NEEDS_REVIEW", stopped[0])
    elif "the lookup comes before the create" in broken:
        generation = max([w.row.generation, *(intent.generation + 1 for intent in others.values())])
        yield "finds nothing open", move_to(s, w, "create", row=w.row._replace(generation=generation), seen=-1)
    else:
        yield "finds nothing open", move_to(s, w, "write", seen=0)


def _write(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """The id is written before money can move: on the lease, and on the id that it replaces."""
    row, own = s.row, w.own or Intent(0)
    is_held = row is not None and (row.lease_owner == w.id or "id written without the lease" in broken)
    if row and is_held and (row.intent == w.intent or "id written whatever it replaces" in broken):
        row = row._replace(intent=w.row.intent, generation=w.row.generation)
        after = s._replace(row=row)
        w = w._replace(row=row._replace(lease_owner=0), intent=row.intent, own=None)
        yield from _decide(after, w, own, "writes the id", broken)
    else:
        yield "has lost its lease", finish(s, w)


# ---------------------------------------------------------------- 3. what it is, decides


def _retrieve(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    intent = s.intents[w.row.intent]
    yield from _decide(s, w, intent, f"retrieves {w.row.intent}: {intent.status}", broken)


def _decide(s: State, w: Worker, intent: Intent, label: str, broken: Rules) -> Iterator[Step]:
    """`confirmed` says what is known of this attempt's confirm: "answered", "unusable" (stored failure), or nothing."""
    by_customer = ("by_customer", *(["abandoned"] if "abandoned taken for canceled" in broken else []))
    # The row may name a canceled one, and the generation after a stored failure: that is the next one, none is skipped.
    following = max(w.row.generation, intent.generation + 1)
    if "a generation is skipped" in broken:
        following = max(w.row.generation, intent.generation) + 1
    next_one = w._replace(row=w.row._replace(generation=following), confirmed="")
    if intent.status == "succeeded":
        yield label, _decided(s, w, "SUCCEEDED", w.row.intent)
    elif intent.status in by_customer:
        yield label, _decided(s, w, "CANCELED", w.row.intent)
    elif is_stopped_by_hand(w.row, w.row.intent, intent) and "by hand taken for abandoned" not in broken:
        yield label, _decided(s, w, "NEEDS_REVIEW", w.row.intent)
    elif intent.status == "given_up" and not (w.row.cancel_requested or "the next one after Stripe gave up" in broken):
        yield label, _decided(s, w, "DECLINED", w.row.intent, intent.charge)
    elif intent.is_canceled or (intent.status == "processing" and "a generation beside processing" in broken):
        yield from _ensure(s, next_one, label, broken)
    elif intent.status == "processing":
        yield label, finish(s, w)
    elif w.row.cancel_requested and "a request to cancel is overlooked" not in broken:
        yield label, move_to(s, w, "cancel")
    elif intent.status == "requires_action" and (w.confirmed == "answered" or intent.attempt == w.row.attempt):
        yield label, _decided(s, w, "REQUIRES_ACTION", w.row.intent, intent.charge)
    elif intent.status == "declined" and is_its_decline(w, intent, broken):
        yield label, _decided(s, w, "DECLINED", w.row.intent, intent.charge)
    elif intent.status != "requires_action" and not w.confirmed:
        yield label, move_to(s, w, "confirm")
    elif "the next one without canceling" in broken:
        yield from _ensure(s, next_one, label, broken)
    else:
        yield label, move_to(s, w, "abandon")


def is_stopped_by_hand(row: Row, index: int, intent: Intent) -> bool:
    """Canceled by a person, for a reason that is neither ours nor Stripe's: nothing charges the order any more, unless
    a person's retry has accepted this one. After a request to cancel nothing is charged anyway."""
    return intent.status == "by_hand" and index not in row.accepted and not row.cancel_requested


def is_its_decline(w: Worker, intent: Intent, broken: Rules) -> bool:
    """By the charge that the row does not know: an earlier decline may be of the same card.
    If in doubt it is not: to confirm again replays what that key was answered."""
    if w.confirmed == "answered" or (w.confirmed and "a stored 500 taken for an answer" in broken):
        return True
    if "a decline known by its card" in broken:
        return True
    return intent.charge != w.row.declined_charge and "a decline known by its answer alone" not in broken


def _decided(s: State, w: Worker, outcome: str, index: int, charge: int = 0) -> State:
    """With the charge that an attempt ended with, or waits for: the next one's decline is known by another."""
    row = w.row._replace(intent=index, declined_charge=charge)
    return move_to(s, w, "finalize", outcome=outcome, row=row, own=None, seen=0, confirmed="")


def _cancel(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """The one escape: cancel, then next. For the customer it is a trace that outlives the table. Stripe decides."""
    reason = "by_customer" if w.at == "cancel" else "abandoned"
    after = cancel(s, w.row.intent, reason)
    if reason == "by_customer" and "CANCELED without Stripe's word" in broken:
        yield "does not wait for Stripe", _decided(s, w, "CANCELED", w.row.intent)
    else:
        intent = after.intents[w.row.intent]
        yield from _decide(after, w, intent, f"cancels {w.row.intent}: {intent.status}", broken)


def _refused(s: State, w: Worker) -> Iterator[Step]:
    """Stripe refuses the request as invalid, for an hour: a person has to see it. No key stores that."""
    if refused := use_up(s, "review"):
        refused = refused._replace(said=refused.said | {"refused"})
        yield "is refused for an hour", move_to(refused, w, "finalize", outcome="NEEDS_REVIEW", own=None, seen=0)


# ---------------------------------------------------------------- 4. confirm, 5. finalize


def _confirm(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """Under one key for an attempt and PaymentIntent. A replay says whether it was answered, not what it is by now."""
    index, attempt = w.row.intent, w.row.attempt
    yield from _refused(s, w)
    key: Key = ("confirm", index, attempt, *([w.id] if "a second confirm key" in broken else []))
    for what, after, answer, is_replay in send_with_key(s, key, lambda s: confirm(s, index, attempt)):
        label, unusable = f"confirms {index}: {what}", answer in ("500", "refusal", "unexpected state")
        is_retried = answer == "refusal" and "a replayed refusal is sent again" in broken
        if answer in ("500", "refusal") and (not is_replay or is_retried):
            yield label, finish(after, w)
        elif unusable or (is_replay and "no retrieve after a replayed confirm" not in broken):
            yield label, move_to(after, w, "retrieve", confirmed="unusable" if unusable else "answered")
        else:
            intent = after.intents[index]._replace(status=str(answer))
            yield from _decide(after, w._replace(confirmed="answered"), intent, label, broken)


def _finalize(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """On the lease owner, the attempt, and unfinished; and on no request to cancel, if this would leave it open."""
    row = s.row or Row(0)
    is_owner = row.lease_owner == w.id or "finalize without the lease" in broken
    is_same = row.attempt == w.row.attempt or "finalize without the attempt" in broken
    is_open = (
        row._replace(state=w.outcome).is_unpaid
        and row.cancel_requested
        and "left open though to be canceled" not in broken
    )
    if is_owner and is_same and not is_open and row.state == "PENDING":
        yield from write_row(s, w, row._replace(intent=w.row.intent, declined_charge=w.row.declined_charge))
    else:
        yield "is too late to finalize", finish(s, w)


def write_row(s: State, w: Worker, row: Row) -> Iterator[Step]:
    """Writes the outcome, for all to see."""
    said = {"DECLINED": [f"DECLINED {row.attempt}"], "SUCCEEDED": []}.get(w.outcome, [w.outcome])
    row = row._replace(state=w.outcome, lease_owner=0, is_listed=w.outcome == "REQUIRES_ACTION")
    after = s._replace(row=row, said=s.said.union(said))
    yield f"writes {w.outcome}", finish(after, w)


POINTS: dict[str, Point] = {
    "claim": claim, "create": _create, "retrieve its own": _retrieve_its_own, "look up": _look_up, "write": _write,
    "retrieve": _retrieve, "abandon": _cancel, "cancel": _cancel, "confirm": _confirm, "finalize": _finalize,
}  # fmt: skip
