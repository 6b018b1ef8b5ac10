"""Canaries: values that represent a secret, a card or a person, fed in somewhere and searched for everywhere else.

    fed in by a test ─► the system ─► logs, metrics, queues, tables, responses ─► found_in(text, canaries): []

A canary is found however it is spelled: as it is, with its digits grouped, in Base64, in a URL, escaped in JSON.
"""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote


@dataclass(frozen=True)
class Canary:
    """A value that may be in no place but those it was meant for."""

    name: str
    value: str

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(sorted(self._spellings())), re.IGNORECASE)

    def _spellings(self) -> Iterator[str]:
        yield from map(re.escape, {self.value, quote(self.value, safe=""), json.dumps(self.value)[1:-1]})
        yield from map(re.escape, _in_base64(self.value.encode()))
        yield re.escape(self.value.encode().hex())
        digits = re.sub(r"\D", "", self.value)
        if digits == re.sub(r"[\s-]", "", self.value):
            # A card number, with whatever separates its digits.
            yield r"(?:\W|%20|%2D|\\u0020)*".join(digits)

    def is_in(self, text: str) -> bool:
        return self._pattern.search(text) is not None


def _in_base64(value: bytes) -> Iterator[str]:
    """The part that is the same wherever the value is in a longer text, for each of three positions."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + value).decode().rstrip("=")
        inner = encoded[[0, 2, 3][before] : len(encoded) - (0 if (before + len(value)) % 3 == 0 else 1)]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


def found_in(text: str, canaries: Sequence[Canary]) -> list[str]:
    """The names of the canaries that the text holds."""
    return [each.name for each in canaries if each.is_in(text)]


CARD = Canary("a card number", "4000 0566 5566 5556")
"""One that no other test uses."""
OPAQUE = Canary("an opaque value", "Xq7-opaque-c4n4ry-0f-n0-f0rmat")
"""Of no format: no redaction can know it, so only what never writes it down passes."""
API_KEY = Canary("the Stripe key", "sk_test_" + "51CaNaRyKeyOfTheAccount000")
SIGNING_SECRET = Canary("the webhook secret", "whsec_" + "CaNaRySigningSecret0000")
CLIENT_SECRET = Canary("a client secret", "pi_canary_secret_" + "CaNaRyClientSecret0000")
TOKEN = Canary("an access token", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJjYW5hcnkifQ.CaNaRySignature")
EMAIL = Canary("an e-mail address", "jane.canary@customers.example")

REDACTED = (CARD, API_KEY, SIGNING_SECRET, CLIENT_SECRET, TOKEN, EMAIL)
"""Those of a format that redaction knows."""
