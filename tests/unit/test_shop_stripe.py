"""What the shop's Stripe does late, by itself, or for others."""

import random
from typing import Any

import pytest
import stripe

from stripe_standin.payment_intents import PaymentIntent
from tests.shop.dynamodb import Faults
from tests.shop.stripe import DAY_SECONDS, ShopStripe, client_of

GOOD, DECLINED, ASKS = "pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required"


class Account:
    """A Stripe on which these faults happen, and a client that sends nothing again by itself."""

    def __init__(self, **faults: str) -> None:
        self.io = Faults(now=1000, **faults)
        self.stripe = ShopStripe(self.io, harsh=True)
        self.client: Any = client_of(self.stripe, retries=0).v1

    def created(self, key: str = "create") -> PaymentIntent:
        parameters = {
            "amount": 1099,
            "currency": "eur",
            "allowed_payment_method_types": ["card"],
            "metadata": {"order_id": "ord_1"},
        }
        self.client.payment_intents.create(parameters, {"idempotency_key": key})
        return self.stripe.intents[-1]

    def confirm(self, card: str = GOOD, key: str = "confirm") -> Any:
        intent_id = self.stripe.intents[-1].id
        return self.client.payment_intents.confirm(intent_id, {"payment_method": card}, {"idempotency_key": key})

    def cancel(self) -> Any:
        return self.client.payment_intents.cancel(
            self.stripe.intents[-1].id, {"cancellation_reason": "abandoned"}, {"idempotency_key": "cancel"}
        )

    def later(self, seconds: int) -> None:
        self.io.time += seconds
        self.stripe.time_has_passed()


def fails(account: Account, status: int | None, key: str = "confirm") -> stripe.StripeError:
    with pytest.raises(stripe.StripeError) as error:
        account.confirm(key=key)
    assert error.value.http_status == status
    return error.value


@pytest.mark.parametrize("kind", ["500, executed a day later", "503 stored, executed an hour later"])
def test_a_confirm_takes_effect_when_its_time_has_come(kind: str) -> None:
    """Its key repeats the error until it is forgotten; the charge is of the time at which it was due."""
    account = Account(stripe_confirm=kind)
    intent = account.created()
    status = int(kind[:3])
    fails(account, status)
    assert "Idempotent-Replayed" in (fails(account, status).headers or {})
    assert (intent.status, account.stripe.charges) == ("requires_payment_method", [])
    account.later(3 * DAY_SECONDS)
    assert (intent.status, len(account.stripe.charges)) == ("succeeded", 1)
    assert account.stripe.events[-1]["created"] in (1000 + 3600, 1000 + DAY_SECONDS)


@pytest.mark.parametrize("kind", ["502", "503", "424", "429 lock_timeout", "drop before"])
def test_what_is_turned_away_uses_no_key_up(kind: str) -> None:
    """The next request under the key is the first."""
    account = Account(stripe_confirm=kind)
    account.created()
    error = fails(account, int(kind[:3]) if kind[0].isdigit() else None)
    assert "Idempotent-Replayed" not in (error.headers or {})
    assert "idempotent-replayed" not in account.confirm().last_response.headers
    assert len(account.stripe.charges) == 1


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_stripe_may_forget_a_key_after_a_day(is_forgotten: bool) -> None:
    """It may also keep it for longer. Before that, it never forgets one."""
    account = Account()
    intent = account.created()
    account.io.will_happen = is_forgotten
    account.io.time += DAY_SECONDS - 1
    assert account.created() is intent
    account.io.time += 1
    assert (account.created() is not intent) is is_forgotten
    assert account.stripe.forgotten == ({"create"} if is_forgotten else set())


@pytest.mark.parametrize(("succeeds", "status"), [(True, "succeeded"), (False, "requires_payment_method")])
def test_one_that_is_processing_is_decided_later(succeeds: bool, status: str) -> None:
    """After an hour; until then it can neither be confirmed nor canceled."""
    account = Account(stripe_confirm="processing")
    intent = account.created()
    account.io.will_happen = succeeds
    assert account.confirm().status == "processing"
    assert fails(account, 400, key="again").code == "payment_intent_unexpected_state"
    with pytest.raises(stripe.InvalidRequestError):
        account.cancel()
    account.later(3599)
    assert intent.status == "processing"
    account.later(1)
    assert (intent.status, intent.last_payment_error is None) == (status, succeeds)


def test_another_account_knows_nothing_of_ours() -> None:
    """Neither objects nor keys; what is charged there is charged."""
    account = Account()
    intent = account.created()
    account.confirm()
    account.stripe.account = 1
    with pytest.raises(stripe.InvalidRequestError) as error:
        account.client.payment_intents.retrieve(intent.id)
    assert error.value.http_status == 404
    assert account.client.payment_intents.list({}).data == []
    assert account.client.events.list({}).data == []
    assert account.created().id != intent.id
    assert account.confirm().status == "succeeded"
    assert [account.stripe.is_ours(charge.id) for charge in account.stripe.charges] == [True, False]
    assert client_of(account.stripe, account=0).v1.payment_intents.retrieve(intent.id).id == intent.id


def test_a_customers_page_confirms_what_waits_for_it() -> None:
    """By the client secret, with any card, until it is decided."""
    account = Account()
    intent = account.created()
    account.confirm(ASKS)
    assert account.stripe.bank_decides(intent, pays=False)
    assert intent.last_payment_error is not None
    assert intent.last_payment_error["code"] == "payment_intent_authentication_failure"
    assert account.stripe.customer_confirms("guessed", GOOD) is None
    assert account.stripe.customer_confirms(intent.client_secret, GOOD) is intent
    assert intent.status == "succeeded"
    assert account.stripe.customer_confirms(intent.client_secret, GOOD) is None
    assert len(account.stripe.charges) == 1


def test_no_payment_intent_ever_charges_twice_or_after_it_was_canceled() -> None:
    """Whatever is asked for, in whatever order, under whatever faults."""
    ends = set()
    for seed in range(100):
        chance = random.Random(seed)
        account = Account()
        intent = account.created()
        canceled_with = None
        for number in range(12):
            account.io.faults = {
                "stripe_confirm": chance.choice(["500, executed an hour later", "500 after", "processing", "", ""]),
                "stripe_cancel": chance.choice(["500, executed later", "", ""]),
            }
            account.io.will_happen = chance.random() < 0.5
            act = chance.choice(["confirm", "confirm", "cancel", "later", "bank", "page"])
            try:
                match act:
                    case "confirm":
                        account.confirm(chance.choice([GOOD, DECLINED, ASKS]), f"confirm:{number}")
                    case "cancel":
                        account.cancel()
                    case "later":
                        account.later(chance.choice([60, 1000, DAY_SECONDS]))
                    case "bank":
                        account.stripe.bank_decides(intent, pays=chance.random() < 0.5)
                    case _:
                        account.stripe.customer_confirms(intent.client_secret, GOOD)
            except stripe.StripeError:
                pass
            if intent.status == "canceled" and canceled_with is None:
                canceled_with = len(account.stripe.charges)
        assert len(account.stripe.charges) == (intent.status == "succeeded")
        assert canceled_with in (None, 0)
        ends.add(intent.status)
    assert {"succeeded", "canceled"} <= ends
