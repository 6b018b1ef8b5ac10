"""The charge protocol, one request to DynamoDB or Stripe a step: docs/protocol.md in the states of world.py.

    claim ─► create ─► store the id ─► decide by the status ─┬─► confirm ─► finalize
               └ held: not within the window                 └─► cancel, finalize, or wait

Each function yields every way in which a worker's step can end. `broken` names rules that are left out, to see that
this is noticed; read past it.
"""

from collections.abc import Callable, Iterator

from lab.specification.explore import Rules, replaced, use
from lab.specification.world import (
    FINAL,
    FRESH,
    KEYS,
    OPEN,
    Intent,
    Left,
    Row,
    State,
    Step,
    Worker,
    by_itself,
    with_intent,
    with_row,
)
from lab.specification.world import violation as violation

INTENTS = 4
"""PaymentIntents of one order; nothing follows a state with more."""


def first(left: Left) -> State:
    return State(left, workers=tuple(map(Worker, left.messages)))


def steps(s: State, broken: Rules) -> Iterator[Step]:
    """Everything that can happen next."""
    if len(s.intents) == INTENTS:
        return
    yield from by_itself(s, broken)
    yield from sync(s)
    yield from release(s, broken)
    for place, w in enumerate(s.workers):
        if w.at == "waits":
            yield from claim(s, place, w)
        elif w.at == "done":
            if w.attempt and not s.told & {*FINAL, f"DECLINED {w.attempt}"}:
                yield f"{place} is republished: it still waits", back(s, place, w)
        else:
            yield f"{place} crashes", back(s, place, w)
            yield from ((f"{place} {label}", after) for label, after in POINTS[w.at](s, place, w, broken))


def to(s: State, place: int, w: Worker, at: str, **changes: object) -> State:
    """The worker continues at this point."""
    return s._replace(workers=replaced(s.workers, place, w._replace(at=at, **changes)))  # type: ignore[arg-type]


def back(s: State, place: int, w: Worker, at: str = "waits") -> State:
    """The message is delivered again; or it is done."""
    return to(s, place, Worker(w.attempt), at)


def claim(s: State, place: int, w: Worker) -> Iterator[Step]:
    """One conditional write. A cancellation is stored whoever holds the lease, and claims any state but the final."""
    row, cancels = s.row or Row(w.attempt or 1), not w.attempt
    is_past = row.attempt > w.attempt or (row.attempt == w.attempt and row.state != "PENDING")
    if w.attempt > 1 and f"DECLINED {w.attempt - 1}" not in s.told:
        return
    if row.state in FINAL or (cancels and "SUCCEEDED" in s.told) or (not cancels and is_past):
        yield f"{place} is a duplicate", back(s, place, w, "done")
    elif cancels or row.attempt == w.attempt or row.state != "REQUIRES_ACTION":
        attempt = row.attempt if cancels else w.attempt
        row = row._replace(attempt=attempt, state="PENDING", cancel=row.cancel or cancels, owner=place)
        is_open = s.time - max(row.released, 0) < FRESH and not row.held
        w = w._replace(cancels=row.cancel, intent=row.intent, window=row.released + 1 if is_open else None)
        yield f"{place} claims", to(s._replace(row=row), place, w, "create" if row.intent < 0 else "retrieve")


def create(s: State, place: int, w: Worker, broken: Rules) -> Iterator[Step]:
    """Within the window, under its keys. A replayed failure leads every worker to the same next key."""
    window, known = w.window or 0, {key: index for key, _, index in s.creates}
    number = next((n for n in range(KEYS) if known.get((window, n), 0) >= 0), None)
    if (w.window is None and "created at any age" not in broken) or number is None:
        yield "holds it", back(s, place, w)
        return
    key, index = (window, number), len(s.intents)
    if key in known:
        yield "creates: a replay", to(s, place, w, "store", intent=known[key], is_replay=True)
        return

    def answered(after: State, answer: int) -> State:
        return after._replace(creates=tuple(sorted((*after.creates, (key, s.time, answer)))))

    made = s._replace(intents=(*s.intents, Intent()))
    yield f"creates {index}", to(answered(made, index), place, w, "store", intent=index)
    if failed := use(s, "error"):
        executed = failed._replace(intents=made.intents)
        yield "creates: no answer", back(answered(executed, index), place, w)
        yield "creates: 500, executed", back(answered(executed, -1), place, w)
        yield "creates: 500, not executed", back(answered(failed, -1), place, w)
        yield "creates: 500, executed later", back(answered(failed._replace(late=(*s.late, -1)), -1), place, w)


