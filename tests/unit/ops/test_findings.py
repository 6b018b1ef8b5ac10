"""What to do about an order and its refunds: each status and state, and each way in which it may be broken."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import stripe

from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.payments.refund_rules import UNANSWERED_SECONDS, Sent
from onecharge.payments.rows import Dispute, Payment
from onecharge.payments.stripe_responses import Failure, ResponseKind
from ops.facts import Facts, IntentFacts, StripeFacts
from ops.findings import Severity, find
from ops.story import story
from tests.shop import builders
from tests.shop.builders import ORDER_ID, T0

NOW = T0
REFUND_ID = "rfd_" + "b" * 32
MINUTE, HOUR, DAY = 60, 3600, 86_400
S, Status = PaymentState, OrderStatus
FREE = {"lease_owner": None, "lease_expires_at": 0}
FINE, WAITS, BROKEN = Severity.FINE, Severity.WAITS, Severity.BROKEN


def iso(age: int) -> str:
    return datetime.fromtimestamp(NOW - age, UTC).isoformat()


def order(status: OrderStatus, age: int, **changes: Any) -> StoredOrder:
    times = {"placed_at": iso(age), "waiting_since": iso(age)}
    details = {**times, "correlation_id": "c", "fingerprint": "f", "status": status}
    return StoredOrder.model_validate({**builders.order().model_dump(), **details, **changes})


def row(state: PaymentState, age: int, **changes: Any) -> Payment:
    """A row that was claimed so long ago, and finalized unless it is PENDING; its lease is free."""
    at = NOW - age
    times = {"claimed_at": at, "finalized_at": None if state is S.PENDING else at}
    frozen = {"request": replace(builders.REQUEST, placed_at=at)}
    return builders.payment(**{**times, **frozen, **FREE, "state": state, "revision": 3, **changes})


def intent(status: str, id_: str = "pi_1", *, refunds: Iterable[Any] = (), **changes: Any) -> IntentFacts:
    found = builders.intent(status, **{"payment_intent_id": id_, "created": NOW - HOUR, **changes})
    return IntentFacts(
        intent=found, refunds=tuple(refunds), disputes=disputes([found.dispute] if found.dispute else [])
    )


def disputes(given: Iterable[Dispute]) -> list[stripe.Dispute]:
    return [stripe.Dispute.construct_from({"id": each.dispute_id, "status": each.status}, None) for each in given]


def case(
    status: OrderStatus | None,
    state: PaymentState | None,
    *intents: IntentFacts,
    age: int = HOUR,
    of_order: dict[str, Any] | None = None,
    of_row: dict[str, Any] | None = None,
    **changes: Any,
) -> Facts:
    given: dict[str, Any] = {
        "now": NOW,
        "order_id": ORDER_ID,
        "order": order(status, age, **(of_order or {})) if status else None,
        "payment": row(state, age, **(of_row or {})) if state else None,
        "stripe": StripeFacts(intents=intents),
        "shop": builders.SHOP,
    }
    return Facts(**(given | changes))


LETTER: Any = SimpleNamespace(dlq="PaymentsDlq", message_id="m1", reason="received too often", event_type=None)
LEASED = {"lease_owner": "w", "lease_expires_at": NOW + 20}
OPEN, DONE, AUTHENTICATES = intent("requires_payment_method"), intent("succeeded"), intent("requires_action")
DECLINED = intent("requires_payment_method", error_code="card_declined")
NEEDS_RESPONSE, LOST = Dispute("dp_1", "needs_response"), {"dispute_id": "dp_1", "dispute_status": "lost"}

pending, paid = partial(case, Status.PENDING, S.PENDING), partial(case, Status.PAID, S.SUCCEEDED)
authenticating = partial(case, Status.REQUIRES_ACTION, S.REQUIRES_ACTION)

CASES: dict[str, tuple[Facts, Severity, str, str]] = {
    # What is the case: severity, a part of the sentence, a part of what follows.
    "paid": (paid(DONE), FINE, "PAID: nothing is left", ""),
    "canceled": (case(Status.CANCELED, S.CANCELED, intent("canceled")), FINE, "CANCELED: nothing is left", ""),
    "declined": (case(Status.PAYMENT_DECLINED, S.DECLINED, DECLINED), FINE, "another card", ""),
    "just stored": (case(Status.PENDING, None, age=5), WAITS, "no worker has taken attempt 1", "republish"),
    "a second attempt": (
        case(Status.PENDING, S.DECLINED, DECLINED, of_order={"attempt": 2}),
        *(WAITS, "no worker has taken attempt 2", "republish"),
    ),
    "a worker has it": (pending(OPEN, of_row=LEASED), WAITS, "a worker has the row", "it finishes"),
    "its lease ended": (pending(OPEN, of_row=LEASED | {"lease_expires_at": NOW}), WAITS, "confirms it", "again"),
    "it has no PaymentIntent": (
        pending(of_row={"payment_intent_id": None}),
        WAITS,
        "creates its PaymentIntent",
        "again",
    ),
    "Stripe is not asked": (pending(stripe=StripeFacts(was_asked=False)), WAITS, "delivery continues", "again"),
    "it backs off": (pending(OPEN, stripe_message="429"), WAITS, "confirms it (Stripe said: 429)", "delivered again"),
    "Stripe is processing": (pending(intent("processing")), WAITS, "waits: Stripe is processing it", "again"),
    "canceled by hand": (pending(intent("canceled")), WAITS, "makes the row CANCELED", "again"),
    "a cancellation": (
        case(Status.CANCELING, S.PENDING, OPEN, of_row={"cancel_requested_at": NOW - 5}),
        *(WAITS, "cancels it", "delivered again"),
    ),
    "a day passed": (pending(OPEN, age=DAY + 1), BROKEN, "more than a day", "look for errors"),
    "no order waits for it": (case(Status.PAID, S.PENDING, OPEN), BROKEN, "confirms it", f"publish {ORDER_ID} --yes"),
    "held": (pending(age=23 * HOUR, of_row={"payment_intent_id": None}), BROKEN, "held: ", f"release {ORDER_ID} --yes"),
    "held, another day": (
        pending(age=50 * HOUR, of_row={"payment_intent_id": None, "released_at": NOW - 23 * HOUR}),
        *(BROKEN, "held: ", "release"),
    ),
    "3-D Secure": (authenticating(AUTHENTICATES), WAITS, "the customer has to authenticate", "reconcile cancels"),
    "3-D Secure, expired": (authenticating(AUTHENTICATES, age=13 * HOUR), WAITS, "not finished in time", "reconcile"),
    "3-D Secure, done": (authenticating(DONE), WAITS, "the row becomes SUCCEEDED", "the webhook writes it"),
    "late success": (case(Status.PAYMENT_DECLINED, S.DECLINED, DONE), WAITS, "becomes SUCCEEDED", "the webhook"),
    "lost row": (case(Status.PAID, None, DONE), WAITS, "there is no row: it is written again", "reconcile"),
    "another money": (
        pending(intent("succeeded", amount_minor=9)),
        BROKEN,
        "another amount",
        "refund what is too much",
    ),
    "open, another money": (pending(intent("requires_action", amount_minor=9)), BROKEN, "not the order's", "decide"),
    "the row says more": (paid(OPEN), BROKEN, "its PaymentIntent does not", "find out who"),
    "paid twice": (paid(DONE, intent("succeeded", "pi_2")), BROKEN, "pi_2 is succeeded", "refund what is too much"),
    "no id, and it succeeded": (
        pending(DONE, of_row={"payment_intent_id": None}),
        *(BROKEN, "names no PaymentIntent", f"release {ORDER_ID}"),
    ),
    "a wrong key made it": (pending(of_row={"payment_intent_id": "pi_9"}), BROKEN, "pi_9", "release"),
    "the outcome is on its way": (case(Status.PENDING, S.SUCCEEDED, DONE), WAITS, "does not have it", "republish"),
    "the outcome is lost": (case(Status.PAYMENT_DECLINED, S.SUCCEEDED, DONE), BROKEN, "does not have it", "publish"),
    "priced again": (
        case(Status.PENDING, S.SUCCEEDED, DONE, of_order={"amount_minor": 9}),
        *(BROKEN, "priced again", "cancel it through the API"),
    ),
    "a canceled order was charged": (case(Status.CANCELED, S.CANCELED, DONE), BROKEN, "refund it at Stripe", "refund"),
    "as its row says": (case(Status.CANCELED, S.SUCCEEDED, DONE), BROKEN, "was charged", "refund it at Stripe"),
    **{
        f"a canceled order's money is back: {', '.join(of_row)}": (
            case(Status.CANCELED, S.SUCCEEDED, stripe=StripeFacts(was_asked=False), of_row=of_row),
            *(FINE, "CANCELED", ""),
        )
        for of_row in ({"amount_refunded_minor": 1099}, LOST)
    },
    "a dispute was lost": (
        case(Status.CANCELED, S.SUCCEEDED, intent("succeeded", dispute=Dispute("dp_1", "lost")), of_row=LOST),
        *(FINE, "CANCELED", ""),
    ),
    "disputed": (paid(intent("succeeded", dispute=NEEDS_RESPONSE)), BROKEN, "dp_1 is needs_response", "respond"),
    "disputed, by its row": (
        paid(of_row={"dispute_id": "dp_1", "dispute_status": "needs_response"}, stripe=StripeFacts(was_asked=False)),
        *(BROKEN, "the charge is disputed", "pay nothing back"),
    ),
    "poison": (case(Status.PENDING, None, dead_letters=[LETTER]), BROKEN, "PaymentsDlq", "dlq redrive --message-id m1"),
    "unreadable": (case(None, None, order_error="amount: missing"), BROKEN, "amount: missing", "correct the item"),
    "the order was lost": (
        case(None, S.SUCCEEDED, DONE),
        BROKEN,
        "a payment, and no order",
        "restore the Orders table",
    ),
    "unknown": (case(None, None), BROKEN, "neither", "check the id"),
    "an outage": (
        pending(stripe=StripeFacts(failure=Failure(ResponseKind.NO_ANSWER))),
        *(WAITS, "Stripe does not show it", "tried again"),
    ),
    "a refused key": (
        pending(stripe=StripeFacts(failure=Failure(ResponseKind.ACCOUNT))),
        *(BROKEN, "Stripe does not show it", "store the right key"),
    ),
}


def test_every_status_and_state_has_something_to_say() -> None:
    """Whatever Stripe shows: no facts raise, what is a person's turn has its fix, and a wait its mover."""
    for status, state, at_stripe, age in product(
        (None, *Status), (None, *S), (None, "succeeded", "requires_action", "canceled", "processing"), (5, 2 * DAY)
    ):
        facts = case(status, state, *([intent(at_stripe)] if at_stripe else []), age=age)
        for each in find(facts):
            assert (each.severity is BROKEN) == bool(each.fix), (status, state, at_stripe, each)
            assert each.severity is not WAITS or each.next


