"""`ops check` moves no real money."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from ops.check import refuse_live_mode
from ops.errors import Problem


@dataclass
class Stack:
    """A stack with these parameters, whose secrets have the names of their values."""

    values: dict[str, str] = field(default_factory=dict)

    def parameters(self) -> list[str]:
        return sorted(self.values)

    def parameter(self, name: str) -> str:
        return self.values[name]

    def secret(self, arn: str) -> str:
        return arn


TEST = {"StripeSecretArn": "sk_test_1", "StripeWebhookSecretArn": "whsec_1", "ChargeStripeSecretArn": ""}


def test_keys_of_test_mode_are_taken() -> None:
    """Restricted ones, too; a key that is not given is none, and a signing secret has no mode."""
    stack: Any = Stack({**TEST, "ChargeStripeSecretArn": "rk_test_1"})
    refuse_live_mode(stack)


@pytest.mark.parametrize("name", ["StripeSecretArn", "ChargeStripeSecretArn", "WebhookStripeSecretArn"])
@pytest.mark.parametrize("key", ["sk_live_1", "rk_live_1", "later"])
def test_one_other_key_is_enough_to_refuse(name: str, key: str) -> None:
    """Of whichever function: it is what the order would be charged with."""
    stack: Any = Stack({**TEST, name: key})
    with pytest.raises(Problem, match=f"^{name} is no key of Stripe's test mode"):
        refuse_live_mode(stack)
