"""The console: log events and facts become a list and a timeline in lanes; who may ask; what a page shows."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest
import responses
import stripe
from botocore.exceptions import EndpointConnectionError
from starlette.testclient import TestClient

from lab.console import breaks as buttons
from lab.console import reading
from lab.console.breaks import BREAKS, OURS, LocalBreaks
from lab.console.lines import HELD, STRIPE_REQUEST, Line, by_order, line_of
from lab.console.orders import Tally, tally
from lab.console.reading import OrderSeen, Reader
from lab.console.timeline import Timeline, timeline
from lab.console.web import create_app
from onecharge.orders.republication import DAY_SECONDS
from ops.explain import CONFIRM, CREATE, REFUND, events, states
from ops.explain import Event as StoryEvent
from ops.facts import Facts
from ops.findings import find
from ops.output import Problem
from stripe_standin.faults import Fault
from stripe_standin.server import running_standin
from tests.support.operated_stack import FREE, OperatedStack

ORDER_ID, OTHER_ID = "ord_" + "a" * 32, "ord_" + "b" * 32
PI, T0 = "pi_" + "1" * 24, 1_795_414_380
ROW = {"state": "PENDING", "lease_expires_at": T0 + 17}
RETRIEVE = "GET /v1/payment_intents/{id}"
Event = Mapping[str, Any]


def line(at: float, message: str, *, service: str = "charge_order", worker: str = "w1", **fields: Any) -> Event:
    """An event of CloudWatch Logs, as a function's logger writes it; the event itself comes a moment later."""
    stamp = f"2026-11-23 06:{13 + int(at) // 60:02}:{int(at) % 60:02},{round(at % 1 * 1000):03}+0000"
    text = json.dumps({"message": message, "timestamp": stamp, "service": service, "order_id": ORDER_ID, **fields})
    return {"timestamp": (T0 + at + 0.4) * 1000, "logStreamName": worker, "message": text}


def delivery(at: float, message: str, number: str = "m1", count: int = 1, **fields: Any) -> Event:
    return line(at, message, message_id=number, receive_count=count, **fields)


def request(at: float, endpoint: str, *, status: str = "2xx", service: str = "charge_order", **about: Any) -> Event:
    """A request to Stripe, in embedded metric format."""
    fields = {"service": service, "StripeSeconds": [0.1], "endpoint": endpoint, "status": status, **about}
    text = json.dumps({"_aws": {"Timestamp": (T0 + at) * 1000}, **fields})
    return {"timestamp": (T0 + at + 0.4) * 1000, "logStreamName": "w1", "message": text}


def create(at: float, **about: Any) -> Event:
    return request(at, CREATE, order_id=ORDER_ID, **about)


def confirm(at: float, **about: Any) -> Event:
    return request(at, CONFIRM, order_id=ORDER_ID, **about)


PLACED = line(0, "order placed", service="orders_api")
CLAIMED = delivery(1, "payment claimed", lease_expires_at=T0 + 17)
BEGUN = [PLACED, line(0.2, "event published", service="publish_events"), CLAIMED, create(1.1)]
FINALIZED = delivery(1.7, "payment finalized", state="SUCCEEDED", payment_intent_id=PI)
DUPLICATE = delivery(2, "duplicate ignored: the attempt has ended", "m2", worker="w2", row=ROW)
LEASED = delivery(1.3, "duplicate waits for the lease", "m3", worker="w2", wait_seconds=17, row=ROW)
RELEASED, WAITS = delivery(1.5, "payment not finished"), delivery(1.6, "message waits", wait_seconds=4)
KILLED = {"timestamp": (T0 + 13) * 1000, "logStreamName": "w1", "message": "Task timed out after 12.00 seconds\n"}
AGAIN = delivery(80, "payment claimed", count=2, worker="w2", lease_expires_at=T0 + 97)
WEBHOOK = line(1.8, "event processed", service="stripe_webhook")


def lines_of(*events: Event) -> list[Line]:
    return by_order(filter(None, map(line_of, events))).get(ORDER_ID, [])


# ---------------------------------------------------------------- lines, and the list


