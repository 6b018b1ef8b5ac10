"""An open loop: each request is sent when it is due, whether or not earlier ones have been answered.

    due at       0 s      0.5 s     1 s
    sent         │         │         │           a closed loop would wait here ─┐
    answered     └─────────┼─────────┼──────────┘                               ▼
    latency      counted from when it was due, not from when it was sent: a late sender is late for the customer, too

A closed loop sends less while the system is slow, and so leaves out the requests that would have been slowest
(coordinated omission: Gil Tene, "How NOT to Measure Latency").
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

IN_FLIGHT_MAX = 50
"""Requests at once: the emulator starts a process for each. One that is due while so many wait is not sent, and is
counted as an error."""
NOT_SENT = f"not sent: {IN_FLIGHT_MAX} requests wait for their response"


class Clock(Protocol):
    """Seconds since 1970, as the functions' log lines have them."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """This machine's."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass
class Sent:
    """One request, and its result."""

    number: int
    due: float
    answered: float | None = None
    """When its response came, or the error."""
    error: str | None = None
    order_id: str | None = None
    paid: float | None = None


def due_times(rate: int, seconds: int) -> Iterator[float]:
    """When each request is due, in seconds from the start."""
    return (number / rate for number in range(rate * seconds))


@dataclass
class OpenLoop:
    """Sends requests as they are due.

    Args:
        send: sends one request and waits for its response; returns the order's id. What it raises is an error of the
            request, counted by its text.
        start: runs a request beside the loop; a thread for each.
    """

    send: Callable[[int], str]
    clock: Clock = field(default_factory=SystemClock)
    start: Callable[[Callable[[], None]], object] = lambda run: threading.Thread(target=run, daemon=True).start()
    on_sent: Callable[[], None] = lambda: None
    on_answered: Callable[[], None] = lambda: None
    in_flight_max: int = IN_FLIGHT_MAX

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = 0

    def run(self, rate: int, seconds: int) -> list[Sent]:
        """Send them all; returns when the last one is sent. `wait` waits for the responses."""
        began, requests = self.clock.now(), list[Sent]()
        for number, after in enumerate(due_times(rate, seconds)):
            request = Sent(number, began + after)
            requests.append(request)
            if (early := request.due - self.clock.now()) > 0:
                self.clock.sleep(early)
            self._start(request)
        return requests

    def wait(self, timeout_seconds: float) -> None:
        """Until every request is answered, or the time is up."""
        deadline = self.clock.now() + timeout_seconds
        while self._in_flight and self.clock.now() < deadline:
            self.clock.sleep(0.05)

    def _start(self, request: Sent) -> None:
        with self._lock:
            is_admitted = self._in_flight < self.in_flight_max
            self._in_flight += is_admitted
        self.on_sent()
        if is_admitted:
            self.start(lambda: self._send(request))
        else:
            request.error, request.answered = NOT_SENT, self.clock.now()
            self.on_answered()

    def _send(self, request: Sent) -> None:
        try:
            request.order_id = self.send(request.number)
        except Exception as error:  # Whatever it is, the loop goes on, and the report names it.
            request.error = str(error) or type(error).__name__
        request.answered = self.clock.now()
        with self._lock:
            self._in_flight -= 1
        self.on_answered()
