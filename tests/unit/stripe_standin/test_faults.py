"""Faults of the charge protocol: what is answered, what is executed, and what is remembered of it."""

import pytest
import stripe

from local.stripe_standin.faults import Executed, Fault
from testing.standin_account import Account

CONFIRM = "/v1/payment_intents/*/confirm"
ANSWERS = [
    (Fault.BAD_GATEWAY_502, 502, None),
    (Fault.UNAVAILABLE_503, 503, None),
    (Fault.GATEWAY_TIMEOUT_504, 504, None),
    (Fault.DEPENDENCY_FAILED_424, 424, None),
    (Fault.LOCK_TIMEOUT_429, 429, "lock_timeout"),
    (Fault.RATE_LIMIT_429, 429, "rate_limit"),
    (Fault.RATE_LIMIT_400, 400, "rate_limit"),
    (Fault.FORBIDDEN_403, 403, None),
]


def seen(error: stripe.StripeError) -> tuple[int | None, str | None, bool]:
    replayed = (error.headers or {}).get("Idempotent-Replayed") == "true"
    return error.http_status, getattr(error.error, "code", None), replayed


@pytest.mark.parametrize(("kind", "status", "code"), ANSWERS)
def test_what_is_not_stored_is_not_replayed(account: Account, kind: Fault, status: int, code: str | None) -> None:
    """The same key confirms afterwards."""
    intent = account.create()
    account.admin.add_fault(kind, path=CONFIRM)
    assert seen(account.confirm_fails(intent.id, "pm_card_visa", "confirm-1")) == (status, code, False)
    assert account.charges == 0
    assert account.confirm(intent.id, "pm_card_visa", "confirm-1").status == "succeeded"


@pytest.mark.parametrize(("kind", "status", "code"), ANSWERS)
@pytest.mark.parametrize("executed", [Executed.NEVER, Executed.NOW])
def test_what_is_stored_is_replayed(
    account: Account, kind: Fault, status: int, code: str | None, executed: Executed
) -> None:
    """Whether or not the request took effect; the ledger and the PaymentIntent know."""
    intent = account.create()
    account.admin.add_fault(kind, path=CONFIRM, stored=True, executed=executed)
    assert seen(account.confirm_fails(intent.id, "pm_card_visa", "confirm-1")) == (status, code, False)
    assert seen(account.confirm_fails(intent.id, "pm_card_visa", "confirm-1")) == (status, code, True)
    paid = executed is Executed.NOW
    assert account.charges == paid
    assert account.retrieve(intent.id).status == ("succeeded" if paid else "requires_payment_method")


def test_an_unstored_error_may_have_created_a_payment_intent(account: Account) -> None:
    """The same key makes a second one: the orphan that the protocol has to live with."""
    account.admin.add_fault(Fault.BAD_GATEWAY_502, executed=Executed.NOW)
    with pytest.raises(stripe.APIError):
        account.create("create-1")
    account.create("create-1")
    assert len(account.admin.ledger().payment_intents) == 2


@pytest.mark.parametrize("how", ["clock", "admin"])
def test_a_500_may_take_effect_later(account: Account, how: str) -> None:
    """Stripe rolls forward; the 500 stays what the key remembers."""
    intent = account.create()
    account.admin.add_fault(Fault.ERROR_500_LATER, path=CONFIRM, seconds=300)
    assert account.confirm_fails(intent.id, "pm_card_visa", "confirm-1").http_status == 500
    assert account.retrieve(intent.id).status == "requires_payment_method"
    if how == "clock":
        account.admin.advance_clock(299)
        assert account.charges == 0
        account.admin.advance_clock(2)
    else:
        assert account.admin.run_late() == 1
    assert account.retrieve(intent.id).status == "succeeded"
    assert account.charges == 1
    assert seen(account.confirm_fails(intent.id, "pm_card_visa", "confirm-1")) == (500, None, True)


def test_what_takes_effect_later_meets_what_there_is_then(account: Account) -> None:
    """A PaymentIntent that was canceled in the meantime is not charged."""
    intent = account.create()
    account.admin.add_fault(Fault.ERROR_500_LATER, path=CONFIRM)
    account.confirm_fails(intent.id, "pm_card_visa", "confirm-1")
    account.client.v1.payment_intents.cancel(intent.id, {"cancellation_reason": "abandoned"})
    account.admin.run_late()
    assert account.retrieve(intent.id).status == "canceled"
    assert account.charges == 0


def test_a_created_one_may_appear_later(account: Account) -> None:
    """Long after the 500 that hid it."""
    account.admin.add_fault(Fault.ERROR_500_LATER, seconds=3600)
    with pytest.raises(stripe.APIError):
        account.create("create-1")
    assert account.client.v1.payment_intents.list().data == []
    account.admin.advance_clock(3601)
    assert len(account.client.v1.payment_intents.list().data) == 1


@pytest.mark.parametrize(("kind", "charges"), [(Fault.DROP_BEFORE, 0), (Fault.DROP_AFTER, 1)])
def test_a_confirm_without_an_answer_is_asked_again(account: Account, kind: Fault, charges: int) -> None:
    """Under its key, and it charges once."""
    intent = account.create()
    account.admin.add_fault(kind, path=CONFIRM)
    assert isinstance(account.confirm_fails(intent.id, "pm_card_visa", "confirm-1"), stripe.APIConnectionError)
    assert account.charges == charges
    assert account.confirm(intent.id, "pm_card_visa", "confirm-1").status == "succeeded"
    assert account.charges == 1


def test_a_confirm_that_hangs_keeps_its_key_in_use(account: Account) -> None:
    """The client gives up; until the request ends, its key is a conflict."""
    intent = account.create()
    account.admin.add_fault(Fault.LATENCY, path=CONFIRM, seconds=3)
    account.client = account.client_with("sk_test_x", read_seconds=1)
    assert isinstance(account.confirm_fails(intent.id, "pm_card_visa", "confirm-1"), stripe.APIConnectionError)
    assert account.confirm_fails(intent.id, "pm_card_visa", "confirm-1").http_status == 409
    assert account.retrieve(intent.id).status == "requires_payment_method"


def test_any_answer_can_be_ordered(account: Account) -> None:
    """With its status, code and message."""
    error = {"type": "invalid_request_error", "code": "account_invalid", "message": "Your account cannot charge."}
    account.admin.add_fault(Fault.ANSWER, status=403, error=error)
    with pytest.raises(stripe.PermissionError) as refused:
        account.create()
    assert seen(refused.value) == (403, "account_invalid", False)
    assert refused.value.user_message == "Your account cannot charge."


def test_a_fault_is_ordered_for_the_confirm_of_one_payment_intent(account: Account) -> None:
    """By what it was created with: a confirm names neither amount nor order."""
    other, intent = account.create(amount=2000), account.create(amount=3000)
    account.admin.add_fault(Fault.UNAVAILABLE_503, {"amount": "3000"}, path=CONFIRM)
    assert account.confirm(other.id, "pm_card_visa", "confirm-1").status == "succeeded"
    assert seen(account.confirm_fails(intent.id, "pm_card_visa", "confirm-2"))[0] == 503