def store(s: State, place: int, w: Worker, broken: Rules) -> Iterator[Step]:
    """On condition of the lease and of no id: before this nothing can be charged."""
    row = s.row
    may = row and (_is_mine(s, place) or ("the id is stored without the lease" in broken and row.state == "PENDING"))
    if not row or not may or row.intent >= 0:
        yield "may not store the id", back(s, place, w)
        return
    w = w._replace(cancels=w.cancels or row.cancel)
    after = s._replace(row=row._replace(intent=w.intent))
    yield "stores the id", to(after, place, w, "retrieve" if w.is_replay else "cancel" if w.cancels else "confirm")


def _is_mine(s: State, place: int) -> bool:
    return s.row is not None and s.row.owner == place and s.row.state == "PENDING"


def retrieve(s: State, place: int, w: Worker, broken: Rules) -> Iterator[Step]:
    """Decide by the PaymentIntent's status."""
    status = s.intents[w.intent].status
    if status == "processing":
        yield "waits for the bank", back(s, place, w)
    elif status == "duplicate" and "a duplicate ends the order" not in broken:
        yield "holds it", hold(s, place, w)
    elif status in ("succeeded", "canceled", "duplicate"):
        outcome = "CANCELED" if status == "duplicate" else status.upper()
        yield f"retrieves {status}", to(s, place, w, "finalize", outcome=outcome)
    elif w.cancels and "a request to cancel is overlooked" not in broken:
        yield "has to cancel", to(s, place, w, "cancel")
    elif status == "action" or w.is_answered:
        outcome = "REQUIRES_ACTION" if status == "action" else "DECLINED"
        yield f"retrieves {status}", to(s, place, w, "finalize", outcome=outcome)
    else:
        yield "retrieves open", to(s, place, w, "confirm")


def hold(s: State, place: int, w: Worker) -> State:
    """It was canceled beside another one, and an older row was put back: the other one may be charged."""
    row = s.row
    after = s._replace(row=row._replace(intent=-1, owner=-1, held=True)) if row and _is_mine(s, place) else s
    return back(after, place, w)


def cancel(s: State, place: int, w: Worker, broken: Rules) -> Iterator[Step]:
    """Stripe decides the race."""
    status, after = s.intents[w.intent].status, s
    if status in OPEN:
        status = "canceled"
        after = s if "canceled without Stripe" in broken else with_intent(s, w.intent, status=status)
    if status == "processing":
        yield "cannot cancel yet", back(s, place, w)
    elif status == "duplicate":
        yield "finds a duplicate", to(s, place, w, "retrieve")
    else:
        yield f"cancels: {status}", to(after, place, w, "finalize", outcome=status.upper())


def confirm(s: State, place: int, w: Worker, broken: Rules) -> Iterator[Step]:
    """Under the attempt's one key. What is replayed or refused is retrieved, and counts as answered."""
    key = w.intent, w.attempt
    is_known = key in dict(s.confirms)
    stored = s if is_known else s._replace(confirms=tuple(sorted({*s.confirms, (key, s.time)})))
    if is_known or s.intents[w.intent].status not in OPEN:
        yield "confirms: a replay, or refused", to(stored, place, w, "retrieve", is_answered=True)
        return
    outcomes = {"succeeded": "SUCCEEDED", "open": "DECLINED", "action": "REQUIRES_ACTION"}
    for status in (*outcomes, *["processing"] * s.left.processing):
        after = with_intent(stored, w.intent, status=status)
        yield f"confirms: no answer, {status}", back(after, place, w)
        if status in outcomes:
            yield f"confirms: {status}", to(after, place, w, "finalize", outcome=outcomes[status])
    if failed := use(stored, "error"):
        yield "confirms: 500, not executed", back(failed, place, w)
        yield "confirms: 500, executed later", back(failed._replace(late=(*s.late, w.intent)), place, w)


def finalize(s: State, place: int, w: Worker, broken: Rules) -> Iterator[Step]:
    """On condition of the lease, the attempt and PENDING; not as open after a cancellation was requested."""
    row = s.row
    may = row and _is_mine(s, place) and (not w.attempt or row.attempt == w.attempt)
    if "finalized without the lease" in broken:
        may = row is not None and row.state not in FINAL
    if row and row.cancel and w.outcome not in FINAL:
        may = False
    if row and may:
        yield f"writes {w.outcome}", back(with_row(s, row, state=w.outcome, owner=-1), place, w, "done")
    else:
        yield f"may not write {w.outcome}", back(s, place, w)


