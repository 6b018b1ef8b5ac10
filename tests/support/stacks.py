"""On which deployed stacks a test runs: the standard one, unless it says otherwise."""

import pytest

STANDARD = "standard"
FIFO = "fifo"
OPERATED = "operated"
"""The standard template once more, at night, for the tests marked `own_stack`."""

own_stack = pytest.mark.own_stack
"""Does to its stack what nobody else may see: stops a queue's or a stream's reader, edits a row, empties a DLQ."""

on_both = pytest.mark.parametrize("stack", [STANDARD, pytest.param(FIFO, marks=pytest.mark.nightly)], indirect=True)
"""What the test claims holds for both kinds of messaging."""