def test_each_line_is_of_its_order_and_has_the_time_at_which_it_was_written() -> None:
    """A retrieve names only the PaymentIntent; a timeout is of the orders that its worker had claimed and not ended."""
    retrieve = request(3, RETRIEVE, stripe_object=PI)
    assert [each.at - T0 for each in lines_of(*BEGUN, FINALIZED, retrieve)] == pytest.approx([0, 0.2, 1, 1.1, 1.7, 3])
    assert [len(lines_of(*each, KILLED)) for each in (BEGUN, [*BEGUN, FINALIZED], [PLACED, AGAIN])] == [5, 5, 2]
    of_nobody = ["START RequestId: 1", "[1]", "{", '{"type": "platform.start"}', '{"service": "x"}']
    others = [{"timestamp": T0, "logStreamName": "w", "message": each} for each in of_nobody]
    assert lines_of(retrieve, line(0, "order placed", order_id="ord_evil"), *others) == []


_LOST_ANSWER = [*BEGUN, confirm(1.4, status="none"), confirm(1.5, replayed="true"), FINALIZED]


@pytest.mark.parametrize(
    ("events", "status", "charges", "after", "numbers", "in_ledger"),
    [
        (_LOST_ANSWER, "PAID", 1, 1, "1 0 0 3 1", "1 0 0"),
        ([*BEGUN, LEASED, DUPLICATE], "PENDING", 0, 1, "3 1 1 1 0", "0 0 0"),
        ([*BEGUN, KILLED, AGAIN], "PAID", 2, 1, "2 0 0 2 0", "2 1 0"),  # The confirm that charged is not logged.
        ([*BEGUN, KILLED], "PENDING", None, 1, "1 0 0 1 0", "? ? ?"),
        ([PLACED], "PAID", None, 1, "0 0 0 0 0", "? ? ?"),
        ([PLACED], "PAID", 0, 1, "0 0 0 0 0", "0 0 1"),
        ([PLACED], "no item", 0, 1, "0 0 0 0 0", "0 0 1"),  # It was accepted.
        ([PLACED], "PENDING", 0, DAY_SECONDS - 1, "0 0 0 0 0", "0 0 0"),
        ([PLACED], "PENDING", 0, DAY_SECONDS + 1, "0 0 0 0 0", "0 0 1"),
        ([PLACED], "PAYMENT_DECLINED", 0, DAY_SECONDS + 1, "0 0 0 0 0", "0 0 0"),
    ],
)
def test_what_is_counted(
    events: list[Event], status: str, charges: int | None, after: float, numbers: str, in_ledger: str
) -> None:
    """Deliveries and requests by their lines; what was charged twice or lost by Stripe's ledger. One that was not read
    proves no loss, and has no number.
    """
    made = listed(events, status, charges, after)
    assert " ".join(str(made.total(each)) for each in ("deliveries", *_NUMBERS)) == numbers
    assert " ".join(map(made.in_ledger, ("charges", "is_charged_twice", "is_lost"))) == in_ledger
    assert (made.rows[0].charges, made.rows[0].is_wrong) == (charges, in_ledger[2:] in ("0 1", "1 0"))


_NUMBERS = ("duplicates", "leased", "requests", "replays")


def listed(events: list[Event], status: str, charges: int | None = 0, after: float = 90) -> Tally:
    item = {"status": status, "placed_at": "2026-11-23T06:13:00+00:00"}
    counted = None if charges is None else Counter({ORDER_ID: charges} if charges else {})
    return tally({ORDER_ID: lines_of(*events)}, {ORDER_ID: item} if status != "no item" else {}, counted, T0 + after)


def test_an_order_is_where_the_log_placed_it_and_held_until_it_is_released() -> None:
    """A release publishes the outcome, or lets a worker claim it. "A day passes" makes the stored order a day older."""
    early, held = line(-9, "order placed"), delivery(2, HELD)
    told = line(3, "event published", service="publish_events")
    orders = [held], [early, held, WEBHOOK], [early, held, AGAIN], [early, held, told]
    made = [listed(events, "PENDING").rows[0] for events in orders]
    assert [(each.at - T0, each.is_held) for each in made] == [(0, True), (-9, True), (-9, False), (-9, False)]


# ---------------------------------------------------------------- the timeline

CHARGED = StoryEvent(T0 + 1, "stripe", f"CHARGED: 25.00 EUR, {PI}", CONFIRM)
REFUNDED = StoryEvent(T0 + 40, "stripe", "re_1 is succeeded", REFUND)
SYNCED = line(1.9, "the row becomes SUCCEEDED", service="stripe_webhook")
REFUND_ANSWER = request(40.7, REFUND, service="refund_charge", order_id=ORDER_ID)
TOLD = line(40.9, "refund told", service="refund_charge", worker="r")
_BEGUN = """order service: order placed
    queue: event published
    queue: message m1 delivered
    worker A: payment claimed, granted
    Stripe: create: status 2xx"""
