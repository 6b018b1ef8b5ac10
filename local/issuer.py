"""The OpenID Connect issuer of a local run: its access tokens are as real as those of the issuer of a deployed stack.

The emulator's API Gateway fetches the public key from here, as AWS's does from yours, and verifies each token with it.
The private key is made at the start of the run and is a file in its folder: whoever reads it is whoever they say.
"""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

AUDIENCE = "onecharge-local"
LIFETIME_SECONDS = 3600
REFUND_SCOPE = "onecharge/refund"


@dataclass(frozen=True)
class Issuer:
    """Where it is, whom its tokens are for, and the private key that signs them."""

    url: str
    audience: str
    key_file: Path
    key_id: str = "local"

    def token(self, customer_id: str, scope: str = "") -> str:
        """An access token of this customer, or of somebody of the staff with this scope, for an hour."""
        return self.signed(self.claims(customer_id, scope))

    def claims(self, customer_id: str, scope: str = "") -> dict[str, Any]:
        """The claims of such a token."""
        now = int(time.time())
        claims = {"iss": self.url, "aud": self.audience, "sub": customer_id, "jti": str(uuid4())}
        return {**claims, "iat": now, "nbf": now, "exp": now + LIFETIME_SECONDS, **({"scope": scope} if scope else {})}

    def signed(self, claims: Mapping[str, Any]) -> str:
        """A token of these claims, whatever they are."""
        return jwt.encode(dict(claims), self.key_file.read_text(), algorithm="RS256", headers={"kid": self.key_id})


@contextmanager
def running_issuer(work_dir: Path) -> Iterator[Issuer]:
    """An issuer on a free port of 127.0.0.1, for as long as the block lasts; its key is gone with it."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key_file = work_dir / "issuer-key.pem"
    with ThreadingHTTPServer(("127.0.0.1", 0), _Documents) as server:
        issuer = Issuer(f"http://127.0.0.1:{server.server_port}", AUDIENCE, key_file)
        documents = {
            "/.well-known/openid-configuration": {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/jwks.json"},
            "/jwks.json": {"keys": [_public_key(key, issuer.key_id)]},
        }
        server.documents = {path: json.dumps(each).encode() for path, each in documents.items()}  # type: ignore[attr-defined]
        _write_for_owner(key_file, key)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            key_file.unlink(missing_ok=True)


def _public_key(key: rsa.RSAPrivateKey, key_id: str) -> dict[str, Any]:
    return {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig", "alg": "RS256"}


def _write_for_owner(path: Path, key: rsa.RSAPrivateKey) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)


class _Documents(BaseHTTPRequestHandler):
    """Answers with the server's documents: OpenID Connect Discovery 1.0, and a JSON Web Key Set (RFC 7517)."""

    def do_GET(self) -> None:
        document = self.server.documents.get(self.path)  # type: ignore[attr-defined]
        self.send_response(200 if document else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(document or b"")))
        self.end_headers()
        self.wfile.write(document or b"")

    def log_message(self, format: str, *args: object) -> None:
        pass