POINTS: dict[str, Callable[[State, int, Worker, Rules], Iterator[Step]]] = {
    each.__name__: each for each in (create, store, retrieve, cancel, confirm, finalize)
}


def sync(s: State) -> Iterator[Step]:
    """Later changes at Stripe, if the row is unchanged: a success wins, and a lost row is written again."""
    row = s.row or Row(state="lost")
    for index, intent in enumerate(s.intents):
        is_own, waits = row.intent == index, row.state in ("DECLINED", "REQUIRES_ACTION")
        if intent.status == "succeeded" and ((is_own and row.state not in FINAL) or row.state == "lost"):
            yield "sync writes SUCCEEDED", with_row(s, row, state="SUCCEEDED", intent=index)
        if is_own and waits and intent.status == "canceled":
            yield "sync writes CANCELED", with_row(s, row, state="CANCELED")
        if is_own and intent.status == "duplicate" and row.state not in FINAL and row.owner < 0:
            yield "sync holds it", s._replace(row=row._replace(state="PENDING", intent=-1, held=True))
        if is_own and row.state == "REQUIRES_ACTION" and intent.status == "open":
            yield "sync writes DECLINED", with_row(s, row, state="DECLINED")
        if is_own and row.state == "REQUIRES_ACTION" and intent.status == "action":
            yield "3-D Secure expires", with_intent(s, index, status="canceled")


def is_held(s: State) -> bool:
    """Whether the person's command takes the row: PENDING without an id or a worker, and its window is over."""
    row = s.row
    if row is None or row.state != "PENDING" or row.intent >= 0:
        return False
    if s.time - max(row.released, 0) < FRESH and not row.held:
        return False
    return row.owner < 0 or s.workers[row.owner].at in ("waits", "done")


def release(s: State, broken: Rules) -> Iterator[Step]:
    """A person's command, after a complete look at Stripe: what is open is canceled one by one, then it looks again."""
    if not s.row or not is_held(s):
        return
    everything = range(len(s.intents))
    for seen in [everything, everything[:-1]] if "a look that lags" in broken else [everything]:
        seen = range(0) if "released without a look" in broken else seen
        of = {status: [each for each in seen if s.intents[each].status == status] for status in STATUSES}
        still_open, succeeded = of["open"] + of["action"], of["succeeded"]
        canceled = [] if "a cancellation found is passed over" in broken else of["canceled"] + of["duplicate"]
        if of["processing"]:
            continue
        if still_open and (len(still_open) > 1 or succeeded or canceled):
            # One by one; interrupted here, the command looks again, and takes this for a cancellation that it finds.
            yield "a person cancels what is open", with_intent(s, still_open[0], status="duplicate")
            if not succeeded and not canceled:
                after = s._replace(row=s.row._replace(intent=still_open[-1], owner=-1, held=False))
                # Somebody else may have canceled it meanwhile: then nothing is stored, and the command looks again.
                is_anothers = "another's cancellation is taken for its own" in broken
                for each in still_open[:-1]:
                    after = with_intent(after, each, status="canceled" if is_anothers else "duplicate")
                yield "a person cancels all but one, and stores that", after
        elif succeeded or canceled:
            state, intent = ("SUCCEEDED", succeeded[0]) if succeeded else ("CANCELED", canceled[0])
            yield f"a person stores {state}", with_row(s, s.row, state=state, intent=intent, owner=-1)
        elif still_open and "what is open is passed over" not in broken:
            yield (
                "a person stores the open one",
                s._replace(row=s.row._replace(intent=still_open[0], owner=-1, held=False)),
            )
        else:
            yield "a person releases it", s._replace(row=s.row._replace(released=s.time, owner=-1, held=False))


STATUSES = (*OPEN, "processing", "succeeded", "canceled", "duplicate")


def is_end(s: State) -> bool:
    """Settled: told, and nobody at work; or held, with an alarm and a command. A bound that is reached counts, too."""
    if len(s.intents) == INTENTS or is_held(s):
        return True
    if any(w.at not in ("waits", "done") for w in s.workers):
        return False
    if s.row is None:
        return bool(s.told)
    is_told = s.row.state in (*FINAL, "DECLINED") or bool(s.told & {*FINAL, f"DECLINED {s.row.attempt}"})
    is_last = s.time == s.left.ticks
    has_no_key = is_last and sum(index < 0 for _, _, index in s.creates) >= KEYS
    return is_told or has_no_key or (is_last and s.time - max(s.row.released, 0) < FRESH)
