"""The local issuer: what it publishes verifies its tokens, and only a page of this machine signs somebody in."""

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

PAGE = "http://127.0.0.1:8000/"
VERIFIER = secrets.token_urlsafe(32)


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[Issuer]:
    with running_issuer(tmp_path) as issuer:
        yield issuer


def verified(issuer: Issuer, token: str) -> dict[str, Any]:
    """The claims, verified with what the issuer publishes."""
    published = requests.get(f"{issuer.url}/.well-known/openid-configuration", timeout=60).json()
    key = jwt.PyJWKClient(published["jwks_uri"]).get_signing_key_from_jwt(token)
    claims: dict[str, Any] = jwt.decode(token, key, ["RS256"], audience=AUDIENCE, issuer=published["issuer"])
    return claims


def authorize(issuer: Issuer, **changes: str) -> requests.Response:
    """What a page asks that signs somebody in by PKCE (RFC 7636)."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
    query = {"response_type": "code", "client_id": CLIENT_ID, "redirect_uri": PAGE, "state": "<s>"}
    pkce = {"code_challenge": challenge, "code_challenge_method": "S256"}
    return requests.get(issuer.authorize_url, params={**query, **pkce, **changes}, timeout=60)


def exchange(issuer: Issuer, person: str, **changes: str) -> requests.Response:
    """Sign this person in, and exchange the code that their page is given."""
    found = re.search(rf'href="([^"]*)">{person}<', authorize(issuer).text)
    assert found
    link = urlsplit(unescape(found[1]))
    query = parse_qs(link.query)
    assert (link.geturl().startswith(PAGE), query["state"]) == (True, ["<s>"])
    form = {"grant_type": "authorization_code", "client_id": CLIENT_ID, "code_verifier": VERIFIER, "redirect_uri": PAGE}
    return requests.post(issuer.token_url, data={**form, "code": query["code"][0], **changes}, timeout=60)


def test_the_command_prints_a_token_that_the_public_key_verifies(issuer: Issuer, tmp_path: Path) -> None:
    """For an hour, and nothing else, so that a shell can take it; where no stack runs, it says what to do. The private
    key is for its owner alone, and nothing that is published has it."""
    addresses = {"jwt_issuer": issuer.url, "jwt_audience": issuer.audience, "jwt_key_file": str(issuer.key_file)}
    (tmp_path / "stack.json").write_text(json.dumps(addresses))

    def token(stack_json: str, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "local.token", "cus_1", *words, "--stack", str(tmp_path / stack_json)]
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)

    claims = verified(issuer, token("stack.json", "--scope", "onecharge/refund").stdout.rstrip("\n"))
    assert (claims["sub"], claims["scope"]) == ("cus_1", "onecharge/refund")
    assert claims["exp"] - claims["iat"] == LIFETIME_SECONDS
    missing = token("no.json")
    assert (missing.returncode, missing.stdout, "`make local` has to run" in missing.stderr) == (2, "", True)
    assert stat.S_IMODE(issuer.key_file.stat().st_mode) == 0o600
    [key] = requests.get(f"{issuer.url}/jwks.json", timeout=60).json()["keys"]
    assert set(key) == {"kty", "key_ops", "n", "e", "kid", "use", "alg"}


def test_a_page_signs_somebody_in(issuer: Issuer) -> None:
    """The code becomes an access token of the chosen person, once; only the staff's has a scope."""
    for person, scope in PEOPLE.items():
        signed_in = exchange(issuer, person)
        claims = verified(issuer, signed_in.json()["access_token"])
        assert (claims["sub"], claims.get("scope", "")) == (person, scope)
        code = parse_qs(str(signed_in.request.body))["code"][0]
        assert exchange(issuer, person, code=code).status_code == 400


@pytest.mark.parametrize(
    "wrong", [{"code_verifier": "guessed"}, {"redirect_uri": "http://127.0.0.1:1/"}, {"code": "guessed"}], ids=str
)
def test_a_code_without_what_began_it_is_refused(issuer: Issuer, wrong: dict[str, str]) -> None:
    """Whoever reads the code in an address has neither the verifier nor a second try."""
    refused = exchange(issuer, "alice", **wrong)
    assert (refused.status_code, refused.json()) == (400, {"error": "invalid_grant"})


ELSEWHERE = (
    *("https://elsewhere.example/", "http://elsewhere.example\\@127.0.0.1:8000/"),
    *("http://127.0.0.1:8000@elsewhere.example/", "javascript://127.0.0.1/%0aalert(1)"),
)
OTHERS: list[dict[str, str]] = [{"code_challenge_method": "plain"}, {"code_challenge": ""}, {"client_id": "another"}]


@pytest.mark.parametrize("wrong", [*({"redirect_uri": each} for each in ELSEWHERE), *OTHERS], ids=str)
def test_only_a_page_of_this_machine_signs_in(issuer: Issuer, wrong: dict[str, str]) -> None:
    """With PKCE, by S256. Nothing of the request is repeated in the answer, and no other site reads or frames it: one
    whose name resolves to this machine is of the issuer's own origin, so its Host is refused."""
    refused = authorize(issuer, **wrong)
    assert (refused.status_code, "elsewhere" in refused.text) == (400, False)
    headers = authorize(issuer).headers
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert "Access-Control-Allow-Origin" not in headers
    port = urlsplit(issuer.url).port
    for host, status in ((f"localhost:{port}", 200), (f"rebound.example:{port}", 403), ("127.0.0.1:1", 403)):
        read = requests.get(f"{issuer.url}/jwks.json", headers={"Host": host}, timeout=60)
        assert read.status_code == status, host