def test_a_time_does_not_move_with_the_question() -> None:
    """Somebody who asks again is told the same time: it follows from what is stored."""
    facts = case(Status.PENDING, None, age=5)
    assert len({find(replace(facts, now=NOW + later))[0].until for later in (0, 60, 800)}) == 1


# ---------------------------------------------------------------- refunds


def refund(status: str, age: int = MINUTE, **changes: Any) -> StoredRefund:
    names = {"order_id": ORDER_ID, "refund_id": REFUND_ID, "attempt": 1, "correlation_id": "c", "status": status}
    money = {"amount_minor": 500, "currency": "EUR", "fingerprint": "f", "requested_at": iso(age)}
    return StoredRefund.model_validate({**names, **money, **changes})


def made(status: str, amount: int = 500, refund_id: str = REFUND_ID, **changes: Any) -> Any:
    object_ = {"id": "re_1", "amount": amount, "currency": "eur", "status": status, "created": NOW - 1, **changes}
    return stripe.Refund.construct_from({**object_, "metadata": {"refund_id": refund_id}}, None)


def refunded(asked: StoredRefund, *refunds: Any, sent: Sent | None = None, **of_intent: Any) -> Facts:
    shown = intent("succeeded", refunds=refunds, **of_intent)
    known: dict[str, Any] = {"amount_refunded_minor": shown.intent.amount_refunded_minor}
    if shown.intent.dispute:
        known |= {"dispute_id": shown.intent.dispute.dispute_id, "dispute_status": shown.intent.dispute.status}
    marks = {"refunds_sent": {REFUND_ID: sent} if sent else {}}
    return paid(shown, of_row=known | marks, refunds=[asked])


