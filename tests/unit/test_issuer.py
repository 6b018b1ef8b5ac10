"""The local issuer: what it publishes verifies its tokens, and its key is its owner's alone, for as long as it runs."""

import base64
import hashlib
import json
import re
import secrets
import stat
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
import requests

from local.issuer import AUDIENCE, CLIENT_ID, LIFETIME_SECONDS, PEOPLE, Issuer, running_issuer
from tests.support.harness import PROJECT


def verified(issuer: Issuer, token: str) -> dict[str, Any]:
    """The claims, verified with what the issuer publishes."""
    configuration = requests.get(f"{issuer.url}/.well-known/openid-configuration", timeout=60).json()
    key = jwt.PyJWKClient(configuration["jwks_uri"]).get_signing_key_from_jwt(token)
    claims: dict[str, Any] = jwt.decode(
        token, key, algorithms=["RS256"], audience=AUDIENCE, issuer=configuration["issuer"]
    )
    return claims


def test_its_tokens_are_verified_with_its_public_key(tmp_path: Path) -> None:
    """By another library than the emulator's code; for an hour, and without a scope unless one is asked for."""
    with running_issuer(tmp_path) as issuer:
        claims = verified(issuer, issuer.token("auth0|1"))
        assert (claims["sub"], claims["exp"] - claims["iat"], "scope" in claims) == ("auth0|1", LIFETIME_SECONDS, False)
        assert verified(issuer, issuer.token("me", "onecharge/refund"))["scope"] == "onecharge/refund"


def test_another_runs_token_is_not_its_own(tmp_path: Path) -> None:
    """Each run has a key of its own, though both have the same id."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with running_issuer(tmp_path / "one") as one, running_issuer(tmp_path / "other") as other:
        assert one.key_id == other.key_id
        with pytest.raises(jwt.InvalidSignatureError):
            verified(one, other.signed(one.claims("cus_1")))


def test_the_private_key_is_for_its_owner_and_ends_with_the_run(tmp_path: Path) -> None:
    """And it is in nothing that is published."""
    with running_issuer(tmp_path) as issuer:
        assert stat.S_IMODE(issuer.key_file.stat().st_mode) == 0o600
        published = requests.get(f"{issuer.url}/jwks.json", timeout=60).json()
        assert [set(key) for key in published["keys"]] == [{"kty", "key_ops", "n", "e", "kid", "use", "alg"}]
        assert requests.get(f"{issuer.url}/issuer-key.pem", timeout=60).status_code == 404
    assert not issuer.key_file.exists()


def token_for(stack_json: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "local.token", *arguments, "--stack", str(stack_json)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def test_the_command_prints_a_token(tmp_path: Path) -> None:
    """And nothing else, so that a shell can take it; where no stack runs, it says what to do."""
    with running_issuer(tmp_path) as issuer:
        addresses = {"jwt_issuer": issuer.url, "jwt_audience": issuer.audience, "jwt_key_file": str(issuer.key_file)}
        (tmp_path / "stack.json").write_text(json.dumps(addresses))
        printed = token_for(tmp_path / "stack.json", "cus_1", "--scope", "onecharge/refund")
        assert verified(issuer, printed.stdout.rstrip("\n"))["sub"] == "cus_1"
    missing = token_for(tmp_path / "no.json", "cus_1")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "`make local` has to run" in missing.stderr


class _Page:
    """A page that signs somebody in by PKCE (RFC 7636)."""

    def __init__(self, issuer: Issuer, redirect_uri: str = "http://127.0.0.1:8000/") -> None:
        self.issuer, self.redirect_uri, self.verifier = issuer, redirect_uri, secrets.token_urlsafe(32)

    def authorize(self, **changes: str) -> requests.Response:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": CLIENT_ID,
            "redirect_uri": self.redirect_uri,
            "state": "<s>",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return requests.get(self.issuer.authorize_url, params={**query, **changes}, timeout=60)

    def code_of(self, person: str) -> str:
        found = re.search(rf'href="([^"]*)">{person}<', self.authorize().text)
        assert found
        link = urlsplit(unescape(found[1]))
        assert link.geturl().startswith(self.redirect_uri)
        query = parse_qs(link.query)
        assert query["state"] == ["<s>"]
        return query["code"][0]

    def exchange(self, code: str, **changes: str) -> requests.Response:
        form = {
            "grant_type": "authorization_code",
            "client_id": CLIENT_ID,
            "code": code,
            "code_verifier": self.verifier,
            "redirect_uri": self.redirect_uri,
        }
        return requests.post(self.issuer.token_url, data={**form, **changes}, timeout=60)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[_Page]:
    with running_issuer(tmp_path) as issuer:
        yield _Page(issuer)


def test_a_page_signs_somebody_in(page: _Page) -> None:
    """The code becomes an access token of the chosen person; only the staff's has a scope."""
    for person, scope in PEOPLE.items():
        claims = verified(page.issuer, page.exchange(page.code_of(person)).json()["access_token"])
        assert (claims["sub"], claims.get("scope", "")) == (person, scope)


def test_a_code_is_exchanged_once(page: _Page) -> None:
    code = page.code_of("alice")
    assert [page.exchange(code).status_code for _ in range(2)] == [200, 400]


@pytest.mark.parametrize(
    "wrong",
    [{"code_verifier": "guessed"}, {"code_verifier": ""}, {"redirect_uri": "http://127.0.0.1:1/"}, {"code": "guessed"}],
)
def test_a_code_without_what_began_it_is_refused(page: _Page, wrong: dict[str, str]) -> None:
    """Whoever reads the code in an address has neither the verifier nor a second try."""
    code = page.code_of("alice")
    refused = page.exchange(**{"code": code, **wrong})
    assert (refused.status_code, refused.json()) == (400, {"error": "invalid_grant"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"redirect_uri": "https://elsewhere.example/"},
        {"redirect_uri": "http://127.0.0.1.elsewhere.example/"},
        {"redirect_uri": "http://elsewhere.example\\@127.0.0.1:8000/"},
        {"redirect_uri": "http://127.0.0.1:8000@elsewhere.example/"},
        {"redirect_uri": "http://127.0.0.1:8000/#elsewhere"},
        {"redirect_uri": "javascript://127.0.0.1/%0aalert(1)"},
        {"code_challenge_method": "plain"},
        {"code_challenge": ""},
        {"client_id": "another"},
    ],
)
def test_only_a_page_of_this_machine_signs_in(page: _Page, wrong: dict[str, str]) -> None:
    """With PKCE, by S256. Nothing of the request is repeated in the answer."""
    refused = page.authorize(**wrong)
    assert refused.status_code == 400
    assert "elsewhere" not in refused.text


def test_another_site_does_not_read_the_codes(page: _Page) -> None:
    """Nor frames the question: it would choose the staff itself. A page needs only the exchange of a code."""
    answer = page.authorize()
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert page.exchange("guessed").headers["Access-Control-Allow-Origin"] == "*"


def test_another_host_is_refused(page: _Page) -> None:
    """A site whose name resolves to this machine is of the issuer's own origin then, and would read the codes."""
    port = urlsplit(page.issuer.url).port
    for host, refused in ((f"localhost:{port}", False), (f"rebound.example:{port}", True), ("127.0.0.1:1", True)):
        headers = {"Host": host}
        read = requests.get(f"{page.issuer.url}/jwks.json", headers=headers, timeout=60)
        posted = requests.post(page.issuer.token_url, headers=headers, timeout=60)
        assert (read.status_code, posted.status_code) == ((403, 403) if refused else (200, 400)), host