_SCHEDULES: dict[str, tuple[list[Event | StoryEvent], int, str]] = {
    "a payment whose key has its answer replayed, then a refund, each event once": (
        [CHARGED, confirm(1.4, replayed="true"), FINALIZED, REFUNDED, REFUND_ANSWER, TOLD],
        90,
        """Stripe: CHARGED: 25.00 EUR, pi_1111…, money
        Stripe: confirm: status 2xx, replayed true, replayed
        worker A: payment finalized: state SUCCEEDED, granted
        39 s later Stripe: re_1 is succeeded
        Stripe: refund: status 2xx
        refund worker: refund told, granted
        leased to worker A: 1.0 to 1.7""",
    ),
    "an answer is lost, the message waits, and a webhook reports the charge": (
        [CHARGED, confirm(1.4, status="none"), RELEASED, WAITS, WEBHOOK, SYNCED],
        3,
        """Stripe: confirm: status none, waits
        worker A: payment not finished, waits
        queue: message waits: wait_seconds 4, waits
        Stripe: CHARGED: 25.00 EUR, pi_1111…, money
        webhook, reconcile: event processed
        webhook, reconcile: the row becomes SUCCEEDED, granted
        4 s later queue: message m1 is visible again, expected
        leased to worker A: 1.0 to 1.5""",
    ),
    "refused claims, each beside its delivery, and a held order, which has no lease": (
        [LEASED, delivery(1.4, HELD, why="too old"), DUPLICATE],
        3,
        """queue: message m3 delivered
        worker B: duplicate waits for the lease: wait_seconds 17, refused
        worker A: payment held: an operator releases it: why too old, failed
        queue: message m2 delivered
        worker B: duplicate ignored: the attempt has ended, refused
        leased to worker A: 1.0 to 1.4""",
    ),
    "a killed worker keeps its lease until it expires": (
        [CHARGED, KILLED, AGAIN],
        90,
        """Stripe: CHARGED: 25.00 EUR, pi_1111…, money
        11 s later worker A: worker killed at its timeout, waits
        4 s later worker A: lease expired, waits
        63 s later queue: message m1 delivered, receive count 2, waits
        worker B: payment claimed, granted
        leased to worker A: 1.0 to 17.0
        leased to worker B: 80.0 to 97.0""",
    ),
    "what a dead worker had received comes again once it is no longer hidden": (
        [KILLED],
        14,
        """12 s later worker A: worker killed at its timeout, waits
        60 s later queue: message m1 is visible again, expected
        leased to worker A: 1.0 to 17.0""",
    ),
}


@pytest.mark.parametrize(("events", "now", "expected"), _SCHEDULES.values(), ids=_SCHEDULES)
def test_the_timeline(events: list[Event | StoryEvent], now: int, expected: str) -> None:
    """Each moment has its lane, says what the log or Stripe says, and is shown as what it is."""
    made = shown(*BEGUN, *events, now=now)
    found = []
    for index, each in enumerate(made.moments):
        gap = f"{made.gap_before(index):.0f} s later " if made.gap_before(index) else ""
        found.append(f"{gap}{each.lane}: {each.what}" + (f", {each.kind}" if each.kind != "plain" else ""))
    leases = [f"leased to {each.lane}: {each.begins - T0:.1f} to {each.ends - T0:.1f}" for each in made.leases]
    assert found + leases == re.split(r"\n +", f"{_BEGUN}\n {expected}")
    assert [bool(made.leased(index)) for index in (0, 5)] == [False, True]


def shown(*given: Event | StoryEvent, now: int = 90) -> Timeline:
    lines = lines_of(*(each for each in given if not isinstance(each, StoryEvent)))
    facts = Facts(order_id=ORDER_ID, now=T0 + now, lines=[(each.at, each.fields) for each in lines])
    others = [each for each in given if isinstance(each, StoryEvent)]
    return timeline([*events(facts), *others], T0 + now, hidden_seconds=72)


def test_what_has_no_line_is_shown_by_what_stripe_has() -> None:
    """What Stripe created without one, as by hand. Many workers share their last lane."""
    made = StoryEvent(T0 + 1, "stripe", "pi_1 was created", CREATE)
    for lines, told in (([create(1.1)], "create: status 2xx"), ([create(9)], made.what), ([], made.what)):
        assert next(each.what for each in shown(made, *lines).moments) == told
    many = [delivery(3, "duplicate ignored", str(each), worker=f"w{each}", row=ROW) for each in range(9)]
    assert [each for each in shown(*many).lanes if "worker" in each] == ["worker A", "worker B", "workers C, D, …"]


