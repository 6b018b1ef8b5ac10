"""In-memory DynamoDB and Stripe behind the adapters' own interfaces, with a boundary at every effect.

What they do is pinned by the contract suites of tests/contract, which run them beside the real adapters. `Io` is
how the simulation gets in between: it may pause, crash the worker, or say that something goes wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import stripe

from charge_order.ledger import AlreadySettled, Claim, Claimed, HeldByAnother, LeaseLost, NotDeclinedBefore
from charge_order.protocol import Answer, ChargeRow, FoundIntent, FrozenRequest, Reply, reply_for
from charge_order.time_bounds import CLOCK_DIFFERENCE_SECONDS, SEARCH_LAG_SECONDS
from onecharge.states import ChargeState

KEY_RETENTION_SECONDS = 24 * 3600


class Io(Protocol):
    """What stands between a worker and the world."""

    def now(self) -> int: ...

    def pause(self, where: str) -> None:
        """The worker has reached a boundary; others may run, time may pass, and it may never come back."""

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        """Which of these faults happens here, if any."""

    def claimed(self, row: ChargeRow) -> None:
        """A worker has claimed the row, as it is now."""


class NoFaults:
    """A world in which nothing comes in between."""

    def __init__(self, now: int = 0) -> None:
        self.time = now

    def now(self) -> int:
        return self.time

    def pause(self, where: str) -> None:
        pass

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        return None

    def claimed(self, row: ChargeRow) -> None:
        pass


class Throttled(Exception):
    """DynamoDB refused, and nothing was written."""


class AnswerLost(Exception):
    """DynamoDB wrote, and the answer never arrived."""


@dataclass
class MemoryLedger:
    """The Charges table as `charge_order.ledger.Ledger` shows it.

    `conditional` and `fenced` are what keeps the protocol safe; without them it is a mutant that must be caught.
    """

    io: Io = field(default_factory=NoFaults)
    rows: dict[tuple[str, int], ChargeRow] = field(default_factory=dict)
    settled_as: dict[tuple[str, int], str | None] = field(default_factory=dict)
    conditional: bool = True
    fenced: bool = True
    stale_writes: int = 0
    let_go: set[tuple[str, int]] = field(default_factory=set)
    """Rows whose holder has handed them back."""

    def claim(
        self, request: FrozenRequest, *, correlation_id: str, placed_at: int, now: int, lease_seconds: int
    ) -> Claim:
        self._reach("claim")
        key = request.order_id, request.attempt
        row = self.rows.get(key)
        refused = self._refusal(request, row, now) if self.conditional else None
        if refused is not None:
            self._answer("claim")
            return refused
        if row is None:
            row = ChargeRow(request, ChargeState.CLAIMED, 0, 0, placed_at, 0, placed_at, None)
        row = replace(
            row,
            state=ChargeState.CLAIMED,
            fencing_token=row.fencing_token + 1,
            lease_expires_at=now + lease_seconds,
        )
        self.rows[key] = row
        self.io.claimed(row)
        self._answer("claim")
        return Claimed(row)

    def _refusal(self, request: FrozenRequest, row: ChargeRow | None, now: int) -> Claim | None:
        if row is not None and row.state is not ChargeState.CLAIMED:
            return AlreadySettled(row.state, row.request.fingerprint)
        if row is not None and row.lease_expires_at > now:
            return HeldByAnother(row.lease_expires_at)
        before = self.rows.get((request.order_id, request.attempt - 1))
        if request.attempt > 1 and (before is None or before.state is not ChargeState.DECLINED):
            return NotDeclinedBefore(before.state if before else None)
        return None

    def settle(
        self, row: ChargeRow, state: ChargeState, *, payment_intent_id: str | None, code: str | None, now: int
    ) -> None:
        self._write("settle", row, state=state)
        self.settled_as[row.request.order_id, row.request.attempt] = payment_intent_id
        self._answer("settle")

    def hand_back(self, row: ChargeRow, *, look_first: bool, now: int) -> None:
        old = self.rows.get((row.request.order_id, row.request.attempt), row)
        since = old.looking_since if old.looking_since is not None else now
        self._write("hand_back", row, lease_expires_at=now, looking_since=since if look_first else old.looking_since)
        self.let_go.add((row.request.order_id, row.request.attempt))
        self._answer("hand_back")

    def open_new_key(self, row: ChargeRow, *, now: int) -> ChargeRow:
        written = self._write(
            "open_new_key", row, key_generation=row.key_generation + 1, key_opened_at=now, looking_since=None
        )
        self._answer("open_new_key")
        return written

    def _write(self, where: str, row: ChargeRow, **changes: object) -> ChargeRow:
        self._reach(where)
        key = row.request.order_id, row.request.attempt
        old = self.rows.get(key)
        still_ours = old is not None and old.state is ChargeState.CLAIMED and old.fencing_token == row.fencing_token
        if not still_ours:
            if self.fenced:
                raise LeaseLost
            self.stale_writes += 1
        self.rows[key] = replace(old or row, **changes)  # type: ignore[arg-type]  # Fields of the row, by name.
        return self.rows[key]

    def _reach(self, where: str) -> None:
        self.io.pause(f"ledger.{where}")
        if self.io.fault(f"ledger.{where}", ("throttled",)):
            raise Throttled

    def _answer(self, where: str) -> None:
        if self.io.fault(f"ledger.{where}", ("answer lost",)):
            raise AnswerLost
        self.io.pause(f"ledger.{where} answered")


@dataclass
class Intent:
    """A PaymentIntent, and when it last changed."""

    id: str
    request: FrozenRequest
    status: str
    created: int
    was_declined: bool = False

    def found(self) -> FoundIntent:
        return FoundIntent(
            self.id,
            self.status,
            self.request.amount_minor,
            self.request.currency,
            self.was_declined,
            "generic_decline" if self.was_declined else None,
        )


@dataclass(frozen=True)
class Stored:
    """What a key stands for; no reply while its first request runs."""

    fingerprint: str
    created: int
    reply: Reply | None


# What Stripe does with a card, by the payment method's name.
STATUS_OF_CARD = {
    "pm_card_visa": "succeeded",
    "pm_card_visa_chargeDeclined": "requires_payment_method",
    "pm_card_threeDSecure2Required": "requires_action",
}
_BEFORE = ("drop before", "429", "503", "401")
_AROUND = ("500 before", "500 after", "drop after")
_ANSWERS = {"429": Answer.RATE_LIMITED, "503": Answer.UNAVAILABLE, "401": Answer.BAD_API_KEY}


@dataclass
class MemoryStripe:
    """Stripe as `charge_order.stripe_gateway.StripeGateway` shows it, with its ledger of charges."""

    io: Io = field(default_factory=NoFaults)
    keys: dict[str, Stored] = field(default_factory=dict)
    intents: list[Intent] = field(default_factory=list)
    charges: list[Intent] = field(default_factory=list)
    search_lag_seconds: int = 0
    down: bool = False

    def charge(self, request: FrozenRequest, idempotency_key: str) -> Reply:
        self.io.pause("stripe.charge")
        kind = "drop before" if self.down else self.io.fault("stripe.charge", _BEFORE)
        if kind is not None:
            return Reply(_ANSWERS.get(kind, Answer.NO_ANSWER))
        now = self.io.now()
        stored = self.keys.get(idempotency_key)
        if stored is not None and now - stored.created >= KEY_RETENTION_SECONDS:
            stored = None
        if stored is not None:
            if stored.reply is None:
                return Reply(Answer.KEY_IN_USE)
            return stored.reply if stored.fingerprint == request.fingerprint else Reply(Answer.OTHER_REQUEST)
        self.keys[idempotency_key] = Stored(request.fingerprint, now, None)
        return self._execute(request, idempotency_key)

    def _execute(self, request: FrozenRequest, key: str) -> Reply:
        kind = self.io.fault("stripe.charge", _AROUND)
        try:
            self.io.pause("stripe.charge in flight")
        finally:
            # Stripe goes on with what it has received, whether or not anybody still waits for it.
            reply = Reply(Answer.SERVER_ERROR) if kind == "500 before" else self._move_money(request)
            if kind == "500 after":
                reply = Reply(Answer.SERVER_ERROR)
            self.keys[key] = replace(self.keys[key], reply=reply)
        self.io.pause("stripe.charge answered")
        return Reply(Answer.NO_ANSWER) if kind == "drop after" else reply

    def _move_money(self, request: FrozenRequest) -> Reply:
        card = next(name for name in STATUS_OF_CARD if f'"{name}"' in request.parameters_json)
        status = STATUS_OF_CARD[card]
        intent = Intent(f"pi_{len(self.intents)}", request, status, self.io.now(), status == "requires_payment_method")
        self.intents.append(intent)
        if status == "succeeded":
            self.charges.append(intent)
        return reply_for(request, intent.found())

    def confirm(self, request: FrozenRequest, payment_intent_id: str) -> Reply:
        self.io.pause("stripe.confirm")
        intent = next(each for each in self.intents if each.id == payment_intent_id)
        if intent.status != "succeeded":
            intent.status = "succeeded"
            self.charges.append(intent)
        return reply_for(request, intent.found())

    def look(self, request: FrozenRequest, *, placed_at: int, appears_until: int, now: int) -> list[FoundIntent]:
        self.io.pause("stripe.search")
        if self.down or self.io.fault("stripe.search", ("look fails",)):
            raise stripe.APIConnectionError("no answer")
        visible_until = self.io.now() - self.search_lag_seconds
        found = [each for each in self._of(request) if not self.search_lag_seconds or each.created <= visible_until]
        since = max(placed_at, now - SEARCH_LAG_SECONDS) - CLOCK_DIFFERENCE_SECONDS
        until = min(appears_until, now) + CLOCK_DIFFERENCE_SECONDS
        if since <= until:
            self.io.pause("stripe.list")
            found += [each for each in self._of(request) if since <= each.created <= until and each not in found]
        return [each.found() for each in found]

    def _of(self, request: FrozenRequest) -> list[Intent]:
        wanted = request.order_id, request.attempt
        return [each for each in self.intents if (each.request.order_id, each.request.attempt) == wanted]
