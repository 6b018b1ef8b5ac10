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

PAGE = "http://127.0.0.1:8000/"
VERIFIER = secrets.token_urlsafe(32)


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[Issuer]:
    with running_issuer(tmp_path) as issuer:
        yield issuer


def verified(issuer: Issuer, token: str) -> dict[str, Any]:
    """The claims, verified with what the issuer publishes."""
    configuration = requests.get(f"{issuer.url}/.well-known/openid-configuration", timeout=60).json()
    key = jwt.PyJWKClient(configuration["jwks_uri"]).get_signing_key_from_jwt(token)
    claims: dict[str, Any] = jwt.decode(
        token, key, algorithms=["RS256"], audience=AUDIENCE, issuer=configuration["issuer"]
    )
    return claims


def token_for(stack_json: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "local.token", *arguments, "--stack", str(stack_json)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def test_the_command_prints_a_token_that_the_public_key_verifies(issuer: Issuer, tmp_path: Path) -> None:
    """For an hour, and nothing else, so that a shell can take it; where no stack runs, it says what to do."""
    addresses = {"jwt_issuer": issuer.url, "jwt_audience": issuer.audience, "jwt_key_file": str(issuer.key_file)}
    (tmp_path / "stack.json").write_text(json.dumps(addresses))
    printed = token_for(tmp_path / "stack.json", "cus_1", "--scope", "onecharge/refund")
    claims = verified(issuer, printed.stdout.rstrip("\n"))
    assert (claims["sub"], claims["scope"], claims["exp"] - claims["iat"]) == (
        "cus_1",
        "onecharge/refund",
        LIFETIME_SECONDS,
    )
    missing = token_for(tmp_path / "no.json", "cus_1")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "`make local` has to run" in missing.stderr


def test_the_private_key_is_for_its_owner_and_ends_with_the_run(tmp_path: Path) -> None:
    """It is in nothing that is published, and each run has its own, though all have the same id."""
    (tmp_path / "other").mkdir()
    with running_issuer(tmp_path) as issuer, running_issuer(tmp_path / "other") as other:
        assert stat.S_IMODE(issuer.key_file.stat().st_mode) == 0o600
        published = requests.get(f"{issuer.url}/jwks.json", timeout=60).json()
        assert [set(key) for key in published["keys"]] == [{"kty", "key_ops", "n", "e", "kid", "use", "alg"}]
        with pytest.raises(jwt.InvalidSignatureError):
            verified(issuer, other.signed(issuer.claims("cus_1")))
    assert not issuer.key_file.exists()


def authorize(issuer: Issuer, **changes: str) -> requests.Response:
    """What a page asks that signs somebody in by PKCE (RFC 7636)."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
    query = {"response_type": "code", "client_id": CLIENT_ID, "redirect_uri": PAGE, "state": "<s>"}
    pkce = {"code_challenge": challenge, "code_challenge_method": "S256"}
    return requests.get(issuer.authorize_url, params={**query, **pkce, **changes}, timeout=60)


def code_of(issuer: Issuer, person: str) -> str:
    found = re.search(rf'href="([^"]*)">{person}<', authorize(issuer).text)
    assert found
    link = urlsplit(unescape(found[1]))
    query = parse_qs(link.query)
    assert (link.geturl().startswith(PAGE), query["state"]) == (True, ["<s>"])
    return query["code"][0]


def exchange(issuer: Issuer, code: str, **changes: str) -> requests.Response:
    form = {"grant_type": "authorization_code", "client_id": CLIENT_ID, "code": code, "code_verifier": VERIFIER}
    return requests.post(issuer.token_url, data={**form, "redirect_uri": PAGE, **changes}, timeout=60)


def test_a_page_signs_somebody_in(issuer: Issuer) -> None:
    """The code becomes an access token of the chosen person, once; only the staff's has a scope."""
    for person, scope in PEOPLE.items():
        code = code_of(issuer, person)
        claims = verified(issuer, exchange(issuer, code).json()["access_token"])
        assert (claims["sub"], claims.get("scope", "")) == (person, scope)
        assert exchange(issuer, code).status_code == 400


@pytest.mark.parametrize(
    "wrong",
    [{"code_verifier": "guessed"}, {"code_verifier": ""}, {"redirect_uri": "http://127.0.0.1:1/"}, {"code": "guessed"}],
)
def test_a_code_without_what_began_it_is_refused(issuer: Issuer, wrong: dict[str, str]) -> None:
    """Whoever reads the code in an address has neither the verifier nor a second try."""
    refused = exchange(issuer, **{"code": code_of(issuer, "alice"), **wrong})
    assert (refused.status_code, refused.json()) == (400, {"error": "invalid_grant"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"redirect_uri": "https://elsewhere.example/"},
        {"redirect_uri": "http://elsewhere.example\\@127.0.0.1:8000/"},
        {"redirect_uri": "http://127.0.0.1:8000@elsewhere.example/"},
        {"redirect_uri": "javascript://127.0.0.1/%0aalert(1)"},
        {"code_challenge_method": "plain"},
        {"code_challenge": ""},
        {"client_id": "another"},
    ],
)
def test_only_a_page_of_this_machine_signs_in(issuer: Issuer, wrong: dict[str, str]) -> None:
    """With PKCE, by S256. Nothing of the request is repeated in the answer."""
    refused = authorize(issuer, **wrong)
    assert (refused.status_code, "elsewhere" in refused.text) == (400, False)


def test_another_site_does_not_read_the_codes(issuer: Issuer) -> None:
    """Nor frames the question. A site whose name resolves to this machine is of the issuer's own origin: its Host is
    refused."""
    answer = authorize(issuer)
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert exchange(issuer, "guessed").headers["Access-Control-Allow-Origin"] == "*"
    port = urlsplit(issuer.url).port
    for host, status in ((f"localhost:{port}", 200), (f"rebound.example:{port}", 403), ("127.0.0.1:1", 403)):
        read = requests.get(f"{issuer.url}/jwks.json", headers={"Host": host}, timeout=60)
        assert read.status_code == status, host
