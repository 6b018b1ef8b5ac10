"""Card numbers are refused before anything is stored, hashed or logged.

A payment method id (`pm_…`) is what a shop sends; the card itself goes from the customer's browser to Stripe.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

# One run of digits, or the groups that are printed on a card with a few characters between them.
_IN_ONE_RUN = r"(?<!\d)\d{14,19}(?!\d)"
_BETWEEN = r"[\s._:/\\\-\u2010-\u2015]{1,3}"
_IN_GROUPS_OF_FOUR = rf"(?<!\d)\d{{4}}(?:{_BETWEEN}\d{{4}}){{3}}(?:{_BETWEEN}\d{{1,3}})?(?!\d)"
_AS_AMEX_AND_DINERS_PRINT = rf"(?<!\d)\d{{4}}{_BETWEEN}\d{{6}}{_BETWEEN}\d{{4,5}}(?!\d)"
_CANDIDATE = re.compile(f"{_IN_ONE_RUN}|{_IN_GROUPS_OF_FOUR}|{_AS_AMEX_AND_DINERS_PRINT}")

# The prefixes of issued numbers: 14 digits Diners, 15 American Express, 16 to 19 all the others. Shorter runs are
# allowed: a 13-digit number is an EAN barcode or a timestamp far more often than a card.
_ISSUED = re.compile(r"(?:30|36|38|39)\d{12}|3[47]\d{13}|[2-9]\d{15,18}")

# A digest or a UUID, with dashes or without, may contain a long run of digits by chance; without
# dashes it has a letter.
_HEXADECIMAL_ID = re.compile(
    r"(?<![0-9A-Za-z])"
    r"(?:(?=[0-9]*[a-f])(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"(?![0-9A-Za-z])",
    re.IGNORECASE,
)


def holds_card_number(text: str) -> bool:
    """Whether the text contains what looks like a card number (ISO/IEC 7812, Luhn's check digit)."""
    without_ids = _HEXADECIMAL_ID.sub(" ", text)
    found = (match.group() for match in _CANDIDATE.finditer(without_ids))
    # Digits of any script, as ASCII digits.
    candidates = ("".join(str(int(sign)) for sign in text if sign.isdecimal()) for text in found)
    return any(passes_luhn(digits) and _ISSUED.fullmatch(digits) for digits in candidates)


def body_holds_card_number(body: str) -> bool:
    """Whether any name or value of the JSON contains a card number, or the text itself if it is not JSON.

    The parsed values are searched: in the text a number could hide behind an escape, such as `4242\\/4242`.
    """
    try:
        # Numbers as their digits, however many; duplicate names with all their values.
        parsed = json.loads(body, object_pairs_hook=list, parse_int=str, parse_float=str, parse_constant=str)
        return any(holds_card_number(text) for text in _strings_in(parsed))
    except (ValueError, RecursionError):
        return holds_card_number(body) or holds_card_number(_unescaped(body))


def _strings_in(parsed: Any) -> Iterator[str]:
    waiting = [parsed]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, list | tuple):
            waiting.extend(each)


def _unescaped(body: str) -> str:
    r"""The text with its `\u0034` escapes resolved."""
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda escape: chr(int(escape.group(1), 16)), body)


def passes_luhn(digits: str) -> bool:
    """Luhn's check: every second digit from the right doubled, the digits' sum divisible by ten."""
    doubled = [int(digit) * 2 if index % 2 else int(digit) for index, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0
