"""The console's routes: the list, an order, server-sent events of both, the buttons that break."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from botocore.exceptions import BotoCoreError, ClientError
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from console.breaks import LocalBreaks
from console.reading import OrderSeen, Reader
from console.tally import tally
from console.timeline import clock_of
from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.contract.money import as_money
from ops.errors import Problem, problem_of
from ops.output import duration_of, redacted, redacted_values, time_of

_HERE = Path(__file__).resolve().parent
ROWS_SHOWN = 100
REFRESH_SECONDS = 1.0


@dataclass(frozen=True)
class Said:
    """What a button has done, or why it could not."""

    what: str
    is_done: bool = True


@dataclass(frozen=True)
class Pages:
    """Everything that a request needs."""

    reader: Reader
    breaks: LocalBreaks | None
    shop: str = ""
    """The customer's page."""
    done: dict[tuple[str, str], Said] = field(default_factory=dict)
    """What each button has done last, by its name and the order whose page says so; "" is the list."""

    @property
    def title(self) -> str:
        return self.reader.stack.name

    # ------------------------------------------------------------ what is shown

    def orders(self, only: str = "") -> dict[str, Any]:
        seen = tally(self.reader.look())
        shown = {
            "waiting": [row for row in seen.rows if row.waits],
            "wrong": [row for row in seen.rows if row.is_wrong],
        }.get(only, seen.rows)
        return {"tally": seen, "rows": shown[:ROWS_SHOWN], "only": only, **self.broken()}

    def order(self, order_id: str) -> dict[str, Any]:
        # Before the charges: if no message is left, their number is final.
        queued = self.breaks.still_queued(order_id) if self.breaks else ()
        seen: OrderSeen = self.reader.order(order_id, self.breaks.history(order_id) if self.breaks else ())
        return {"order_id": order_id, "seen": seen, "story": seen.story, "queued": queued, **self.broken()}

    def broken(self) -> dict[str, Any]:
        """What the buttons have done: which experiments an order was, for how long Stripe is still down, and what the
        usual workers have charged.
        """
        if self.breaks is None:
            return {"experiments": None, "down_seconds": 0, "usual": {}}
        down_seconds = max(0, round(self.breaks.down_until - time.time()))
        return {
            "experiments": self.breaks.experiments,
            "down_seconds": down_seconds,
            "usual": self.breaks.usual_charges(),
        }

    def page(self, name: str, **given: Any) -> str:
        """A whole page."""
        buttons = self.breaks.buttons if self.breaks else ()
        context = {"stack": self.title, "shop": self.shop, "buttons": buttons}
        return _TEMPLATES.get_template(name).render({"problem": None, "said": None, **context, **given})

    def fragment(self, name: str, **given: Any) -> str:
        """The part of a page that changes."""
        template = _TEMPLATES.get_template(name)
        return "".join(template.blocks["live"](template.new_context(given)))


