"""The pages: who may ask, what one may load, and that nothing of an order, a log or Stripe becomes markup."""

import json
import re
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock
from urllib.parse import quote

import anyio
import pytest
import responses
from starlette.testclient import TestClient

from console.breaks import BREAKS, LocalBreaks
from console.experiments import EXPERIMENTS, Experiment, experiment_of
from console.lines import Line
from console.reading import OrderSeen, Reader
from console.serve import main
from console.tally import Seen, Stored
from console.timeline import timeline
from console.web import _events, create_app
from ops.errors import Problem
from ops.facts import Facts
from ops.findings import Finding, broken, waits
from ops.story import story
from tests.support.harness import PROJECT

ORDER_ID = "ord_" + "a" * 32
HOST = "127.0.0.1:8080"
MARKUP = "<script>alert(1)</script>"
SECRET = "sk_test_51" + "a" * 20
T0 = 1_795_414_380


@dataclass
class CannedReader(Reader):
    """Reads nothing; the order's lines hold markup and a secret."""

    problem: Exception | None = None
    findings: Sequence[Finding] = ()
    charges: int | None = 0
    refunded_minor = 0

    def look(self) -> Seen:
        if self.problem:
            raise self.problem
        return Seen(
            T0,
            {ORDER_ID: self.lines()},
            {ORDER_ID: Stored(MARKUP, 2500, "EUR", T0, refunded_minor=self.refunded_minor)},
        )

    def order(self, order_id: str, pressed: Sequence[tuple[float, str]] = ()) -> OrderSeen:
        facts = Facts(order_id=order_id, now=T0, order_error=MARKUP)
        told = story(facts)
        told = replace(told, findings=self.findings or told.findings, charges=self.charges)
        return OrderSeen(told, timeline(told, self.lines(), pressed=pressed), MARKUP)

    def lines(self) -> list[Line]:
        return [
            Line(T0, f"said {MARKUP} {SECRET}", "orders_api", "w", {"order_id": ORDER_ID, "sku": MARKUP, "key": SECRET})
        ]


class CannedBreaks(LocalBreaks):
    """Breaks nothing, and remembers what was pressed."""

    def __init__(self) -> None:
        self.pressed: list[str] = []
        self.queued: set[str] = set()
        self.of_powertools = 1

    def press(self, name: str, *, order_id: str | None, seed: str | None) -> tuple[str, str | None]:
        if name not in {each.name for each in BREAKS}:
            raise KeyError(name)
        if name == "dlq":
            raise Problem("the DLQ is empty")
        self.pressed.append(name)
        return f"done: {MARKUP}", ORDER_ID

    def experiments(self, order_id: str) -> Sequence[Experiment]:
        return [made for name in self.pressed if (made := experiment_of(name))]

    def history(self, order_id: str) -> Sequence[tuple[float, str]]:
        return [(T0, f"{name} {MARKUP}") for name in self.pressed]

    def usual_charges(self) -> Mapping[str, Mapping[str, int]]:
        return {"get, charge, put": Counter([ORDER_ID]), "Powertools": Counter({ORDER_ID: self.of_powertools})}

    def still_queued(self, order_id: str) -> set[str]:
        return self.queued


@pytest.fixture
def breaks() -> CannedBreaks:
    return CannedBreaks()


def client_of(breaks: CannedBreaks | None, problem: Exception | None = None) -> TestClient:
    stack: Any = SimpleNamespace(name="shop")
    app = create_app(CannedReader(stack, T0, problem=problem), breaks=breaks)
    return TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)


@pytest.fixture
def client(breaks: CannedBreaks) -> TestClient:
    return client_of(breaks)


# ---------------------------------------------------------------- who may ask


@pytest.mark.parametrize("host", ["evil.example:8080", "127.0.0.1.evil.example", ""])
def test_another_host_is_refused(client: TestClient, host: str) -> None:
    """A name that an attacker's DNS points at 127.0.0.1 reads nothing."""
    for path in ("/", f"/orders/{ORDER_ID}", "/live", "/static/console.js"):
        assert client.get(path, headers={"Host": host}).status_code == 400


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "https://127.0.0.1:8080", "http://127.0.0.1:9"]
)
def test_a_post_of_another_origin_is_refused(client: TestClient, breaks: CannedBreaks, origin: str | None) -> None:
    """Another site in the same browser presses no button: not the refund's, either."""
    headers = {"Origin": origin} if origin else {}
    for name in ("place", "refund"):
        assert client.post(f"/breaks/{name}", data={"order_id": ORDER_ID}, headers=headers).status_code == 403
    assert breaks.pressed == []


