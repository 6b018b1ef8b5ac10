"""`ops check` moves no real money."""

from typing import Any
from unittest.mock import Mock

import pytest

from ops.check import refuse_live_mode
from ops.errors import Problem


@pytest.mark.parametrize("key", ["sk_test_1", "rk_test_1"])
def test_a_key_of_test_mode_is_taken(key: str) -> None:
    """A restricted one, too."""
    refuse_live_mode(Mock(**{"secret.return_value": key}))


@pytest.mark.parametrize("key", ["sk_live_1", "rk_live_1", "later"])
def test_any_other_key_is_refused(key: str) -> None:
    """It is what the order would be charged with."""
    stack: Any = Mock(**{"secret.return_value": key})
    with pytest.raises(Problem, match="no key of Stripe's test mode"):
        refuse_live_mode(stack)