def create_app(reader: Reader, *, breaks: LocalBreaks | None = None, shop: str = "") -> Starlette:
    """The console of one stack.

    Args:
        breaks: None for a stack in which nothing is broken.
        shop: the customer's page, to link to.
    """
    app = Starlette(
        routes=[
            Route("/", _orders),
            Route("/live", _orders),
            Route("/orders/{order_id:str}", _order),
            Route("/orders/{order_id:str}/live", _order),
            Route("/breaks/{name:str}", _press, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ],
        # A name of another site may resolve to this address (DNS rebinding).
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
        exception_handlers={404: _not_found},
    )
    app.state.pages = Pages(reader, breaks, shop)
    return app


# ---------------------------------------------------------------- routes


async def _orders(request: Request) -> Response:
    only = request.query_params.get("only", "")
    return await _shown(request, "orders.html", lambda: _pages(request).orders(only))


async def _order(request: Request) -> Response:
    order_id: str = request.path_params["order_id"]
    if not re.fullmatch(ORDER_ID_PATTERN, order_id):
        raise HTTPException(404)  # Nothing else becomes a part of a query or of a command.
    return await _shown(request, "order.html", lambda: _pages(request).order(order_id))


async def _press(request: Request) -> Response:
    """Press the button, and lead to the page that says what was done, or why not."""
    pages, name = _pages(request), str(request.path_params["name"])
    breaks = pages.breaks
    chosen = next((each for each in breaks.buttons if each.name == name), None) if breaks else None
    if breaks is None or chosen is None:
        raise HTTPException(404)
    if request.headers.get("origin") != f"http://{request.headers['host']}":
        raise HTTPException(403)  # Another site in the same browser can send a form here.
    form = {field: values[0] for field, values in parse_qs((await request.body()).decode(errors="replace")).items()}
    order_id, seed = form.get("order_id"), form.get("seed")
    try:
        what, shown = await run_in_threadpool(breaks.press, name, order_id=order_id, seed=seed)
        said, shown = Said(what), None if chosen.stays else shown
    except Problem as refused:
        said = Said(redacted(str(refused)), is_done=False)
        shown = order_id if order_id and re.fullmatch(ORDER_ID_PATTERN, order_id) else None
    except Exception as error:
        return _failed(pages, error)
    pages.done[name, shown or ""] = said
    return RedirectResponse(f"{f'/orders/{shown}' if shown else '/'}?done={name}", status_code=303)


async def _not_found(request: Request, _: Exception) -> Response:
    return HTMLResponse(_pages(request).page("base.html", problem="There is no such page here."), 404)


def _pages(request: Request) -> Pages:
    pages: Pages = request.app.state.pages
    return pages


async def _shown(request: Request, name: str, read: Callable[[], Mapping[str, Any]]) -> Response:
    """A whole page, or for …/live the stream of what changes in it."""
    if request.url.path.endswith("/live"):
        return _events(request, name, read)
    pages = _pages(request)
    said = pages.done.get((request.query_params.get("done", ""), request.path_params.get("order_id", "")))
    try:
        return HTMLResponse(pages.page(name, said=said, **await run_in_threadpool(read)))
    except Exception as error:
        return _failed(pages, error)


def _failed(pages: Pages, error: Exception) -> Response:
    return HTMLResponse(pages.page("base.html", problem=_problem(pages, error)), 503)


def _problem(pages: Pages, error: Exception) -> str:
    """The error as a line that says what to do. Raises it if it is a defect of ours."""
    problem = problem_of(error)
    if problem is None:
        raise error
    if isinstance(error, BotoCoreError | ClientError):
        return "the local stack does not answer: `make local` starts one"
    return redacted(str(problem))


def _events(request: Request, name: str, read: Callable[[], Mapping[str, Any]]) -> Response:
    """The page's changing part, whenever it has changed (WHATWG HTML Standard, "Server-sent events")."""
    pages = _pages(request)

    async def events() -> AsyncIterator[str]:
        last = ""
        while not await request.is_disconnected():
            try:
                html = pages.fragment(name, **await run_in_threadpool(read))
            except Exception as error:
                yield f"event: problem\ndata: {json.dumps(_problem(pages, error))}\n\n"
            else:
                # A comment keeps the connection, and finds out that nobody listens any more.
                yield f"data: {json.dumps(html)}\n\n" if html != last else ": the same\n\n"
                last = html
            await asyncio.sleep(REFRESH_SECONDS)

    return StreamingResponse(events(), media_type="text/event-stream")


# ---------------------------------------------------------------- templates


def _as_json(value: Any) -> str:
    return json.dumps(redacted_values(value), indent=2, default=str, ensure_ascii=False)


def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Whatever is shown passes ops' redaction first, and then the escaping of HTML.
    made.filters |= {
        "text": lambda value: redacted(str(value)),
        "json": _as_json,
        "money": as_money,
        "clock": clock_of,
        "time": time_of,
        "duration": duration_of,
        "css": lambda lane: str(lane).lower().replace(" ", "-"),
        "milliseconds": lambda at: f"{at % 1:.3f}"[1:],
    }
    return made


_TEMPLATES = _templates()