def test_a_button_leads_to_the_orders_timeline(client: TestClient, breaks: CannedBreaks) -> None:
    """Which says what was done; no button is there by another method or name."""
    headers = {"Origin": f"http://{HOST}"}
    response = client.post("/breaks/place", headers=headers)
    assert (response.status_code, breaks.pressed) == (303, ["place"])
    assert "done: &lt;script&gt;" in client.get(response.headers["Location"]).text
    assert client.get("/breaks/place").status_code == 405
    assert client.post("/breaks/none", headers=headers).status_code == 404


def test_a_break_that_is_not_possible_leads_back_and_says_why(client: TestClient) -> None:
    """To the order that it is about, if there is one: nobody is left on a page without a way on."""
    headers = {"Origin": f"http://{HOST}"}
    for given, path in ({"order_id": ORDER_ID}, f"/orders/{ORDER_ID}"), ({"order_id": "//evil.example"}, "/"):
        refused = client.post("/breaks/dlq", data=given, headers=headers)
        assert (refused.status_code, refused.headers["Location"]) == (303, f"{path}?done=dlq")
        assert "Not done: the DLQ is empty" in client.get(refused.headers["Location"]).text


def test_each_button_but_the_refund_is_one_of_the_ten_experiments() -> None:
    """And each experiment has a button: none is only in a text."""
    of_experiments = [name for each in EXPERIMENTS for name in each.buttons]
    assert sorted(of_experiments) == sorted(each.name for each in BREAKS if each.name != "refund")
    assert [each.number for each in EXPERIMENTS] == list(range(1, 11))


def test_list_and_page_say_which_experiment_an_order_was(client: TestClient, breaks: CannedBreaks) -> None:
    """The page says what to look for in the last one; the list names the first, and the numbers of the others."""
    breaks.pressed = ["kill", "day"]
    assert "5 A worker is killed, 7 <" in " ".join(client.get("/").text.split())
    page = client.get(f"/orders/{ORDER_ID}").text
    assert "Experiment 7: Stripe forgets the keys" in page
    assert "Before: 5 A worker is killed" in page
    assert "so nothing is created" in page


def test_numbers_are_not_final_while_a_message_is_queued(client: TestClient, breaks: CannedBreaks) -> None:
    """A usual worker's message comes back after 72 seconds, and may charge a second time."""
    breaks.pressed, breaks.queued = ["kill"], {"Powertools"}
    page = client.get(f"/orders/{ORDER_ID}").text
    assert re.findall("<small>(charge[^<]*)</small>", page) == [
        "charges in Stripe's ledger",
        "charged by get, charge, put",
        "charged by Powertools so far (its queue still has a message)",
    ]
    assert "What you saw so far:" in page
    breaks.queued = set()
    assert "so far" not in client.get(f"/orders/{ORDER_ID}").text


def test_an_order_that_a_usual_worker_never_charges_says_why(client: TestClient, breaks: CannedBreaks) -> None:
    """Once ours has charged it, and no message of it is left: it needed 3-D Secure."""
    breaks.of_powertools = 0
    app: Any = client.app
    for charges, queued, is_said in ((1, set(), True), (0, set(), False), (1, {"Powertools"}, False)):
        app.state.pages.reader.charges, breaks.queued = charges, queued
        assert ("no page for 3-D Secure" in client.get(f"/orders/{ORDER_ID}").text) == is_said
    app.state.pages.reader.charges, breaks.queued, breaks.of_powertools = 1, set(), 1
    assert "no page for 3-D Secure" not in client.get(f"/orders/{ORDER_ID}").text


def test_the_list_says_how_much_of_an_order_is_refunded(client: TestClient) -> None:
    """The order stays PAID."""
    assert " refunded" not in client.get("/").text
    app: Any = client.app
    app.state.pages.reader.refunded_minor = 1000
    assert "10.00 EUR refunded" in client.get("/").text


def test_while_stripe_is_down_the_pages_say_for_how_long(client: TestClient, breaks: CannedBreaks) -> None:
    """Its button leads back to the list: what to watch there is how orders wait."""
    assert "Stripe is down" not in client.get("/").text.partition("Break it</h2>")[0]
    breaks.down_until = time.time() + 45
    for path in ("/", f"/orders/{ORDER_ID}"):
        assert re.search(r"Stripe is down for 4[45] s more", client.get(path).text)
    headers = {"Origin": f"http://{HOST}"}
    assert client.post("/breaks/down", headers=headers).headers["Location"] == "/?done=down"


