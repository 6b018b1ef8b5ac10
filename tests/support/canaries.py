"""Canaries: values that represent a secret, a card or a person, fed in somewhere and searched for everywhere else.

    fed in by a test ─► the system ─► logs, metrics, queues, tables, responses ─► found_in(text, canaries): []

A canary is found however it is spelled: as it is, with its digits grouped, in Base64, in a URL, escaped in JSON.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any
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
        yield from (re.escape(f"{each}") for each in _in_base64(self.value.encode()))
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


# ---------------------------------------------------------------- feeding

type Path = tuple[str | int, ...]
"""Where in a JSON value: the keys and indexes that lead there. `JSON` among them steps into a text that is JSON."""

JSON = "\0json"


def paths_in(value: Any, at: Path = ()) -> Iterator[Path]:
    """Each leaf, also inside of texts that are JSON; and each such text as a whole."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_in(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths_in(inner, (*at, index))
    else:
        yield at
        if holds_json(value):
            yield from paths_in(json.loads(value), (*at, JSON))


def holds_json(value: Any) -> bool:
    """Whether it is a text that is a JSON object."""
    try:
        return isinstance(value, str) and isinstance(json.loads(value), dict)
    except ValueError:
        return False


def with_value(event: Any, path: Path, value: Any) -> Any:
    """A copy of the event with this value there."""
    if not path:
        return value
    first, *rest = path
    if first == JSON:
        return json.dumps(with_value(json.loads(event), tuple(rest), value))
    changed = deepcopy(event)
    changed[first] = with_value(event[first], tuple(rest), value)
    return changed


def with_unknown_names(event: Any, path: Path, name: str) -> Any:
    """A copy of the event in which the JSON text there has one more field, of this name and value."""
    body = {**json.loads(value_at(event, path)), name: name}
    return with_value(event, path, json.dumps(body))


def value_at(event: Any, path: Path) -> Any:
    for step in path:
        event = json.loads(event) if step == JSON else event[step]
    return event


def is_under(path: Path, *prefixes: Sequence[str | int]) -> bool:
    """Whether the path begins as one of these; a `*` matches any one step."""
    return any(
        len(path) >= len(prefix) and all(want in ("*", have) for want, have in zip(prefix, path, strict=False))
        for prefix in prefixes
    )


CARD = Canary("a card number", "4000 0566 5566 5556")
"""One that Luhn's check accepts, and that no other test uses."""
OPAQUE = Canary("an opaque value", "Xq7-opaque-c4n4ry-0f-n0-f0rmat")
"""Of no format: no redaction can know it, so only what never writes it down passes."""
API_KEY = Canary("the Stripe key", "sk_test_" + "51CaNaRyKeyOfTheAccount000")
SIGNING_SECRET = Canary("the webhook secret", "whsec_" + "CaNaRySigningSecret0000")
CLIENT_SECRET = Canary("a client secret", "pi_canary_secret_" + "CaNaRyClientSecret0000")
TOKEN = Canary("an access token", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJjYW5hcnkifQ.CaNaRySignature")
EMAIL = Canary("an e-mail address", "jane.canary@customers.example")

FED: Mapping[str, str] = {each.name: each.value for each in (CARD, OPAQUE, CLIENT_SECRET, TOKEN, EMAIL)}
ALL = (CARD, OPAQUE, API_KEY, SIGNING_SECRET, CLIENT_SECRET, TOKEN, EMAIL)
