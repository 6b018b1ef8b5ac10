"""The parity record: questions over plain HTTP, asked of Stripe's test mode, or of a stand-in.

    STRIPE_SECRET_KEY=sk_test_… python -m stripe_standin.parity     about 120 requests, none of which moves real money

parity.txt has the questions and the expected answers. Another answer is a finding about this stand-in, or about Stripe.
"""

import json
import operator
import os
import re
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from stripe_standin import outgoing
from stripe_standin.account import API_VERSION

STRIPE = "https://api.stripe.com"
_CREATE = "POST payment_intents amount=1099 currency=eur allowed_payment_method_types[0]=card"
_SHORT = {"create": f"{_CREATE} ", "confirm": "POST payment_intents/{intent}/confirm payment_method="}
_NAMES = {"payment_intent": "intent", "charge": "charge", "payment_method": "method"}


def _questions() -> Iterator[tuple[str, list[str]]]:
    text = Path(__file__).with_suffix(".txt").read_text()
    for block in text.strip().split("\n\n")[1:]:
        title, *lines = block.replace("  pay ", "  create\n  confirm ").splitlines()
        yield title, [line.strip() for line in lines]


QUESTIONS: Mapping[str, list[str]] = dict(_questions())
"""The requests with their expected answers, by question."""


class Parity:
    """Asks one Stripe; keeps the ids of the objects in its last answers."""

    def __init__(self, base: str, api_key: str) -> None:
        self._base, self._api_key = base, api_key
        self.names: dict[str, str] = {}

    def ask(self, question: str) -> Iterator[tuple[str, str]]:
        """Send the requests of a question; yields each that is not answered as expected, and its answer."""
        self.names = {"run": uuid4().hex[:24], "256": "k" * 256}
        for line in QUESTIONS[question]:
            request, _, expected = line.partition(" → ")
            for response in self._send_all(request):
                choices = [self._filled(choice) for choice in expected.split(" or ")]
                answers = [self._shown(response, choice) for choice in choices]
                if not any(map(operator.eq, answers, choices)) if expected else response[0] != 200:
                    yield line, answers[0]

    def _send_all(self, request: str) -> list[tuple[int, dict[str, Any]]]:
        """Send it once, or as often as it says: in parallel if all have one key."""
        times, _, repeated = request.rpartition(" times ")
        number = int(times or 1)
        if "key=" not in request:
            return [self._send(repeated) for _ in range(number)]
        with ThreadPoolExecutor(number) as threads:
            return list(threads.map(self._send, [repeated] * number))

    def _filled(self, text: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda name: self.names.get(name[1], name[0]), text)

    def _send(self, request: str) -> tuple[int, dict[str, Any]]:
        verb, _, rest = request.partition(" ")
        full = f"{_SHORT[verb]}{rest}" if verb in _SHORT else request
        method, path, *words = self._filled(full).split()
        given = dict(word.split("=", 1) for word in words)
        headers = {"Authorization": f"Bearer {self._api_key}", "Stripe-Version": API_VERSION}
        if "key" in given:
            key = given.pop("key")
            headers["Idempotency-Key"] = key if len(key) > 255 else f"parity-{self.names['run']}-{key}"
        form, url = urlencode(given), f"{self._base}/v1/{path}"
        if method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        sent = (url, form) if method == "POST" else (f"{url}?{form}", "")
        status, text, received = outgoing.send(method, *sent, headers)
        body = json.loads(text)
        self._learn(body.get("error", {}).get("payment_intent") or body)
        return status, {**body, "headers": received}

    def _learn(self, body: Mapping[str, Any]) -> None:
        if name := _NAMES.get(body.get("object", "")):
            self.names[name] = body["id"]
        if body.get("latest_charge"):
            self.names["charge"] = body["latest_charge"]

    def _shown(self, response: tuple[int, dict[str, Any]], wanted: str) -> str:
        """The response in the words of the record, with the fields that are wanted."""
        status, body = response
        error = body.get("error", {})
        words = [str(status), str(error.get("code") or error.get("type") or body.get("status"))]
        words += [error["decline_code"]] if error.get("decline_code") else []
        words += ["replayed"] if body["headers"].get("idempotent-replayed") == "true" else []
        for field in re.findall(r"(\S+)=", wanted):
            value = _value(body, field)
            words.append(f"{field}={'*' if f'{field}=*' in wanted and value != 'null' else value}")
        return " ".join(words)


def _value(body: Any, path: str) -> str:
    for name in path.split("."):
        if isinstance(body, list):
            body = len(body) if name == "length" else (body[int(name) :] or [None])[0]
        else:
            body = (body or {}).get(name)
    return body if isinstance(body, str) else json.dumps(body)


def report(parity: Parity) -> int:
    """Print each question, and each answer that is not as expected. Returns the number of these answers."""
    count = 0
    for question in QUESTIONS:
        others = list(parity.ask(question))
        print(f"{'another answer' if others else 'as expected':15}{question}")
        for line, answer in others:
            print(f"    {line}\n    answered: {answer}")
        count += len(others)
    print(f"{len(QUESTIONS)} questions, {count} other answers")
    return count


def main() -> None:
    api_key = os.environ.get("STRIPE_SECRET_KEY", "")
    if not api_key.startswith(("sk_test_", "rk_test_")):
        sys.exit("STRIPE_SECRET_KEY is no key of test mode (sk_test_…): no request was sent")
    sys.exit(report(Parity(STRIPE, api_key)) > 0)


if __name__ == "__main__":
    main()
