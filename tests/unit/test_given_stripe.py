"""Which Stripe a local run uses: the stand-in, or the one that the environment names."""

import pytest
import responses

from local.given_stripe import GivenStripe
from local.processes import StartupError, free_port

STRIPE = {"STRIPE_API_BASE": "https://api.stripe.com"}
HERE = {"STRIPE_API_BASE": "http://127.0.0.1:1/"}


@pytest.mark.parametrize(
    ("environment", "given"),
    [
        # Without an address it is a new stand-in, and a key in the environment is ignored, even a live one.
        ({}, None),
        ({"STRIPE_API_BASE": "", "STRIPE_SECRET_KEY": "sk_live_x"}, None),
        (HERE, GivenStripe("http://127.0.0.1:1", "sk_test_local", "whsec_local")),
        (
            {**STRIPE, "STRIPE_SECRET_KEY": "rk_test_mine", "STRIPE_WEBHOOK_SECRET": "whsec_mine"},
            GivenStripe("https://api.stripe.com", "rk_test_mine", "whsec_mine"),
        ),
    ],
)
def test_an_account_or_a_stand_in_is_given(environment: dict[str, str], given: GivenStripe | None) -> None:
    """A stand-in needs no key."""
    assert GivenStripe.of(environment) == given


@pytest.mark.parametrize("given", [STRIPE, HERE])
@pytest.mark.parametrize("api_key", ["sk_live_mine", "rk_live_mine", "pk_test_mine", "sk_test_a sk_live_b"])
def test_other_keys_are_refused(given: dict[str, str], api_key: str) -> None:
    """Live, publishable and malformed keys, at any address; the error message does not contain the key."""
    with pytest.raises(StartupError) as refused:
        GivenStripe.of({**given, "STRIPE_SECRET_KEY": api_key})
    assert api_key not in str(refused.value)


def test_what_is_missing_or_a_placeholder_is_refused() -> None:
    """Stripe needs a key, and every webhook under a placeholder would be refused."""
    for environment in (STRIPE, {**HERE, "STRIPE_WEBHOOK_SECRET": "later"}):
        with pytest.raises(StartupError):
            GivenStripe.of(environment)


def test_a_stand_in_is_recognized(stripe_base: str) -> None:
    """Another server is not a stand-in, and is shown no key; an address without a server is an error."""
    assert GivenStripe(stripe_base).is_standin()
    with responses.RequestsMock() as another:
        another.get("http://127.0.0.1:1/_standin/ledger", status=401)
        assert not GivenStripe("http://127.0.0.1:1").is_standin()
        [call] = another.calls
        assert "Authorization" not in call.request.headers
    with pytest.raises(StartupError):
        GivenStripe(f"http://127.0.0.1:{free_port('127.0.0.1')}").is_standin()