def test_a_surprise_says_what_it_does_in_sentences() -> None:
    """And the seed that repeats it."""
    breaks = LocalBreaks(stack=None, ops=None)  # type: ignore[arg-type]
    breaks._run = lambda plan: None  # type: ignore[method-assign]
    said, _ = breaks.press("surprise", order_id=None, seed="7")
    again, _ = breaks.press("surprise", order_id=None, seed="7")
    assert said == again
    assert re.fullmatch(
        r"Places three orders, which takes some minutes\."
        r"( The (first|second|third) order gets “[^”]+”, “[^”]+”, “[^”]+” and “[^”]+”\.){3} Seed 7 repeats it\.",
        said,
    )


def test_what_a_surprise_cannot_do_is_in_its_orders_timeline() -> None:
    """A day does not pass for an order that still waits."""
    breaks = LocalBreaks(stack=None, ops=None)  # type: ignore[arg-type]
    breaks.wait_until_charged = lambda order_id: None  # type: ignore[method-assign]

    def press(name: str, **_: object) -> tuple[str, str]:
        if name == "day":
            raise Problem("the order is not decided")
        return "", ORDER_ID

    breaks.press = press  # type: ignore[method-assign]
    buttons = {each.name: each for each in BREAKS}
    breaks._run([(buttons["place"], [buttons["day"], buttons["row"]])])
    said = [what for _, what in breaks.history(ORDER_ID)]
    assert said == ["Surprise me", "not possible: A day passes, since the order is not decided"]


def test_a_stack_whose_stripe_is_not_the_stand_in_has_no_buttons() -> None:
    """Nothing of Stripe's own test mode can be broken."""
    client = client_of(None)
    for path in ("/", f"/orders/{ORDER_ID}"):
        page = client.get(path).text
        assert "read-only" in page
        assert "<form" not in page
    assert client.post("/breaks/place", headers={"Origin": f"http://{HOST}"}).status_code == 404


def test_what_was_done_to_an_order_is_said_of_no_other(client: TestClient) -> None:
    """In another tab: who reads there that a redrive was refused makes it again."""
    client.post("/breaks/dlq", data={"order_id": ORDER_ID}, headers={"Origin": f"http://{HOST}"})
    assert "the DLQ is empty" in client.get(f"/orders/{ORDER_ID}?done=dlq").text
    assert "the DLQ is empty" not in client.get(f"/orders/ord_{'b' * 32}?done=dlq").text


@responses.activate
def test_a_refund_is_of_all_that_is_left_and_why_it_is_refused_is_said() -> None:
    """Asked for once more, there is nothing left: no lost answer refunds twice."""
    issuer = SimpleNamespace(token=lambda *asked: " ".join(asked))
    stack: Any = SimpleNamespace(api_url="http://api.test", issuer=issuer)
    breaks = LocalBreaks(stack, ops=None)  # type: ignore[arg-type]
    sent = responses.post(f"http://api.test/orders/{ORDER_ID}/refunds", status=202, json={})
    breaks.refund(ORDER_ID)
    request = sent.calls[0].request
    assert request.headers["Authorization"] == "Bearer staff onecharge/refund"
    assert json.loads(request.body or "").keys() == {"reason"}
    responses.replace(responses.POST, sent.url, status=409, json={"detail": "Nothing is left."})
    with pytest.raises(Problem, match="Nothing is left"):
        breaks.refund(ORDER_ID)


# ---------------------------------------------------------------- what a page shows, and loads


@pytest.mark.parametrize("path", ["/", f"/orders/{ORDER_ID}", "/none"])
def test_every_page_has_a_strict_policy(client: TestClient, path: str) -> None:
    """Nothing is loaded from elsewhere, and no inline script or style runs."""
    [content] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', client.get(path).text)
    policy = dict(each.split(" ", 1) for each in content.split("; "))
    assert policy["default-src"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"


@pytest.mark.parametrize("path", ["/", f"/orders/{ORDER_ID}"])
def test_markup_and_secrets_are_text(client: TestClient, path: str) -> None:
    """A sku, a decline's message or a log line may hold either."""
    page = client.get(path).text
    assert MARKUP not in page
    assert SECRET not in page
    assert "sku" not in page or "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("finding", "shown"),
    [
        (
            waits("it waits", "republish", T0 + 900),
            ['<li class="waits">', "Next: republish, by 06:28:00 at the latest"],
        ),
        (waits("it waits", "the webhook"), ['<li class="waits">', "Next: the webhook</li>"]),
        (broken("it is disputed", "respond"), ['<li class="broken">', "Fix:<code>respond</code>"]),
    ],
    ids=lambda value: getattr(value, "says", None),
)
def test_a_finding_is_shown_as_explain_prints_it(client: TestClient, finding: Finding, shown: list[str]) -> None:
    """Red if a person has to act; with what happens by itself, by when, and the command."""
    app: Any = client.app
    app.state.pages.reader.findings = [finding]
    page = re.sub(r"\s+<", "<", client.get(f"/orders/{ORDER_ID}").text)
    assert [each for each in shown if each not in page] == []


