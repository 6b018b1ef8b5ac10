"""The breaks of the demo's test fit the code: said here, since that test takes a deployed stack."""

import pytest

from testing.broken_protocol import BREAKS, PAYMENTS
from testing.harness import PROJECT


@pytest.mark.parametrize("module", BREAKS)
def test_the_line_that_is_broken_is_there_once(module: str) -> None:
    """And what replaces it is another one."""
    right, wrong = BREAKS[module]
    assert (PROJECT / "shared" / PAYMENTS / module).read_text().count(right) == 1
    assert wrong != right
