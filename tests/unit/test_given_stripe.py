"""Which Stripe a local run uses: the stand-in, or the one that the environment names."""

import pytest
import responses

from local.given_stripe import GivenStripe
from local.processes import StartupError, free_port
from stripe_standin.server import running_standin


def test_the_default_is_a_new_stand_in() -> None:
    """Without STRIPE_API_BASE; a secret key in the environment is ignored, even a live one."""
    assert GivenStripe.of({}) is None
    assert GivenStripe.of({"STRIPE_API_BASE": "", "STRIPE_SECRET_KEY": "sk_live_x"}) is None


def test_a_stand_in_needs_no_key() -> None:
    """Without STRIPE_SECRET_KEY it gets a local test key."""
    assert GivenStripe.of({"STRIPE_API_BASE": "http://127.0.0.1:1/"}) == GivenStripe(
        "http://127.0.0.1:1", "sk_test_local", "whsec_local"
    )


def test_an_account_s_test_mode_is_used() -> None:
    """With its own secret or restricted key and its webhook secret."""
    given = {"STRIPE_API_BASE": "https://api.stripe.com", "STRIPE_WEBHOOK_SECRET": "whsec_mine"}
    for api_key in ("sk_test_mine", "rk_test_mine"):
        expected = GivenStripe("https://api.stripe.com", api_key, "whsec_mine")
        assert GivenStripe.of({**given, "STRIPE_SECRET_KEY": api_key}) == expected


@pytest.mark.parametrize("api_key", ["sk_live_mine", "rk_live_mine", "pk_test_mine", "sk_test_a sk_live_b", ""])
def test_other_keys_are_refused(api_key: str) -> None:
    """Live, publishable and malformed keys; the error message does not contain the key."""
    with pytest.raises(StartupError) as refused:
        GivenStripe.of({"STRIPE_API_BASE": "https://api.stripe.com", "STRIPE_SECRET_KEY": api_key})
    assert not api_key or api_key not in str(refused.value)


def test_a_placeholder_is_no_signing_secret() -> None:
    """Every webhook would be refused."""
    with pytest.raises(StartupError):
        GivenStripe.of({"STRIPE_API_BASE": "http://127.0.0.1:1", "STRIPE_WEBHOOK_SECRET": "later"})


def test_a_live_key_is_refused_at_any_address() -> None:
    """At a stand-in's address too: it would be stored in the local secret."""
    with pytest.raises(StartupError):
        GivenStripe.of({"STRIPE_API_BASE": "http://127.0.0.1:1", "STRIPE_SECRET_KEY": "sk_live_mine"})


def test_a_stand_in_is_recognized() -> None:
    """Another server is not a stand-in; an address without a server is an error."""

    with running_standin() as standin:
        assert GivenStripe(standin.base_url).is_standin()
    with responses.RequestsMock() as another:
        another.get("http://127.0.0.1:1/_standin/ledger", status=401)
        assert not GivenStripe("http://127.0.0.1:1").is_standin()
        [call] = another.calls
        assert "Authorization" not in call.request.headers
    with pytest.raises(StartupError):
        GivenStripe(f"http://127.0.0.1:{free_port('127.0.0.1')}").is_standin()
