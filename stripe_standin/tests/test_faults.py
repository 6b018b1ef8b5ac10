"""Injected faults: which response is sent, whether the request is executed, whether the key stores it."""

import pytest
import stripe

from stripe_standin.faults import Executed, Fault
from stripe_standin.tests.standin_account import Account

CONFIRM = "/v1/payment_intents/*/confirm"
RESPONSES = [(Fault.UNAVAILABLE_503, 503, None), (Fault.RATE_LIMIT_429, 429, "rate_limit")]


def summary(error: stripe.StripeError) -> tuple[int | None, str | None, bool]:
    replayed = (error.headers or {}).get("Idempotent-Replayed") == "true"
    return error.http_status, getattr(error.error, "code", None), replayed


@pytest.mark.parametrize(("kind", "status", "code"), RESPONSES)
def test_an_error_that_is_not_stored_is_not_replayed(
    account: Account, kind: Fault, status: int, code: str | None
) -> None:
    """A retry with the same key confirms."""
    intent = account.create()
    account.admin.add_fault(kind, path=CONFIRM)
    assert summary(account.confirm_fails(intent.id, "pm_card_visa", "confirm-1")) == (status, code, False)
    assert account.charges == 0
    assert account.confirm(intent.id, "pm_card_visa", "confirm-1").status == "succeeded"


@pytest.mark.parametrize(("kind", "status", "code"), RESPONSES)
@pytest.mark.parametrize("executed", [Executed.NEVER, Executed.NOW])
def test_a_stored_error_is_replayed(
    account: Account, kind: Fault, status: int, code: str | None, executed: Executed
) -> None:
    """Whether or not the request was executed; only the ledger and the PaymentIntent show it."""
    intent = account.create()
    account.admin.add_fault(kind, path=CONFIRM, stored=True, executed=executed)
    assert summary(account.confirm_fails(intent.id, "pm_card_visa", "confirm-1")) == (status, code, False)
    assert summary(account.confirm_fails(intent.id, "pm_card_visa", "confirm-1")) == (status, code, True)
    paid = executed is Executed.NOW
    assert account.charges == paid
    assert account.retrieve(intent.id).status == ("succeeded" if paid else "requires_payment_method")


def test_a_502_that_is_not_stored_may_have_created_a_payment_intent(account: Account) -> None:
    """A retry with the same key creates a second one; the first is an orphan that nothing confirms."""
    account.admin.add_fault(Fault.RESPONSE, status=502, executed=Executed.NOW)
    with pytest.raises(stripe.APIError):
        account.create("create-1")
    account.create("create-1")
    assert len(account.admin.ledger().payment_intents) == 2


@pytest.mark.parametrize("how", ["clock", "admin"])
def test_a_500_may_take_effect_later(account: Account, how: str) -> None:
    """Stripe rolls forward; the key still replays the 500."""
    account.stop_clock()
    intent = account.create()
    account.admin.add_fault(Fault.ERROR_500_LATER, path=CONFIRM, seconds=300)
    assert account.confirm_fails(intent.id, "pm_card_visa", "confirm-1").http_status == 500
    assert account.retrieve(intent.id).status == "requires_payment_method"
    if how == "clock":
        account.admin.advance_clock(299)
        assert account.charges == 0
        account.admin.advance_clock(2)
    else:
        assert account.admin.run_scheduled() == 1
    assert account.retrieve(intent.id).status == "succeeded"
    assert account.charges == 1
    assert summary(account.confirm_fails(intent.id, "pm_card_visa", "confirm-1")) == (500, None, True)


def test_a_late_execution_respects_the_status_at_that_time(account: Account) -> None:
    """A PaymentIntent that was canceled before is not charged."""
    intent = account.create()
    account.admin.add_fault(Fault.ERROR_500_LATER, path=CONFIRM)
    account.confirm_fails(intent.id, "pm_card_visa", "confirm-1")
    account.client.v1.payment_intents.cancel(intent.id, {"cancellation_reason": "abandoned"})
    account.admin.run_scheduled()
    assert account.retrieve(intent.id).status == "canceled"
    assert account.charges == 0


@pytest.mark.parametrize(("kind", "charges"), [(Fault.DROP_BEFORE, 0), (Fault.DROP_AFTER, 1)])
def test_a_confirm_without_a_response_is_retried(account: Account, kind: Fault, charges: int) -> None:
    """A retry with the same key charges once, whether the first request was executed or not."""
    intent = account.create()
    account.admin.add_fault(kind, path=CONFIRM)
    assert isinstance(account.confirm_fails(intent.id, "pm_card_visa", "confirm-1"), stripe.APIConnectionError)
    assert account.charges == charges
    assert account.confirm(intent.id, "pm_card_visa", "confirm-1").status == "succeeded"
    assert account.charges == 1


def test_any_error_response_can_be_injected(account: Account) -> None:
    """With its status, code and message; it is not stored."""
    error = {"type": "invalid_request_error", "code": "account_invalid", "message": "Your account cannot charge."}
    account.admin.add_fault(Fault.RESPONSE, status=403, error=error)
    with pytest.raises(stripe.PermissionError) as refused:
        account.create()
    assert summary(refused.value) == (403, "account_invalid", False)
    assert refused.value.user_message == "Your account cannot charge."


def test_a_fault_can_match_the_confirm_of_one_payment_intent(account: Account) -> None:
    """By the parameters of its create: a confirm contains neither amount nor order."""
    other, intent = account.create(amount=2000), account.create(amount=3000)
    account.admin.add_fault(Fault.UNAVAILABLE_503, {"amount": "3000"}, path=CONFIRM)
    assert account.confirm(other.id, "pm_card_visa", "confirm-1").status == "succeeded"
    assert summary(account.confirm_fails(intent.id, "pm_card_visa", "confirm-2"))[0] == 503


def test_a_fault_meets_one_api_key(account: Account) -> None:
    """The requests of another account go on as if there were none."""
    account.admin.assign_api_key("sk_test_other", "acct_other")
    account.admin.add_fault(Fault.UNAVAILABLE_503, api_key="sk_test_other", times=None)
    account.create()
    account.client = account.client_with("sk_test_other")
    with pytest.raises(stripe.APIError):
        account.create()