# ---------------------------------------------------------------- reading


@pytest.fixture
def operated(aws: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[OperatedStack]:
    """A stack in this process, whose log is a list."""
    with running_standin() as standin:
        made = OperatedStack(standin.base_url)
        made.stack.__dict__["_values"]["FunctionsLogGroup"] = "/aws/lambda/shop"
        monkeypatch.setattr(
            reading, "log_events", lambda *_, since_ms: [each for each in made.log if each["timestamp"] >= since_ms]
        )
        yield made


def test_a_line_is_read_once_although_looks_overlap(operated: OperatedStack) -> None:
    """Also one that reaches CloudWatch later than a younger one; the order's page and the list share them."""
    operated.place(order_id=ORDER_ID)
    reader, now = Reader(operated.stack, time.time() - 60), time.time()
    for at, count in (now, 1), (now - 5, 2), (now, 2):
        text = json.dumps({"message": STRIPE_REQUEST, "service": "charge_order", "order_id": ORDER_ID, "n": at})
        operated.log.append({"timestamp": at * 1000, "logStreamName": "w", "message": text})
        assert reader.look().total("requests") == count
    assert [each.lane for each in reader.order(ORDER_ID).timeline.moments].count("worker A") == 2


def test_charges_are_stripes_and_unknown_while_it_does_not_answer(operated: OperatedStack) -> None:
    """What failed, or another shop or application charged, is not ours. Without Stripe the rest is shown."""
    operated.place(order_id=ORDER_ID, status="PAID")
    operated.intent(ORDER_ID, confirm="pm_card_visa")
    with pytest.raises(stripe.CardError):
        operated.intent(ORDER_ID, confirm="pm_card_visa_chargeDeclined")
    for metadata in ({"order_id": "1001"}, {"order_id": OTHER_ID, "shop": "another"}, {"order_id": OTHER_ID}):
        operated.intent(OTHER_ID, confirm="pm_card_visa", metadata=metadata)
    reader = Reader(operated.stack, time.time() - 60)
    for charges in (1, None):
        [row] = reader.look().rows
        assert (row.status, row.charges, row.is_lost) == ("PAID", charges, False)
        assert reader.order(ORDER_ID).charges == charges
        operated.standin.add_fault(Fault.UNAVAILABLE_503, times=None, method="GET", path="/v1/*")


# ---------------------------------------------------------------- the pages

HOST, PAGE = "127.0.0.1:8080", f"/orders/{ORDER_ID}"
ORIGIN = {"Origin": f"http://{HOST}"}
MARKUP, SECRET = "<script>alert(1)</script>", "sk_test_51" + "a" * 20
NAIVE, POWERTOOLS = "get, charge, put", "Powertools"


class Console:
    """A browser in front of it. All that is shown holds markup and a secret."""

    def __init__(self, charges: int | None = 1, *, has_buttons: bool = True) -> None:
        lines = lines_of(line(0, f"said {MARKUP} {SECRET}", service="orders_api", sku=MARKUP, key=SECRET))
        item = {"status": MARKUP, "amount_minor": 2500, "currency": "EUR", "placed_at": "2026-11-23"}
        given = [(each.at, each.fields) for each in lines]
        facts = Facts(order_id=ORDER_ID, now=T0, order_error=MARKUP, lines=given)
        shown = timeline(events(facts), T0, pressed=[(T0, MARKUP)])
        counted = None if charges is None else Counter({ORDER_ID: charges})
        self.reader, self.breaks = Mock(), Mock(down_seconds=0)
        self.reader.stack.name = "shop"
        self.reader.look.return_value = tally({ORDER_ID: lines}, {ORDER_ID: item}, counted, T0)
        self.reader.order.return_value = OrderSeen(list(states(facts)), find(facts), shown, charges)
        self.breaks.press.return_value = f"done: {MARKUP}", ORDER_ID
        self.was()
        app = create_app(self.reader, breaks=self.breaks if has_buttons else None)
        self.http = TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)

    def was(self, *buttons: str, usual: tuple[int, int] = (1, 1), queued: str = "") -> None:
        """These buttons were pressed, and the usual workers have charged so often."""
        self.breaks.experiments.return_value = [BREAKS[each].experiment for each in buttons]
        charges = {title: Counter({ORDER_ID: count}) for title, count in zip((NAIVE, POWERTOOLS), usual, strict=True)}
        self.breaks.usual_charges.return_value, self.breaks.still_queued.return_value = charges, {queued} - {""}

    def page(self, path: str = PAGE) -> str:
        return " ".join(self.http.get(path).text.split())

    def press(self, name: str, headers: Mapping[str, str] = ORIGIN, **form: str) -> tuple[int, str]:
        response = self.http.post(f"/breaks/{name}", data=form, headers=headers)
        return response.status_code, response.headers.get("Location", "")


