"""Which Stripe a local run speaks to: its own stand-in, one that runs already, or the test mode of a Stripe account."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import requests

from local.processes import StartupError

STRIPE_API_KEY = "sk_test_local"
"""For a stand-in, which takes any test key."""
STRIPE_WEBHOOK_SECRET = "whsec_local"
"""The stand-in signs with it, and the sample events are signed with it."""

_TEST_KEYS = re.compile(r"(sk|rk)_test_\w+")
_REAL_STRIPE = "https://api.stripe.com"
_TIMEOUT_SECONDS = 10


@dataclass(frozen=True)
class GivenStripe:
    """A Stripe that is there already."""

    api_base: str
    api_key: str = STRIPE_API_KEY
    webhook_secret: str = STRIPE_WEBHOOK_SECRET
    publishable_key: str = "pk_test_local"

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "GivenStripe | None":
        """What STRIPE_API_BASE, STRIPE_SECRET_KEY, STRIPE_WEBHOOK_SECRET and STRIPE_PUBLISHABLE_KEY name.

        Without STRIPE_API_BASE a stand-in is started, and no key is read: whatever the shell holds, a real key has
        no business in a run that does not need it.

        Raises:
            StartupError: the key is none of a test mode, so nothing local ever takes real money; or the webhook's
                secret is not one that Stripe signs with.
        """
        api_base = environment.get("STRIPE_API_BASE", "").rstrip("/")
        if not api_base:
            return None
        api_key = environment.get("STRIPE_SECRET_KEY") or (None if api_base == _REAL_STRIPE else STRIPE_API_KEY)
        if api_key is None:
            raise StartupError(f"{api_base} needs STRIPE_SECRET_KEY, a test key of a Stripe account")
        if not _TEST_KEYS.fullmatch(api_key):
            # The key itself is never shown: it may be a live one.
            raise StartupError("STRIPE_SECRET_KEY is no test key (sk_test_… or rk_test_…); live keys are refused here")
        webhook_secret = environment.get("STRIPE_WEBHOOK_SECRET") or STRIPE_WEBHOOK_SECRET
        if not webhook_secret.startswith("whsec_"):
            raise StartupError("STRIPE_WEBHOOK_SECRET is no signing secret (whsec_…): `stripe listen --print-secret`")
        return cls(api_base, api_key, webhook_secret, environment.get("STRIPE_PUBLISHABLE_KEY") or "pk_test_local")

    def is_standin(self) -> bool:
        """Whether it can be steered, and takes an address for webhooks.

        Raises:
            StartupError: nobody answers at its address.
        """
        try:
            # Without a key: whoever else listens there learns nothing.
            response = requests.get(f"{self.api_base}/_standin/ledger", timeout=_TIMEOUT_SECONDS, allow_redirects=False)
            ledger = response.json() if response.ok else None
            return isinstance(ledger, dict) and "charges" in ledger
        except requests.JSONDecodeError:
            return False
        except requests.RequestException as reason:
            raise StartupError(f"no Stripe answers at {self.api_base}: {reason}") from None