DISPUTED, OTHER_ID = partial(Dispute, "dp_1"), "rfd_" + "c" * 32
REFUSED = Sent((NOW - UNANSWERED_SECONDS,), "charge_disputed")


def failed(code: str, *others: Any, **of_intent: Any) -> Facts:
    """Stripe had made it."""
    asked = refund("FAILED", stripe_refund_id="re_1", failure_code=code)
    return refunded(asked, made("failed", failure_reason=code), *others, **of_intent)


def refused(code: str, *others: Any, **of_intent: Any) -> Facts:
    return refunded(refund("FAILED", failure_code=code), *others, **of_intent)


def unread(asked: StoredRefund, failure: ResponseKind | None = None, **of_row: Any) -> Facts:
    """Stripe is not asked, or does not answer."""
    shown = StripeFacts(was_asked=failure is not None, failure=Failure(failure) if failure else None)
    return paid(of_row=of_row, stripe=shown, refunds=[asked])


REFUNDS: dict[str, tuple[Facts, Severity, str, str]] = {
    "made": (
        refunded(refund("SUCCEEDED"), made("succeeded"), amount_refunded_minor=500),
        FINE,
        "the order is PAID",
        "",
    ),
    "to be sent": (refunded(refund("PENDING")), WAITS, "the next delivery sends it", "never pay it in another way"),
    "to be told": (
        refunded(refund("PENDING"), made("succeeded"), amount_refunded_minor=500),
        *(WAITS, "Stripe shows it as succeeded", "follows by itself"),
    ),
    "a list that lags": (refunded(refund("PENDING"), amount_refunded_minor=500), WAITS, "shows less", "by itself"),
    "refused, and one is unanswered": (
        refunded(refund("PENDING"), sent=REFUSED._replace(open=(NOW - 1,))),
        *(WAITS, "has not answered", "by itself"),
    ),
    "refused": (refunded(refund("PENDING"), sent=REFUSED), WAITS, "refused it (charge_disputed)", "by itself"),
    "for a day": (refunded(refund("PENDING", DAY + 1)), BROKEN, "more than a day", "never pay it in another way"),
    "its charge is not shown": (unread(refund("PENDING")), WAITS, "waits", ""),
    "held by Stripe": (
        refunded(refund("SUCCEEDED"), made("pending", pending_reason="insufficient_funds"), amount_refunded_minor=500),
        *(BROKEN, "our balance is too low", "never pay it in another way"),
    ),
    "lost, and requested again": (refunded(refund("PENDING"), made("succeeded", 400)), BROKEN, "had made 4.00", "rest"),
    "told as failed, and made": (
        refunded(refund("FAILED", failure_code="more_than_is_left"), made("succeeded")),
        *(FINE, "the order is PAID", ""),
    ),
    "returned": (failed("lost_or_stolen_card"), BROKEN, "failed at Stripe: lost_or", "since: request another refund"),
    "returned, not told": (refunded(refund("SUCCEEDED"), made("failed")), BROKEN, "failed at Stripe", "another refund"),
    "canceled by a person": (failed("merchant_request"), BROKEN, "failed at Stripe", "ask why"),
    "held for too long": (failed("insufficient_funds"), BROKEN, "failed at Stripe", "top our balance up"),
    "not refundable": (refused("charge_not_refundable"), BROKEN, "refused by Stripe", "ask the customer"),
    "something is left": (
        refused("more_than_is_left"),
        BROKEN,
        "refused by Stripe",
        "if the customer should have more",
    ),
}


