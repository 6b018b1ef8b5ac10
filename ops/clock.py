"""Times as a person reads them: UTC, to the second."""

from datetime import UTC, datetime


def shown(seconds: float) -> str:
    """`2026-11-21 21:30:52Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def lasting(seconds: float) -> str:
    """`2 d 3 h`, `15 min`, `40 s`: the two largest units."""
    left, parts = int(seconds), []
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
