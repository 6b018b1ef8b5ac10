"""On which of the two deployed stacks a test runs: the standard one, unless it says otherwise."""

import pytest

STANDARD, FIFO = "standard", "fifo"
"""The values of the template's parameter Messaging."""

on_both = pytest.mark.parametrize("stack", [STANDARD, FIFO], indirect=True)
on_fifo = pytest.mark.parametrize("stack", [FIFO], indirect=True)