@pytest.mark.parametrize("name", [*CASES, *REFUNDS])
def test_what_is_found_first(name: str) -> None:
    """The sentence of the product's rule, whether a person has to act, and what happens or is typed next.

    About a refund, by what the refund worker would decide.
    """
    facts, severity, says, then = {**CASES, **REFUNDS}[name]
    found = find(facts)
    first = next((each for each in found if says in each.says), None)
    assert first is not None, found
    assert (first.severity, found[0].severity) == (severity, severity), found
    assert then in f"{first.next} {first.fix}"


TOOK_NOTHING = "won warning_needs_response warning_under_review warning_closed".split()
TAKES = "lost prevented needs_response under_review appeal_needs_response appeal_under_review".split()
BY_DISPUTE = ("charge_disputed", "refund_disputed_payment", "charge_for_pending_refund_disputed")
FOLLOWED: dict[str, tuple[StoredRefund | None, Any]] = {
    "nothing": (None, None),
    "ours, made": (refund("SUCCEEDED", 1, refund_id=OTHER_ID), made("succeeded", refund_id=OTHER_ID)),
    "ours, waiting": (refund("PENDING", 1, refund_id=OTHER_ID), None),
    "ours, failed": (refund("FAILED", 1, refund_id=OTHER_ID, failure_code="x"), made("failed", refund_id=OTHER_ID)),
    "ours, requested before": (
        refund("SUCCEEDED", HOUR, refund_id=OTHER_ID),
        made("succeeded", refund_id=OTHER_ID),
    ),
    "by hand": (None, made("pending", refund_id="", id="re_9")),
    "by hand, before": (None, made("succeeded", refund_id="", created=NOW - HOUR)),
}


