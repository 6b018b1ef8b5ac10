"""The OpenID Connect issuer of a local run: its access tokens are as real as those of the issuer of a deployed stack.

A page signs in here by the authorization code flow with PKCE (RFC 7636): instead of typing a password, one of three
people is chosen. The emulator's API Gateway fetches the public key from here, as AWS's does from yours, and verifies
each token with it. The private key is made at the start of the run and is a file in its folder: whoever reads it can
sign in as anyone.
"""

import base64
import hashlib
import json
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import uuid4

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

AUDIENCE = "onecharge-local"
LIFETIME_SECONDS = 3600
REFUND_SCOPE = "onecharge/refund"
CLIENT_ID = "shop"
PEOPLE = {"alice": "", "bob": "", "staff": REFUND_SCOPE}
"""Who can sign in, and the scope of each."""

_PAGE = """<!doctype html>
<html lang="en">
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark"><title>Sign in</title>
<style>
body {{ max-width: 22rem; margin: 12vh auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif }}
a {{ display: block; padding: .75rem 1rem; color: inherit; border: 1px solid #8888; border-radius: .5rem }}
</style>
<main><h1>Who are you?</h1><p>This local sign-in needs no password.</p>{links}</main>
</html>"""


@dataclass(frozen=True)
class Issuer:
    """Its address, the audience of its tokens, and the private key that signs them."""

    url: str
    audience: str
    key_file: Path
    key_id: str = "local"

    @property
    def authorize_url(self) -> str:
        return f"{self.url}/authorize"

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

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
    key_file.unlink(missing_ok=True)
    key_file.touch(mode=0o600, exist_ok=False)
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        issuer = Issuer(f"http://127.0.0.1:{server.server_port}", AUDIENCE, key_file)
        public = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        jwk = {**public, "kid": issuer.key_id, "use": "sig", "alg": "RS256"}
        server.RequestHandlerClass = partial(_Handler, issuer, jwk, {})
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield issuer
        finally:
            server.shutdown()
            key_file.unlink(missing_ok=True)


class _Handler(BaseHTTPRequestHandler):
    """OpenID Connect Discovery 1.0, a JSON Web Key Set (RFC 7517), and the sign-in of pages on this machine."""

    def __init__(
        self, issuer: Issuer, jwk: Mapping[str, Any], codes: dict[str, tuple[str, str, str]], *args: Any
    ) -> None:
        self._issuer, self._jwk, self._codes = issuer, jwk, codes
        super().__init__(*args)

    def parse_request(self) -> bool:
        """Refuse any other Host: by DNS rebinding, a page of another site would read the codes of all three people."""
        if not super().parse_request():
            return False
        port = urlsplit(self._issuer.url).port
        if self.headers.get("Host") in (f"127.0.0.1:{port}", f"localhost:{port}"):
            return True
        self.send_error(403, "Another Host")
        return False

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        match url.path:
            case "/authorize":
                self._authorize(dict(parse_qsl(url.query)))
            case "/jwks.json":
                self._send(200, {"keys": [self._jwk]})
            case "/.well-known/openid-configuration":
                endpoints = {
                    "jwks_uri": f"{self._issuer.url}/jwks.json",
                    "authorization_endpoint": self._issuer.authorize_url,
                    "token_endpoint": self._issuer.token_url,
                }
                self._send(200, {"issuer": self._issuer.url, **endpoints})
            case _:
                self._send(404, {})

    def _authorize(self, query: Mapping[str, str]) -> None:
        """The page on which one of the people is chosen, if a page on this machine asks."""
        redirect_uri, challenge = query.get("redirect_uri", ""), query.get("code_challenge", "")
        # No sign that browsers read in another way than Python does, such as a backslash.
        is_here = re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w./-]*", redirect_uri)
        is_client = query.get("client_id") == CLIENT_ID
        if not (is_here and is_client and challenge and query.get("code_challenge_method") == "S256"):
            return self._send(400, {"error": "only a page on 127.0.0.1 signs in here, with PKCE"})
        links = ""
        for person in PEOPLE:
            code = secrets.token_urlsafe(24)
            self._codes[code] = (person, redirect_uri, challenge)
            target = f"{redirect_uri}?{urlencode({'code': code, 'state': query.get('state', '')})}"
            links += f'<p><a href="{escape(target)}">{person}</a></p>'
        return self._send(200, _PAGE.format(links=links))

    def do_POST(self) -> None:
        """Exchange a code, once."""
        form = dict(parse_qsl(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()))
        person, redirect_uri, challenge = self._codes.pop(form.get("code", ""), ("", "", ""))
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        verified = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == challenge
        if not person or not verified or redirect_uri != form.get("redirect_uri"):
            return self._send(400, {"error": "invalid_grant"})
        token = self._issuer.token(person, PEOPLE[person])
        return self._send(200, {"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME_SECONDS})

    def _send(self, status: int, content: Mapping[str, Any] | str) -> None:
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if isinstance(content, str) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        if self.command == "POST":
            # Any page may exchange a code: it needs the verifier, which only the page that began has. None may read the
            # codes of all three people.
            self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass
