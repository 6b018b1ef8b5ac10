"""The buttons of the console: each does one thing to the local stack, and says what it does.

A break of Stripe's places an order, and a fault that meets only this order's requests: its id is known before it is
placed. The timeline shows what happened next.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import uuid4

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from lab.console.experiments import EXPERIMENTS, GET_CHARGE_PUT, Experiment
from lab.usual import UsualWorker, is_queued, usual_workers_of
from local.price_list import sold
from local.stack import Stack as LocalStack
from onecharge.orders.ids import order_id_of
from onecharge.orders.schema import StoredOrder
from onecharge.orders.transitions import WAITING
from onecharge.payments.charge_rules import KEY_AGES_SECONDS
from onecharge.payments.payment_intents import confirm_key, create_key
from onecharge.payments.payments_table import payment_of
from onecharge.runtime.dynamodb import to_item
from ops.connection import Stack
from ops.output import Problem
from ops.release import Blocked, Release
from stripe_standin.faults import Fault

OURS = "onecharge"
_PATIENCE_SECONDS = 20
_DOWN_SECONDS = 60
_CUSTOMER = "cus_console"
type _Do = Callable[["LocalBreaks", str], object]


@dataclass(frozen=True)
class Break:
    """A button: its label, what it does in one sentence, and the method that does it."""

    name: str
    label: str
    says: str
    do: _Do
    of_order: bool = False
    """Whether it is done to an order that is there; else it places one."""

    @property
    def experiment(self) -> Experiment | None:
        """None for a refund, which breaks nothing."""
        return next((each for each in EXPERIMENTS if self.name in each.buttons), None)

    @property
    def number(self) -> str:
        """Its experiment's, with a letter if the page has another button of it; "" for a refund."""
        if self.experiment is None:
            return ""
        beside = [name for name in self.experiment.buttons if BREAKS[name].of_order is self.of_order]
        letter = "ab"[beside.index(self.name)] if len(beside) > 1 else ""
        return f"{self.experiment.number}{letter}"


BREAKS: dict[str, Break] = {}
"""By name, in the order of the methods below."""


def _button(name: str, label: str, *, of_order: bool = False) -> Callable[[_Do], _Do]:
    """A button that calls the method; the first line of its docstring says what it does."""

    def add(do: _Do) -> _Do:
        BREAKS[name] = Break(name, label, (do.__doc__ or "").partition("\n")[0], do, of_order)
        return do

    return add


