"""The local issuer: what it publishes verifies its tokens, and its key is its owner's alone, for as long as it runs."""

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests

from local.issuer import AUDIENCE, LIFETIME_SECONDS, Issuer, running_issuer
from testing.harness import PROJECT


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
