"""On which deployed stacks a test runs: the standard one, unless it says otherwise."""

import pytest

STANDARD = "standard"
FIFO = "fifo"  # optional: fifo

STACKS = [
    STANDARD,
    FIFO,  # optional: fifo
]
on_both = pytest.mark.parametrize("stack", STACKS, indirect=True)
on_fifo = pytest.mark.parametrize("stack", [FIFO], indirect=True)  # optional: fifo
