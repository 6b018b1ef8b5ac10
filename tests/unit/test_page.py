"""The customer's page on this machine: its configuration, and the headers that any host of it should send."""

import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from local.page import headers_for, running_page
from tests.support.harness import PROJECT

LOCAL = {
    "api": "http://127.0.0.1:1/_aws/execute-api/x/$default",
    "stripe_js": "http://127.0.0.1:2/stripe.js",
    "authorize_url": "http://127.0.0.1:3/authorize",
    "token_url": "http://127.0.0.1:3/token",
}
DEPLOYED = {
    "api": "https://abc.execute-api.eu-central-1.amazonaws.com",
    "stripe_js": "https://js.stripe.com/endive/stripe.js",
    "authorize_url": "https://shop.auth.eu-central-1.amazoncognito.com/oauth2/authorize",
    "token_url": "https://shop.auth.eu-central-1.amazoncognito.com/oauth2/token",
}


@pytest.fixture
def page() -> Iterator[str]:
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server,
        running_page(server, LOCAL) as url,
    ):
        yield url


def policy(config: dict[str, str]) -> dict[str, list[str]]:
    """The directives of the Content-Security-Policy, each with its sources."""
    directives = headers_for(config)["Content-Security-Policy"].split("; ")
    return {name: sources for name, *sources in map(str.split, directives)}


def test_every_file_has_the_headers(page: str) -> None:
    """Also config.json, and what does not exist; and none says what the page is not."""
    for path in ("", "app.js", "config.json", "nothing"):
        answer = requests.get(page + path, timeout=60)
        assert headers_for(LOCAL).items() <= dict(answer.headers).items(), path


def test_the_configuration_is_served_as_json(page: str) -> None:
    answer = requests.get(f"{page}config.json", timeout=60)
    assert (answer.json(), answer.headers["Content-Type"]) == (LOCAL, "application/json")


def test_the_price_list_is_served(page: str) -> None:
    """The application's own, with which the page shows prices before anybody has signed in."""
    prices = PROJECT / "functions/orders_api/prices.json"
    assert requests.get(f"{page}prices.json", timeout=60).text == prices.read_text()


def test_nothing_outside_the_page_is_served(page: str) -> None:
    with requests.Session() as session:
        request = requests.Request("GET", page).prepare()
        request.url = f"{page}../README.md"
        assert session.send(request, timeout=60).status_code == 404


def test_the_policy_allows_what_stripe_documents() -> None:
    """Stripe.js and its frames from their own origins, its API, ours and the issuer; no inline script, no framing.

    Source: Stripe documentation, "Integration security guide", Content Security Policy.
    """
    deployed = policy(DEPLOYED)
    assert deployed["script-src"] == ["'self'", "https://js.stripe.com", "https://*.js.stripe.com"]
    assert deployed["frame-src"] == ["https://js.stripe.com", "https://*.js.stripe.com", "https://hooks.stripe.com"]
    issuer = "https://shop.auth.eu-central-1.amazoncognito.com"
    assert deployed["connect-src"] == ["'self'", DEPLOYED["api"], issuer, "https://api.stripe.com"]
    assert (deployed["default-src"], deployed["frame-ancestors"]) == (["'none'"], ["'none'"])
    assert "unsafe" not in str(deployed)


def test_a_local_policy_allows_nothing_but_this_machine() -> None:
    """A page that would ask anything else of Stripe is seen by the tests in a browser."""
    sources = {source for sources in policy(LOCAL).values() for source in sources if source.startswith("http")}
    assert sources == {f"http://127.0.0.1:{port}" for port in (1, 2, 3)}


def test_the_page_never_confirms() -> None:
    """Only the server does, under the attempt's one key; and Stripe.js is never copied."""
    source = "".join(path.read_text() for path in sorted((PROJECT / "web").rglob("*.*")))
    assert not [name for name in ("confirmPayment", "confirmCardPayment", "innerHTML", "eval(") if name in source]


def test_every_word_of_the_page_is_in_one_file() -> None:
    """A shop in another language is that file: no other module has a sentence, or a label, as a string."""
    modules = [path for path in (PROJECT / "web").glob("*.js") if path.name != "words.js"]
    assert modules
    code = {path.name: re.sub(r"(?m)^ *(//|/?\*).*|// [A-Z].*", "", path.read_text()) for path in modules}
    assert {name: found for name in code if (found := re.findall(r"[\"`][A-Z][a-z']+ [a-z][^\"`]*", code[name]))} == {}


def test_the_guides_headers_are_those_of_the_local_server() -> None:
    """A host with them runs the page as the tests do."""
    guide = (PROJECT / "docs/guides/page.md").read_text()
    for name, value in headers_for({**DEPLOYED, "api": "https://API", "token_url": "https://ISSUER/token"}).items():
        assert f"{name}: {value}" in guide, name
