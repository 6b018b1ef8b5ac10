"""When Python looks for garbage: not while a function starts.

What a function imports and builds is 80,000 objects, and none is garbage. By the default Python would scan them
42 times: a twelfth of a cold start's CPU.
"""

import gc

_DEFAULT = gc.get_threshold()[0]
"""So many new objects, and Python looks for garbage."""
_WHILE_STARTING = 100_000


def expect_none() -> None:
    """Until `expect_some`, look for garbage rarely. What calls that never, as a test, has a bound all the same."""
    gc.set_threshold(_WHILE_STARTING)


def expect_some() -> None:
    """From now on look for garbage as by default; but not among what there is by now, which lives as long as we do."""
    gc.freeze()
    gc.set_threshold(_DEFAULT)