@pytest.fixture
def console() -> Console:
    return Console()


def test_another_host_and_another_origin_are_refused(console: Console) -> None:
    """A name that DNS points at 127.0.0.1 reads nothing; another site in the same browser presses no button."""
    for host in ("evil.example:8080", "127.0.0.1.evil.example", ""):
        for path in ("/", PAGE, "/static/console.js"):
            assert console.http.get(path, headers={"Host": host}).status_code == 400
    for origin in ("null", "http://evil.example", "https://127.0.0.1:8080", "http://127.0.0.1:9", None):
        assert console.press("refund", {"Origin": origin} if origin else {}, order_id=ORDER_ID)[0] == 403
    console.breaks.press.assert_not_called()


def test_a_button_leads_to_a_page_that_says_what_was_done_or_why_not(console: Console) -> None:
    """To the order's, or to the list where that is to be watched; it is said of no other order."""
    for name, given, page in ("place", "", PAGE), ("down", "", "/"), ("dlq", ORDER_ID, PAGE), ("dlq", "//evil", "/"):
        console.breaks.press.side_effect = Problem(f"no: {SECRET}") if name == "dlq" else None
        said = "Not done: no: [redacted]" if name == "dlq" else "done: &lt;script&gt;"
        assert console.press(name, order_id=given) == (303, f"{page}?done={name}")
        assert said in console.page(f"{page}?done={name}")
        assert said not in console.page(f"/orders/{OTHER_ID}?done={name}")
    assert (console.http.get("/breaks/place").status_code, console.press("none")[0]) == (405, 404)


