"""Card numbers have no business here: what holds one is refused before it is stored, hashed or logged.

A payment method id (`pm_…`) is what a shop sends; the card itself goes from the customer's browser to Stripe.
"""

import re

# In one run of digits, or in the groups that are printed on a card, with a sign or two between them.
_IN_ONE_RUN = r"(?<!\d)\d{14,19}(?!\d)"
_BETWEEN = r"[\s._:/-]{1,2}"
_IN_GROUPS_OF_FOUR = rf"(?<![\dA-Fa-f])\d{{4}}(?:{_BETWEEN}\d{{4}}){{3}}(?:{_BETWEEN}\d{{1,3}})?(?![\dA-Fa-f])"
_AS_AMEX_AND_DINERS_PRINT = rf"(?<![\dA-Fa-f])\d{{4}}{_BETWEEN}\d{{6}}{_BETWEEN}\d{{4,5}}(?![\dA-Fa-f])"
_CANDIDATE = re.compile(f"{_IN_ONE_RUN}|{_IN_GROUPS_OF_FOUR}|{_AS_AMEX_AND_DINERS_PRINT}")

# How numbers begin that are issued: 14 digits Diners, 15 American Express, 16 to 19 all the others. Shorter runs are
# left alone, since a 13-digit number is an EAN barcode far more often than a card, and so are times of day.
_ISSUED = re.compile(r"(?:30|36|38|39)\d{12}|3[47]\d{13}|[2-9]\d{15,18}")

# A digest or a UUID without dashes, which has a letter somewhere, may hold a long run of digits by chance.
_HEXADECIMAL_ID = re.compile(
    r"(?<![0-9A-Za-z])(?=[0-9]*[a-f])(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})(?![0-9A-Za-z])", re.IGNORECASE
)


def holds_card_number(text: str) -> bool:
    """Whether the text holds something that passes for a card number (ISO/IEC 7812, Luhn's check digit)."""
    without_ids = _HEXADECIMAL_ID.sub(" ", text)
    found = (match.group() for match in _CANDIDATE.finditer(without_ids))
    # Digits of any script, as ASCII's.
    candidates = ("".join(str(int(sign)) for sign in text if sign.isdecimal()) for text in found)
    return any(passes_luhn(digits) and _ISSUED.fullmatch(digits) for digits in candidates)


def passes_luhn(digits: str) -> bool:
    """Luhn's check: every second digit from the right doubled, the digits' sum divisible by ten."""
    doubled = [int(digit) * 2 if place % 2 else int(digit) for place, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0
