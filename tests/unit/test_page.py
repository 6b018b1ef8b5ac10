"""The customer's page on this machine: its configuration, and the headers that any host of it should send."""

import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

from local.page import headers_for, running_page
from onecharge.contract.money import CURRENCIES, as_money
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
SOURCES = {path.name: path.read_text() for path in sorted((PROJECT / "web").glob("*.*"))}


def policy(config: dict[str, str]) -> dict[str, list[str]]:
    """The directives of the Content-Security-Policy, each with its sources."""
    directives = headers_for(config)["Content-Security-Policy"].split("; ")
    return {name: sources for name, *sources in map(str.split, directives)}


def test_the_page_is_served_with_its_headers() -> None:
    """Its files, its configuration, the application's prices, what does not exist; and nothing outside the page."""
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server,
        running_page(server, LOCAL) as page,
        requests.Session() as session,
    ):
        for path in ("", "app.js", "config.json", "nothing"):
            assert headers_for(LOCAL).items() <= dict(session.get(page + path, timeout=60).headers).items(), path
        config = session.get(f"{page}config.json", timeout=60)
        assert (config.json(), config.headers["Content-Type"]) == (LOCAL, "application/json")
        prices = (PROJECT / "functions/orders_api/prices.json").read_text()
        assert session.get(f"{page}prices.json", timeout=60).text == prices
        outside = requests.Request("GET", page).prepare()
        outside.url = f"{page}../README.md"
        assert session.send(outside, timeout=60).status_code == 404


def test_the_policy_allows_what_stripe_documents() -> None:
    """Stripe.js and its frames from their own origins, its API, ours and the issuer; no inline script, no framing. On
    this machine nothing but its own servers.

    Source: Stripe documentation, "Integration security guide", Content Security Policy.
    """
    deployed = policy(DEPLOYED)
    assert deployed["script-src"] == ["'self'", "https://js.stripe.com", "https://*.js.stripe.com"]
    assert deployed["frame-src"] == ["https://js.stripe.com", "https://*.js.stripe.com", "https://hooks.stripe.com"]
    issuer = "https://shop.auth.eu-central-1.amazoncognito.com"
    assert deployed["connect-src"] == ["'self'", DEPLOYED["api"], issuer, "https://api.stripe.com"]
    assert (deployed["default-src"], deployed["frame-ancestors"]) == (["'none'"], ["'none'"])
    assert "unsafe" not in str(deployed)
    here = {source for sources in policy(LOCAL).values() for source in sources if source.startswith("http")}
    assert here == {f"http://127.0.0.1:{port}" for port in (1, 2, 3)}


def test_the_page_never_confirms() -> None:
    """Only the server does, under the attempt's one key; and Stripe.js is never copied."""
    source = "".join(SOURCES.values())
    assert not [name for name in ("confirmPayment", "confirmCardPayment", "innerHTML", "eval(") if name in source]


def test_every_currency_is_shown_as_it_is_charged() -> None:
    """The browser's number of decimals is not Stripe's for a dozen currencies: 2,500.00 HUF was shown as 250,000."""
    digits = dict.fromkeys(CURRENCIES, 2)
    for name, count in (("NO_DECIMALS", 0), ("THREE_DECIMALS", 3)):
        [listed] = re.findall(rf'{name} = "(.*)"\.split', SOURCES["view.js"])
        digits |= dict.fromkeys(listed.split(), count)
    charged = {each: len(as_money(250_000, each).split()[0].partition(".")[2]) for each in CURRENCIES}
    assert {each: digits[each] for each in CURRENCIES} == charged


def test_the_guides_headers_are_those_of_the_local_server() -> None:
    """A host with them runs the page as the tests do."""
    guide = (PROJECT / "docs/guides/page.md").read_text()
    for name, value in headers_for({**DEPLOYED, "api": "https://API", "token_url": "https://ISSUER/token"}).items():
        assert f"{name}: {value}" in guide, name
