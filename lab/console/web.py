"""The console's routes: the list, an order, and the buttons that break. The pages ask for themselves every second."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from botocore.exceptions import BotoCoreError, ClientError
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from lab.console.breaks import BREAKS, OURS, LocalBreaks
from lab.console.reading import Reader
from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.contract.money import as_money
from ops.output import Problem, duration_of, problem_of, redacted

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Pages:
    """The pages of one stack."""

    reader: Reader
    breaks: LocalBreaks | None
    """None for a stack in which nothing is broken."""
    shop: str
    """The customer's page, to link to."""
    done: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict)
    """What each button has done last, or why it could not, by its name and the order whose page says so; "" is the
    list."""

    def orders(self, request: Request) -> Response:
        return self._shown(request, "orders.html", lambda: {"tally": self.reader.look()})

    def order(self, request: Request) -> Response:
        order_id: str = request.path_params["order_id"]
        if not re.fullmatch(ORDER_ID_PATTERN, order_id):
            raise HTTPException(404)  # Nothing else becomes a part of a query or of a command.

        def read() -> dict[str, Any]:
            # Before the charges: if no message is left, their number is final.
            queued = self.breaks.still_queued(order_id) if self.breaks else set[str]()
            seen = self.reader.order(order_id, self.breaks.history(order_id) if self.breaks else ())
            return {"order_id": order_id, "seen": seen, "queued": queued, "ours": OURS}

        return self._shown(request, "order.html", read)

    async def press(self, request: Request) -> Response:
        """Press the button, and lead to the page that says what was done, or why not."""
        name = str(request.path_params["name"])
        if self.breaks is None or name not in BREAKS:
            raise HTTPException(404)
        if request.headers.get("origin") != f"http://{request.headers['host']}":
            # Another site in the same browser can send a form here.
            why = "Only the console's own page may press its buttons: Origin has to be its address"
            raise HTTPException(403, why)
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode(errors="replace")).items()}
        order_id, seed = form.get("order_id"), form.get("seed")
        try:
            what, shown = await run_in_threadpool(self.breaks.press, name, order_id=order_id, seed=seed)
            # While Stripe is down, the list shows how orders wait.
            said, shown = (what, True), None if name == "down" else shown
        except Problem as refused:
            said = redacted(str(refused)), False
            shown = order_id if order_id and re.fullmatch(ORDER_ID_PATTERN, order_id) else None
        except Exception as error:
            return self._failed(error)
        self.done[name, shown or ""] = said
        return RedirectResponse(f"{f'/orders/{shown}' if shown else '/'}?done={name}", status_code=303)

    def not_found(self, request: Request, _: Exception) -> Response:
        return self._page("base.html", 404, problem="There is no such page here.")

    def _shown(self, request: Request, name: str, read: Callable[[], dict[str, Any]]) -> Response:
        said = self.done.get((request.query_params.get("done", ""), request.path_params.get("order_id", "")))
        try:
            return self._page(name, said=said, **read())
        except Exception as error:
            return self._failed(error)

    def _failed(self, error: Exception) -> Response:
        """A page that says what to do. Raises the error if it is a defect of ours."""
        problem = problem_of(error)
        if problem is None:
            raise error
        is_aws = isinstance(error, BotoCoreError | ClientError)
        said = "the local stack does not answer: `make local` starts one" if is_aws else str(problem)
        return self._page("base.html", 503, problem=said)

    def _page(self, name: str, status: int = 200, **given: Any) -> Response:
        about = {"stack": self.reader.stack.name, "shop": self.shop, "breaks": self.breaks, "buttons": BREAKS.values()}
        html = _TEMPLATES.get_template(name).render({**about, "problem": None, "said": None, **given})
        return HTMLResponse(html, status)


def create_app(reader: Reader, *, breaks: LocalBreaks | None = None, shop: str = "") -> Starlette:
    """The console of one stack."""
    pages = Pages(reader, breaks, shop)
    return Starlette(
        routes=[
            Route("/", pages.orders),
            Route("/orders/{order_id:str}", pages.order),
            Route("/breaks/{name:str}", pages.press, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ],
        # A name of another site may resolve to this address (DNS rebinding).
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
        exception_handlers={404: pages.not_found},
    )


def _breakable(value: Any) -> Markup:
    """The text; a long name may break after a dot or an underscore, but no id: a word follows there."""
    return Markup("<wbr>").join(re.split(r"(?<=[a-z][._])(?=[a-z]{5})", redacted(str(value))))


_TEMPLATES = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
# Whatever is shown passes ops' redaction first, and then the escaping of HTML.
_TEMPLATES.filters |= {
    "text": lambda value: redacted(str(value)),
    "breakable": _breakable,
    "json": lambda value: redacted(json.dumps(value, indent=2, default=str, ensure_ascii=False)),
    "money": as_money,
    "clock": lambda at: f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}",
    "duration": duration_of,
    "css": lambda lane: str(lane).lower().replace(" ", "-"),
    "milliseconds": lambda at: f"{at % 1:.3f}"[1:],
}
