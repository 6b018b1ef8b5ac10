"""Card numbers have no business here: a request that holds one is refused before it is stored, hashed or logged.

A payment method id (`pm_…`) is what a shop sends; the card itself goes from the customer's browser to Stripe.
"""

import re

# In one run of 14 to 19 digits, or in the groups that are printed on a card. Shorter runs are left alone, since a
# 13-digit number is an EAN barcode far more often than a card, and none begins with 0 or 1: those are times.
_IN_ONE_RUN = r"(?<!\d)\d{14,19}(?!\d)"
_IN_GROUPS_OF_FOUR = r"(?<![\dA-Fa-f])\d{4}([ .-])\d{4}\1\d{4}\1\d{1,4}(?:\1\d{1,3})?(?![\dA-Fa-f])"
_AS_AMEX_AND_DINERS_PRINT = r"(?<![\dA-Fa-f])\d{4}([ .-])\d{6}\2\d{4,5}(?![\dA-Fa-f])"
_CANDIDATE = re.compile(f"{_IN_ONE_RUN}|{_IN_GROUPS_OF_FOUR}|{_AS_AMEX_AND_DINERS_PRINT}")

# A digest or a UUID without dashes may hold a long run of digits by chance.
_HEXADECIMAL_ID = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})(?![0-9A-Za-z])", re.IGNORECASE
)


def holds_card_number(text: str) -> bool:
    """Whether the text holds something that passes for a card number (ISO/IEC 7812, Luhn's check digit)."""
    without_ids = _HEXADECIMAL_ID.sub(" ", text)
    candidates = (re.sub(r"\D", "", match.group()) for match in _CANDIDATE.finditer(without_ids))
    return any(int(digits[0]) >= 2 and passes_luhn(digits) for digits in candidates)


def passes_luhn(digits: str) -> bool:
    """Luhn's check: every second digit from the right doubled, the digits' sum divisible by ten."""
    doubled = [int(digit) * 2 if place % 2 else int(digit) for place, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0
