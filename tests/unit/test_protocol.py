"""The decisions about money, one by one: pure functions of a row, an answer and a time."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from onecharge.events import OrderPlaced
from onecharge.payments.protocol import (
    OUTCOMES,
    Answer,
    Cancel,
    ChargeRow,
    Compared,
    Confirm,
    FoundIntent,
    FrozenRequest,
    LookAgain,
    OpenNewKey,
    Reply,
    Settle,
    Step,
    Then,
    after_look,
    compare,
    next_step,
    reply_for,
)
from onecharge.payments.time_bounds import ABSENCE_GRACE_SECONDS, KEY_HORIZON_SECONDS
from onecharge.states import PaymentState
from tests.conftest import PROJECT

T0 = 1_800_000_000
ORDER = OrderPlaced(
    order_id="ord_" + "a" * 32,
    attempt=1,
    customer_id="cus_1",
    amount_minor=1099,
    currency="EUR",
    payment_method="pm_card_visa",
    placed_at=datetime.fromtimestamp(T0, UTC),
)
ROW = ChargeRow(
    request=FrozenRequest.of(ORDER),
    state=PaymentState.CLAIMED,
    fencing_token=1,
    lease_expires_at=T0 + 35,
    placed_at=T0,
    key_generation=0,
    key_opened_at=T0,
    looking_since=None,
)
INTENT = FoundIntent("pi_1", "succeeded", 1099, "EUR")


def test_the_key_is_the_same_for_every_delivery() -> None:
    """It derives from order, attempt and generation alone, and holds nothing personal."""
    assert ROW.idempotency_key == f"charge:{ORDER.order_id}:1:0"


def test_equal_orders_freeze_equal_requests() -> None:
    """Byte for byte, since Stripe compares what it gets under one key."""
    again = OrderPlaced.model_validate_json(ORDER.model_dump_json())
    assert FrozenRequest.of(again) == ROW.request
    assert FrozenRequest.of(ORDER.model_copy(update={"amount_minor": 1})).fingerprint != ROW.request.fingerprint


@pytest.mark.parametrize(
    ("age", "step"),
    [(0, Step.CHARGE), (KEY_HORIZON_SECONDS - 1, Step.CHARGE), (KEY_HORIZON_SECONDS, Step.LOOK), (10**7, Step.LOOK)],
)
def test_freshness(age: int, step: Step) -> None:
    """A key is relied on for 23 hours; after that Stripe is looked at first."""
    assert next_step(ROW, T0 + age) is step


def test_a_row_that_says_look_is_looked_at_however_young() -> None:
    """After a 500, whose replay would tell nothing."""
    assert next_step(replace(ROW, looking_since=T0), T0) is Step.LOOK


def test_every_answer_has_an_outcome() -> None:
    """The table is complete: no answer falls through."""
    assert OUTCOMES.keys() == set(Answer)


def documented(section: str) -> list[list[str]]:
    """The rows of the table in that section of docs/protocol.md, without its head."""
    text = (PROJECT / "docs/protocol.md").read_text().split(f"## {section}")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"][2:]


def test_the_documented_outcome_table_is_the_code_s() -> None:
    """Row by row: docs/protocol.md says of each answer what the code does."""
    rows_of_the_row = {
        Then.SAME_KEY_AGAIN: "stays CLAIMED, same key again",
        Then.LOOK_FIRST: "stays CLAIMED, look first",
    }
    in_code = [
        [
            answer.value,
            str(outcome.state or rows_of_the_row[outcome.then]),
            ("done" if outcome.then is Then.SETTLE else "retried with backoff") + (", alarm" if outcome.alarm else ""),
        ]
        for answer, outcome in OUTCOMES.items()
    ]
    assert documented("What each answer means") == in_code


def test_only_a_certain_answer_settles() -> None:
    """A state is written exactly when the message is done."""
    assert all((outcome.state is not None) == (outcome.then is Then.SETTLE) for outcome in OUTCOMES.values())


@pytest.mark.parametrize(
    "answer", [Answer.NO_ANSWER, Answer.KEY_IN_USE, Answer.RATE_LIMITED, Answer.UNAVAILABLE, Answer.BAD_API_KEY]
)
def test_what_nobody_knows_is_asked_again_under_the_same_key(answer: Answer) -> None:
    """No order is failed for a network, a limit or a wrong API key."""
    assert OUTCOMES[answer].then is Then.SAME_KEY_AGAIN


def test_a_500_is_looked_at_before_anything_else() -> None:
    """Stripe replays it for a day, and may have charged all the same."""
    assert OUTCOMES[Answer.SERVER_ERROR].then is Then.LOOK_FIRST


@pytest.mark.parametrize(
    ("intent", "answer"),
    [
        (INTENT, Answer.SUCCEEDED),
        (replace(INTENT, status="requires_action"), Answer.REQUIRES_ACTION),
        (replace(INTENT, status="processing"), Answer.PROCESSING),
        (replace(INTENT, status="requires_payment_method", was_declined=True), Answer.DECLINED),
        (
            replace(
                INTENT, status="requires_payment_method", was_declined=True, decline_code="authentication_required"
            ),
            Answer.REQUIRES_ACTION,
        ),
        (replace(INTENT, status="canceled"), Answer.DECLINED),
        (replace(INTENT, amount_minor=1098), Answer.OTHER_AMOUNT),
        (replace(INTENT, currency="USD"), Answer.OTHER_AMOUNT),
    ],
)
def test_what_a_payment_intent_says(intent: FoundIntent, answer: Answer) -> None:
    """Its status counts only if it is for the money that was agreed."""
    assert reply_for(ROW.request, intent).answer is answer


def test_a_look_that_finds_the_charge_settles_it() -> None:
    """With the id of that charge: no second one is made."""
    assert after_look(ROW, [INTENT], T0) == Settle(Reply(Answer.SUCCEEDED, "pi_1"))


def test_a_look_that_finds_it_processing_waits() -> None:
    """Stripe has not decided yet."""
    assert after_look(ROW, [replace(INTENT, status="processing")], T0) == LookAgain()


@pytest.mark.parametrize("status", ["requires_confirmation", "requires_payment_method"])
def test_an_unconfirmed_payment_intent_of_ours_is_confirmed(status: str) -> None:
    """That very one, whose own states allow one success."""
    assert after_look(ROW, [replace(INTENT, status=status)], T0) == Confirm("pi_1")


def test_an_unconfirmed_payment_intent_for_other_money_is_reviewed() -> None:
    """It is not confirmed."""
    found = [replace(INTENT, status="requires_confirmation", amount_minor=1)]
    assert after_look(ROW, found, T0) == Settle(Reply(Answer.OTHER_AMOUNT, "pi_1"))


def test_two_payment_intents_are_reviewed() -> None:
    """They should not exist; nobody guesses which of them counts."""
    decision = after_look(ROW, [INTENT, replace(INTENT, payment_intent_id="pi_2")], T0)
    assert isinstance(decision, Settle)
    assert OUTCOMES[decision.reply.answer].state is PaymentState.NEEDS_REVIEW


def test_absence_counts_only_after_the_grace() -> None:
    """A request that was answered with a 500 may still take effect."""
    looking = replace(ROW, looking_since=T0)
    assert after_look(looking, [], T0 + ABSENCE_GRACE_SECONDS - 1) == LookAgain()
    assert after_look(looking, [], T0 + ABSENCE_GRACE_SECONDS) == OpenNewKey()


def test_the_freshness_rule_itself_bounds_the_last_use_of_a_key() -> None:
    """A row that was lost, or never written: past horizon and grace nothing can be on its way any more."""
    assert after_look(ROW, [], T0 + KEY_HORIZON_SECONDS) == LookAgain()
    assert after_look(ROW, [], T0 + KEY_HORIZON_SECONDS + ABSENCE_GRACE_SECONDS) == OpenNewKey()


DECLINED_INTENT = replace(INTENT, status="requires_payment_method", was_declined=True)


def test_a_declined_payment_intent_that_is_found_is_canceled_first() -> None:
    """Its customer may have a page open that could still confirm it; canceled, it is a decline for good."""
    assert after_look(ROW, [DECLINED_INTENT], T0) == Cancel("pi_1")
    canceled = replace(DECLINED_INTENT, status="canceled", decline_code="do_not_honor")
    assert after_look(ROW, [canceled], T0) == Settle(Reply(Answer.DECLINED, "pi_1", "do_not_honor"))


SETTLED = replace(ROW, state=PaymentState.SUCCEEDED, payment_intent_id="pi_1")
WAITING = replace(SETTLED, state=PaymentState.REQUIRES_ACTION)
DECLINED = replace(SETTLED, state=PaymentState.DECLINED)
REVIEW = replace(SETTLED, state=PaymentState.NEEDS_REVIEW)
OTHER = replace(INTENT, payment_intent_id="pi_2")
LIVE, EXPIRED = ROW.lease_expires_at - 1, ROW.lease_expires_at

COMPARED: list[tuple[str, ChargeRow | None, str, FoundIntent, int, Compared]] = [
    ("none", None, "a charge", INTENT, LIVE, Compared.UNKNOWN_CHARGE),
    ("none", None, "none", DECLINED_INTENT, LIVE, Compared.AGREES),
    ("CLAIMED, its lease alive", ROW, "anything", INTENT, LIVE, Compared.AGREES),
    ("CLAIMED, its lease expired", ROW, "anything", INTENT, EXPIRED, Compared.ABANDONED),
    ("REQUIRES_ACTION", WAITING, "its charge", INTENT, EXPIRED, Compared.PAID),
    ("REQUIRES_ACTION", WAITING, "a decline, or canceled", DECLINED_INTENT, EXPIRED, Compared.FAILED),
    (
        *("REQUIRES_ACTION", WAITING, "still waiting for the customer"),
        *(replace(INTENT, status="requires_action"), EXPIRED, Compared.AGREES),
    ),
    ("SUCCEEDED", SETTLED, "its charge", INTENT, EXPIRED, Compared.AGREES),
    ("SUCCEEDED", SETTLED, "its PaymentIntent, not charged", DECLINED_INTENT, EXPIRED, Compared.DIFFERS),
    ("DECLINED", DECLINED, "no charge", DECLINED_INTENT, EXPIRED, Compared.AGREES),
    ("DECLINED", DECLINED, "a charge", INTENT, EXPIRED, Compared.DIFFERS),
    ("NEEDS_REVIEW", REVIEW, "anything", INTENT, EXPIRED, Compared.AGREES),
    (
        "any that is settled, but for NEEDS_REVIEW",
        SETTLED,
        "a charge that is not its own",
        OTHER,
        EXPIRED,
        Compared.DIFFERS,
    ),
    (
        *("any that is settled, but for NEEDS_REVIEW", WAITING, "its charge, of other money"),
        *(replace(INTENT, amount_minor=1), EXPIRED, Compared.DIFFERS),
    ),
]


@pytest.mark.parametrize(("row", "intent", "now", "expected"), [(each[1], *each[3:]) for each in COMPARED])
def test_what_stripe_tells_is_compared(
    row: ChargeRow | None, intent: FoundIntent, now: int, expected: Compared
) -> None:
    """With the row as it is, whatever worker or message there still is."""
    assert compare(row, intent, now) is expected


def test_the_documented_comparison_is_the_code_s() -> None:
    """docs/protocol.md lists these cases, and what follows from each."""
    assert documented("What the reconciler does") == [[each[0], each[2], each[5].value] for each in COMPARED]


@pytest.mark.parametrize("row", [SETTLED, WAITING, DECLINED])
def test_other_money_is_always_a_contradiction(row: ChargeRow) -> None:
    """Whichever state the row is settled in."""
    assert compare(row, replace(INTENT, currency="USD"), EXPIRED) is Compared.DIFFERS
    assert compare(row, OTHER, EXPIRED) is Compared.DIFFERS
