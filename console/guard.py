"""Who may ask: a browser on this machine, and for a change only the console's own page.

Another site in the same browser can send requests here. It can neither read an answer (the same-origin policy), nor
name the token of a page that it cannot read. Host stops DNS rebinding, Origin a form of another site, Sec-Fetch-Site
an image or a frame of one, since each read spends requests to AWS and Stripe. Sources: OWASP Cheat Sheet, "Cross-Site
Request Forgery Prevention"; W3C, "Fetch Metadata Request Headers" and "Content Security Policy Level 3".
"""

import secrets
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
BODY_MAX = 8_192
"""Bytes of a form of ours, at most: a reason has 500 characters."""


class Guard:
    """Refuses another Host, reads by another site, and a POST of another Origin; adds the headers to every response."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self._refusal(scope["method"], Headers(scope=scope))
        app = PlainTextResponse(refused, status_code=403) if refused else self._app
        await app(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers) -> str | None:
        host = headers.get("host", "")
        if host not in self._hosts:
            return "This console answers on 127.0.0.1 and localhost alone."
        is_link = headers.get("sec-fetch-dest") == "document"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_link:
            return "Only the console's own pages load this."
        if method not in ("GET", "HEAD") and headers.get("origin") != f"http://{host}":
            return "Only the console's own page may press its buttons."
        return None


def new_token() -> str:
    """A secret of this process, which its pages carry."""
    return secrets.token_urlsafe(32)


async def form_of(request: Request, token: str) -> dict[str, str] | None:
    """The form's fields; None if it lacks the token of our pages, or is longer than any of ours."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_MAX:
            return None
    fields = {name: values[0] for name, values in parse_qs(body.decode(errors="replace")).items()}
    is_ours = secrets.compare_digest(fields.get("token", "").encode(), token.encode())
    return fields if is_ours else None