@dataclass
class LocalBreaks:
    """The buttons of a local stack, which are pressed one at a time."""

    stack: LocalStack
    ops: Stack
    usual_workers: Sequence[UsualWorker] = ()
    """Those that get the same messages, each with its own account at Stripe."""
    _history: list[tuple[float, str, str, Break | None]] = field(default_factory=list)
    """When, the order, what the timeline says, and the button that was pressed."""
    _down_until: float = 0.0
    """When Stripe answers again, in epoch seconds; in the past unless it is down."""

    @classmethod
    def of(cls, ops: Stack, stack: LocalStack) -> "LocalBreaks | None":
        """None if its Stripe is no stand-in: nothing of it can be broken."""
        try:
            stack.stripe.faults_met()
        except OSError:
            return None
        return cls(stack, ops, usual_workers_of(stack))

    def press(self, name: str, *, order_id: str | None = None, seed: str | None = None) -> tuple[str, str | None]:
        """Do it; returns its sentence, and the order to look at. Raises KeyError, Problem."""
        if name == "surprise":
            return self._surprise(seed)
        chosen = BREAKS[name]
        if chosen.of_order:
            order_id, at = self._stored(str(order_id)).order_id, time.time()
            chosen.do(self, order_id)
            self._history.append((at, order_id, chosen.label, chosen))
            return chosen.says, order_id
        key = str(uuid4())
        order_id = order_id_of(self.ops.value("ShopId"), _CUSTOMER, key)
        self._history.append((time.time(), order_id, chosen.label, chosen))
        chosen.do(self, order_id)
        sku, currency, _ = sold()
        body = {"currency": currency, "payment_method": "pm_card_visa", "items": [{"sku": sku, "quantity": 2}]}
        self._ask("", body, key, token=self.stack.issuer.token(_CUSTOMER))
        if name == "five":
            self.deliver_five(order_id)
        return chosen.says, order_id

    def history(self, order_id: str) -> Sequence[tuple[float, str]]:
        """When which button was pressed for the order, by its label."""
        return [(at, what) for at, of, what, _ in self._history if of == order_id]

    def experiments(self, order_id: str) -> Sequence[Experiment]:
        """Those that the order was, the first one first; what a surprise has pressed is one."""
        pressed = [each.experiment for _, of, _, each in self._history if each and of == order_id]
        made = list(dict.fromkeys(each for each in pressed if each))
        return [each for each in made if "surprise" in each.buttons] or made

    @property
    def down_seconds(self) -> int:
        """How long Stripe is going to be down."""
        return max(0, round(self._down_until - time.time()))

    def usual_charges(self) -> Mapping[str, Mapping[str, int]]:
        """How often each usual worker has charged each order, by the worker's title and the order's id."""
        ledger = self.stack.stripe.ledger()
        return {worker.title: worker.charges(ledger) for worker in self.usual_workers}

    @cached_property
    def queue_urls(self) -> Mapping[str, str]:
        """The queue of each usual worker, by its title, and ours."""
        usual = {worker.title: worker.queue_url(self.stack.aws) for worker in self.usual_workers}
        return {OURS: self.stack.payments_queue_url, **usual}

    def still_queued(self, order_id: str) -> set[str]:
        """The workers, by title, whose queue has a message of the order: what they have charged is not final."""
        return {title for title, url in self.queue_urls.items() if is_queued(self.stack.aws, url, order_id)}

    def _surprise(self, seed: str | None) -> tuple[str, None]:
        """The pages show meanwhile what happens: a killed worker alone takes more than a minute."""
        seed = seed or str(random.randrange(10_000))
        threading.Thread(target=self._press_at_random, args=[random.Random(seed)], daemon=True).start()
        return f"{BREAKS['surprise'].says[:-1]}, which takes some minutes. Seed {seed} repeats them.", None

    def _press_at_random(self, chance: random.Random) -> None:
        placing = [each for each in BREAKS.values() if not each.of_order and each.name not in ("surprise", "down")]
        of_order = [each for each in BREAKS.values() if each.of_order and each.experiment]
        for _ in range(3):
            order_id, surprise = str(self.press(chance.choice(placing).name)[1]), BREAKS["surprise"]
            self._history.append((time.time(), order_id, surprise.label, surprise))
            self._wait(lambda of=order_id: bool(self.stack.stripe.ledger().charges_of(of)))  # type: ignore[misc]
            for each in chance.choices(of_order, k=3):
                try:
                    self.press(each.name, order_id=order_id)
                except Problem as why:
                    said = f"not possible: {each.label}, since {why}"
                    self._history.append((time.time(), order_id, said, None))

    # ------------------------------------------------------------ the stack's parts

    def _ask(self, path: str, body: Mapping[str, Any], key: str, *, token: str) -> None:
        """Send a request to the API; after a 503 again, under the same key. Raises Problem."""
        http, headers = requests.Session(), {"Authorization": f"Bearer {token}", "Idempotency-Key": key}
        again = Retry(3, backoff_factor=1, status_forcelist=[503], allowed_methods=["POST"])
        http.mount("http://", HTTPAdapter(max_retries=again))
        try:
            response = http.post(f"{self.stack.api_url}/orders{path}", json=body, headers=headers, timeout=60)
            answer = response.json()
        except requests.RequestException as error:
            raise Problem(f"the API does not answer: {error}") from None
        if not response.ok:
            raise Problem(str(answer.get("detail") or answer))

    def _stored(self, order_id: str) -> StoredOrder:
        """Raises Problem."""
        if item := self.ops.item("OrdersTable", order_id=order_id):
            return StoredOrder.from_item(item)
        raise Problem("there is no such order")

    def _fault(self, kind: Fault, order_id: str, *, seconds: float = 60, usual_seconds: float = 60) -> None:
        """When the order is charged: ours is by a confirm, the usual workers' by a create."""
        match, admin = {"metadata[order_id]": order_id}, self.stack.stripe
        admin.add_fault(kind, match, path="/v1/payment_intents/*/confirm", seconds=seconds)
        for worker in self.usual_workers:
            admin.add_fault(kind, match, api_key=worker.api_key, seconds=usual_seconds)

    def _send(self, order_id: str, times: int = 1) -> None:
        """The message that its stream published, to our queue and to the usual workers'."""
        body = self._stored(order_id).placed_event().model_dump_json(exclude_none=True)
        entries = [{"Id": str(number), "MessageBody": body} for number in range(times)]
        for queue in self.queue_urls.values():
            self.stack.aws.client("sqs").send_message_batch(QueueUrl=queue, Entries=entries)

    def _wait(self, until: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (done := until()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return done

    # ------------------------------------------------------------ breaks that place an order, once they have broken it

    @_button("place", "Place an order")
    def place(self, order_id: str) -> None:
        """Places an order of two pieces, and breaks nothing."""

    @_button("five", "Deliver it five more times")
    def place_for_five(self, order_id: str) -> None:
        """Places an order, and sends its message 5 more times at once, while Stripe answers slowly."""
        # Deliveries overlap, as under load, however long a second worker takes to start: Stripe answers the first
        # create of "get, charge, put" when it has received the second one. If none comes, as all deliveries are in one
        # batch, the worker is killed at its timeout. It has not stored the payment either, and the next one charges.
        match = {"metadata[order_id]": order_id}
        for worker in self.usual_workers:
            if worker.title == GET_CHARGE_PUT:
                self.stack.stripe.add_fault(Fault.OVERLAP, match, times=2, api_key=worker.api_key)
        # Ours waits 1.5 s for an answer here, since its function's timeout is shorter than on AWS.
        self._fault(Fault.LATENCY, order_id, seconds=1, usual_seconds=5)

    @_button("lose", "Lose Stripe's answer")
    def lose_answer(self, order_id: str) -> None:
        """Stripe charges, and the connection closes before its answer arrives."""
        self._fault(Fault.DROP_AFTER, order_id)

    @_button("500", "Answer 500 after charging")
    def answer_500(self, order_id: str) -> None:
        """Stripe charges and answers 500, which its key replays: the webhook, or a retrieve, shows the charge."""
        self._fault(Fault.ERROR_500_AFTER, order_id)

    @_button("kill", "Kill the worker")
    def kill_worker(self, order_id: str) -> None:
        """The worker is killed after Stripe has charged, and before it stores the result."""
        # Its answer trickles, so that no read timeout expires: the function is killed at its own timeout.
        self._fault(Fault.HANG_AFTER, order_id)

    @_button("down", "Stripe is down for a minute")
    def stripe_down(self, order_id: str) -> None:
        """Every request to Stripe is answered with 503 for 60 seconds."""
        if self.down_seconds:
            raise Problem("Stripe is down already")
        for method in ("GET", "POST"):
            self.stack.stripe.add_fault(Fault.UNAVAILABLE_503, times=None, method=method, path="/v1/*")
        up_again = threading.Timer(_DOWN_SECONDS, self.stack.stripe.clear_faults, [Fault.UNAVAILABLE_503])
        up_again.daemon = True
        up_again.start()
        self._down_until = time.time() + _DOWN_SECONDS

    @_button("surprise", "Surprise me")
    def place_three(self, order_id: str) -> None:
        """Places three orders with four breaks each, at random."""

    # ------------------------------------------------------------ breaks of an order that is there

    @_button("again", "Deliver it five times at once", of_order=True)
    def deliver_five(self, order_id: str) -> None:
        """Sends the order's message 5 times to the payments queue."""
        # In one batch, so that they meet the lease.
        self._send(order_id, times=5)

    @_button("day", "A day passes", of_order=True)
    def pass_a_day(self, order_id: str) -> None:
        """Stripe forgets the order's keys, its payment row is lost, and its message comes again, a day later.

        The order is a day older by then: Stripe keeps a key for 24 hours, as the protocol assumes, and to forget the
        key of a younger order would break that assumption, not the protocol. No message of it may be under way, which
        would still have the younger time. The order is held then.
        """
        order, row = self._stored(order_id), self.ops.item("PaymentsTable", order_id=order_id)
        if order.status in WAITING:
            raise Problem(f"the order is {order.status}: a day passes once it is decided")
        if row is None:
            raise Problem("the order has no payment row")
        if not self._wait(lambda: OURS not in self.still_queued(order_id)):
            raise Problem("a message of this order is still in the payments queue: try again")
        payment = payment_of(row)
        placed_at = (datetime.fromisoformat(order.placed_at) - timedelta(hours=25)).isoformat()
        self.ops.dynamodb.update_item(
            TableName=self.stack.orders_table,
            Key=to_item({"order_id": order_id}),
            UpdateExpression="SET placed_at = :at",
            ExpressionAttributeValues=to_item({":at": placed_at}),
        )
        keys = [create_key(payment, self.ops.value("ShopId"), number) for number in range(len(KEY_AGES_SECONDS))]
        for key in (*keys, confirm_key(payment, self.ops.value("ShopId"))):
            self.stack.stripe.delete_keys(key)
        self.delete_row(order_id)

    @_button("release", "Release it", of_order=True)
    def release(self, order_id: str) -> None:
        """Does what `python -m ops release ORDER --yes` does for an order that is held: it looks at Stripe first."""
        release = Release.of(self.ops, is_dry_run=False)
        held = [each.request.order_id for each in release.held(release.stripe_now())]
        if order_id not in held:
            raise Problem(f"the order is not held; held are: {', '.join(held) or 'none'}")
        row = release.named(order_id)
        try:
            release.release(row, replace(release, has_looked=True).look([row]))  # This stack has one account.
        except Blocked as blocked:
            raise Problem(str(blocked)) from None

    @_button("row", "Delete the payment row", of_order=True)
    def delete_row(self, order_id: str) -> None:
        """Deletes the order's row in the Payments table, and delivers its message again."""
        key = to_item({"order_id": order_id})
        self.ops.dynamodb.delete_item(TableName=self.stack.charges_table, Key=key)
        for worker in self.usual_workers:
            worker.forget(self.stack.aws, order_id)
        self._send(order_id)

    @_button("webhook", "Deliver webhooks twice, late", of_order=True)
    def late_webhooks(self, order_id: str) -> None:
        """Sends each of Stripe's events of this order twice, the newest first."""
        stripe = self.stack.stripe
        ours = {each["id"] for each in stripe.ledger().payment_intents if each["metadata"].get("order_id") == order_id}
        events = [event["data"]["object"] for event in stripe.events()]
        indexes = [number for number, each in enumerate(events) if ours & {each["id"], each.get("payment_intent")}]
        if not indexes:
            raise Problem("Stripe has no event of this order yet")
        stripe.deliver_webhooks([number for number in reversed(indexes) for _ in range(2)])

    @_button("dlq", "Redrive it from the DLQ", of_order=True)
    def redrive(self, order_id: str) -> None:
        """Puts the order's message into the DLQ, and sends it back to its queue."""
        # Receive, send, delete, as `ops dlq redrive` does: the emulator has no StartMessageMoveTask.
        sqs, dlq = self.stack.aws.client("sqs"), self.stack.payments_dlq_url
        sqs.send_message(QueueUrl=dlq, MessageBody=self._stored(order_id).placed_event().model_dump_json())
        for message in sqs.receive_message(QueueUrl=dlq, MaxNumberOfMessages=10, WaitTimeSeconds=2).get("Messages", []):
            if order_id in message["Body"]:
                self._send(order_id)
                sqs.delete_message(QueueUrl=dlq, ReceiptHandle=message["ReceiptHandle"])

    @_button("refund", "Refund it", of_order=True)
    def refund(self, order_id: str) -> None:
        """Asks the API, as the staff, to refund all that is left of what was paid."""
        token = self.stack.issuer.token("staff", "onecharge/refund")
        self._ask(f"/{order_id}/refunds", {"reason": "a button of the console"}, str(uuid4()), token=token)
