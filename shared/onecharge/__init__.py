"""What two or more functions of onecharge share: the contract of the events, money, and how to log."""

from onecharge.runtime import garbage

garbage.expect_none()  # Before the imports of a function; its handler ends it (runtime/functions.py).