@pytest.mark.parametrize("path", ["/", PAGE, "/none"])
def test_markup_and_secrets_are_text_under_a_strict_policy(console: Console, path: str) -> None:
    """A sku, a decline's message or a log line may hold either. Each control and table has a name."""
    console.was("kill")
    page = console.page(path)
    [content] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    policy = dict(each.split(" ", 1) for each in content.split("; "))
    assert policy["default-src"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert (MARKUP in page, SECRET in page, "&lt;script&gt;" in page) == (False, False, path != "/none")
    assert all(f'id="{each}"' in page for each in re.findall(r'aria-describedby="([^"]+)"', page))
    assert (page.count("<table"), 'name="description"' in page) == (page.count("<caption"), True)


def test_what_is_no_order_id_is_looked_up_nowhere(console: Console) -> None:
    """It would be a part of a request to Stripe, and of a command that the page says to run."""
    for given in ("ord_' OR metadata['order_id']:'x", "$(reboot)", f"{ORDER_ID}x", f"{ORDER_ID}%0A"):
        assert console.http.get(f"/orders/{given}").status_code == 404


def test_what_was_not_read_is_no_number() -> None:
    """Stripe does not answer: in the list and on the order's page, what was charged is unknown, and not 0."""
    console = Console(charges=None)
    assert re.findall(r"<dt>(?:charges|charged twice|lost)</dt><dd>(.)", console.page("/")) == ["?"] * 3
    assert 'onecharge" class="n charges">?</td>' in console.page("/")
    assert "unknown: Stripe does not answer" in console.page()


@pytest.mark.parametrize(
    ("was", "usual", "queued", "said"),
    [
        (["kill", "day"], (2, 2), "", "Experiment 7: Stripe forgets the keys"),
        (["kill"], (1, 1), POWERTOOLS, "charged by Powertools so far (its queue still has a message)"),
        (["kill"], (1, 1), "", ""),
        (["five"], (1, 1), "", "“get, charge, put” has charged once"),
        (["five"], (2, 1), "", ""),
        (["five"], (1, 1), NAIVE, "so far (its queue"),
        (["surprise"], (2, 1), "", "“Powertools” has charged once"),
        (["place"], (1, 0), "", "no page for 3-D Secure"),
        (["place"], (1, 0), POWERTOOLS, "so far (its queue"),
    ],
)
def test_the_page_says_what_it_was_and_why_a_usual_worker_charged_less_often(
    console: Console, was: list[str], usual: tuple[int, int], queued: str, said: str
) -> None:
    """A usual worker's message comes back after 72 seconds, and may charge again: until then no number is final."""
    console.was(*was, usual=usual, queued=queued)
    page = console.page()
    for each in (said, "has charged once", "no page for 3-D Secure", "so far (its queue"):
        assert (each in page) == (each in said)


def test_without_a_stand_in_there_are_no_buttons_and_while_it_is_down_it_is_said(console: Console) -> None:
    """Nothing of Stripe's own test mode can be broken."""
    console.breaks.down_seconds = 45
    without = Console(has_buttons=False)
    for path in ("/", PAGE):
        assert "Stripe is down for 45 s more" in console.page(path)
        assert ("read-only" in without.page(path), "<form" in without.page(path)) == (True, False)
    assert without.press("place")[0] == 404


def test_a_problem_is_one_line_without_a_secret(console: Console) -> None:
    """Stripe's and AWS's messages repeat what was sent; a defect of ours is no such line."""
    unreachable = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    for problem, said in (Problem(f"400: {SECRET}"), "400: [redacted]"), (unreachable, "`make local` starts one"):
        console.reader.look.side_effect = problem
        assert (console.http.get("/").status_code, said in console.page("/")) == (503, True)
    console.reader.look.side_effect = ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        console.http.get("/")


# ---------------------------------------------------------------- the buttons


def test_a_surprise_is_repeated_by_its_seed_and_tells_what_was_not_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day does not pass for an order that still waits: its timeline says so."""
    breaks, pressed = LocalBreaks(Mock(), Mock()), list[Any]()
    monkeypatch.setattr(breaks, "_wait", Mock())
    for _ in range(2):
        press = Mock(side_effect=[("", ORDER_ID), Problem("it waits"), *[("", ORDER_ID)] * 10])
        monkeypatch.setattr(breaks, "press", press)
        breaks._press_at_random(Random(7))
        pressed.append(press.mock_calls)
    [first, told, *_] = [what for _, what in breaks.history(ORDER_ID)]
    assert (pressed[0], first, "since it waits" in told) == (pressed[1], "Surprise me", True)


def test_a_day_passes_once_the_order_is_decided_and_no_message_of_it_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message would still have the younger time. The messages of other orders do not matter."""
    breaks = LocalBreaks(Mock(), Mock())
    monkeypatch.setattr(buttons, "_PATIENCE_SECONDS", 0)
    monkeypatch.setattr(buttons, "payment_of", Mock(side_effect=Problem("nothing has refused it")))
    for status, queued, said in ("PENDING", "", "is PENDING"), ("PAID", OURS, "of this"), ("PAID", NAIVE, "nothing"):
        monkeypatch.setattr(breaks, "_stored", Mock(return_value=Mock(status=status)))
        monkeypatch.setattr(breaks, "still_queued", Mock(return_value={queued}))
        with pytest.raises(Problem, match=said):
            breaks.press("day", order_id=ORDER_ID)


def test_a_release_names_the_orders_that_are_held(operated: OperatedStack) -> None:
    """If this is none of them. One that is held is released."""
    operated.place(order_id=ORDER_ID)
    old = operated.place(order_id=OTHER_ID, at=datetime.fromtimestamp(time.time() - 90_000, UTC))
    operated.claim(OTHER_ID, at=int(datetime.fromisoformat(old.placed_at).timestamp()), **FREE)
    breaks = LocalBreaks(Mock(), operated.stack)
    with pytest.raises(Problem, match=f"is not held; held are: {OTHER_ID}"):
        breaks.press("release", order_id=ORDER_ID)
    breaks.press("release", order_id=OTHER_ID)
    assert operated.payment(OTHER_ID).released_at


@responses.activate
def test_a_refund_is_of_all_that_is_left_and_why_it_is_refused_is_said() -> None:
    """Asked for once more, there is nothing left: no lost answer refunds twice."""
    breaks = LocalBreaks(Mock(api_url="http://api.test"), Mock())
    sent = responses.post(f"http://api.test{PAGE}/refunds", status=202, json={})
    breaks.refund(ORDER_ID)
    breaks.stack.issuer.token.assert_called_once_with("staff", "onecharge/refund")  # type: ignore[attr-defined]
    assert json.loads(sent.calls[0].request.body or "").keys() == {"reason"}
    responses.replace(responses.POST, sent.url, status=409, json={"detail": "Nothing is left."})
    with pytest.raises(Problem, match="Nothing is left"):
        breaks.refund(ORDER_ID)