def test_events_hold_the_same_escaped_part(client: TestClient) -> None:
    """One line of JSON for each event, which the script inserts as it is."""
    app: Any = client.app
    html = app.state.pages.fragment("order.html", **app.state.pages.order(ORDER_ID))
    assert "&lt;script&gt;" in html
    assert MARKUP not in html
    assert "\n" not in json.dumps(html)


def test_what_is_no_order_id_is_looked_up_nowhere(client: TestClient) -> None:
    """It would be a part of a request to Stripe, and of a command that the page says to run."""
    for given in ("ord_' OR metadata['order_id']:'x", "$(reboot)", "a" * 3000, f"{ORDER_ID}x"):
        for path in (f"/orders/{quote(given)}", f"/orders/{quote(given)}/live"):
            assert client.get(path).status_code == 404


async def first_of(client: TestClient, error: Exception) -> str:
    """The first of the server-sent events, if reading fails so."""

    def read() -> dict[str, Any]:
        raise error

    request: Any = SimpleNamespace(app=client.app, is_disconnected=AsyncMock(return_value=False))
    events: Any = _events(request, "orders.html", read)
    return str(await anext(events.body_iterator))


def test_a_problem_holds_no_secret(client: TestClient) -> None:
    """Stripe's and AWS's messages repeat what was sent; a page and an event pass the same redaction."""
    problem = Problem(f"Stripe answers 400: {SECRET}")
    assert "Stripe answers 400" in (page := client_of(None, problem).get("/").text)
    assert "Stripe answers 400" in (event := anyio.run(first_of, client, problem))
    assert SECRET not in page + event


def test_pages_refer_to_nothing_elsewhere() -> None:
    """The console works offline; the policy forbids inline scripts, styles and handlers, so no page has one."""
    for path in [*(PROJECT / "console").rglob("*.html"), *(PROJECT / "console/static").iterdir()]:
        text = path.read_text()
        assert not re.search(r"https?://|//[a-z]+\.", text), path.name
        assert path.suffix != ".html" or not re.search(r"\son\w+=|\sstyle=|<style|javascript:", text), path.name


def test_a_console_without_a_stack_says_how_to_start_one(breaks: CannedBreaks) -> None:
    """In the page, with a status that says so; a defect of ours is no such line."""
    from botocore.exceptions import EndpointConnectionError

    client = client_of(breaks, EndpointConnectionError(endpoint_url="http://127.0.0.1:1"))
    response = client.get("/")
    assert (response.status_code, "`make local` starts one" in response.text) == (503, True)
    with pytest.raises(ZeroDivisionError):
        client_of(breaks, ZeroDivisionError()).get("/")


def test_every_control_has_a_name(client: TestClient) -> None:
    """For screen readers: headings of columns, a label for each input, a description for each button."""
    for path in ("/", f"/orders/{ORDER_ID}"):
        page = client.get(path).text
        assert '<html lang="en">' in page
        assert all(f'id="{each}"' in page for each in re.findall(r'aria-describedby="([^"]+)"', page))
        assert page.count("<table") == page.count("<caption")
        assert not re.search(r"<th(?![a-z])(?![^>]*scope=)", page)


@pytest.mark.parametrize(("port", "why"), [(70_000, "there is no such port"), (None, "Address already in use")])
def test_a_console_without_its_port_says_so_in_one_line(
    port: int | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is taken, or that no machine has."""
    monkeypatch.setattr("console.serve.connect", lambda _: None)
    monkeypatch.setattr("console.serve.local_stack", lambda _: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status = main(["--stack", str(tmp_path), "--port", str(port or taken.getsockname()[1])])
    said = capsys.readouterr().err
    assert (status, said.count("\n"), why in said) == (2, 1, True)