@pytest.mark.parametrize("is_shown", [True, False], ids=["shown", "Stripe was not asked"])
@pytest.mark.parametrize("is_made", [True, False], ids=["failed", "refused"])
def test_nobody_is_told_to_pay_a_second_time(is_made: bool, is_shown: bool) -> None:
    """A refund that failed is paid again, unless a dispute decides, all is refunded, or another refund followed it:
    whoever comes second, or is asked by the customer, reads this."""
    asked = refund("FAILED", stripe_refund_id="re_1" if is_made else None)
    codes, totals = ("lost_or_stolen_card", *BY_DISPUTE), (500, 1099)
    # The newest first. The row knows no other one.
    statuses = (
        None,
        *TOOK_NOTHING,
        *TAKES,
        *(["won, lost", "warning_closed, needs_response, won"] if is_shown else []),
    )
    wrong = []
    for code, status, total, name in product(codes, statuses, totals, FOLLOWED):
        other, made_since = FOLLOWED[name]
        listed = [*[made("failed", failure_reason=code)] * is_made, *filter(None, [made_since])]
        listed += [made("succeeded", total, "", id="re_8", created=NOW - HOUR)] * (total == 1099)
        several = list(map(DISPUTED, status.split(", "))) if status else []
        newest = several[0] if several else None
        shown = intent("succeeded", refunds=listed, amount_refunded_minor=total, dispute=newest)
        shown = replace(shown, disputes=disputes(several))
        known: dict[str, Any] = {"amount_refunded_minor": total}
        known |= {"dispute_id": "dp_1", "dispute_status": newest.status} if newest else {}
        at_stripe = StripeFacts(intents=[shown] * is_shown, was_asked=is_shown)
        refunds = [asked.model_copy(update={"failure_code": code}), *filter(None, [other])]
        facts = paid(of_row=known, refunds=refunds, stripe=at_stripe)
        [about] = [each for each in find(facts) if each.says.startswith(REFUND_ID)]
        is_followed = name in ("ours, made", "ours, waiting") or (name == "by hand" and is_shown)
        decides = (
            bool(status and {*TAKES} & {*status.split(", ")})
            or code == BY_DISPUTE[2]
            or (status is None and code in BY_DISPUTE)
        )
        expected = (FINE, False) if decides or total == 1099 or is_followed else (BROKEN, True)
        if (about.severity, bool(about.fix)) != expected or (expected[0] is FINE) != ("pay nothing" in about.says):
            wrong.append((code, status, total, name, about))
    assert wrong == []


def test_what_happens_within_a_second_is_told_in_the_order_of_its_causes() -> None:
    """Stripe's times and the rows' are whole seconds: a charge is before what was stored of it, and a refund after its
    request."""
    given = {"id": "ch_1", "amount": 2500, "status": "succeeded", "created": NOW}
    charge: Any = stripe.Charge.construct_from(given, None)
    shown = intent("succeeded", created=NOW, refunds=[made("succeeded", created=NOW)])
    told = story(paid(replace(shown, charges=[charge]), age=0, refunds=[refund("SUCCEEDED", 0)]))
    expected = (
        *("placed", "was claimed", "was created", "CHARGED", "attempt 1 became SUCCEEDED"),
        *("was requested", "re_1"),
    )
    wrong = [(event.what, word) for event, word in zip(told.events, expected, strict=True) if word not in event.what]
    assert wrong == []
