"""The ten experiments: what to look for in an order's timeline, and which rule of docs/protocol.md it shows.

Each button of breaks.py but the refund belongs to one of them. The rules are the steps in docs/protocol.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.usual import USUAL_WORKERS


@dataclass(frozen=True)
class Experiment:
    """What one or two buttons show."""

    number: int
    title: str
    buttons: tuple[str, ...]
    """By their names in breaks.py."""
    look_for: str
    rule: str
    usual: str = ""
    """Why the usual workers charge again, where they do."""
    usual_once: Mapping[str, str] = field(default_factory=dict, hash=False)
    """By a worker's title, why it may have charged once where README's table says more."""


_NOTHING_STORED = "They stored nothing, so the next delivery creates and confirms another PaymentIntent."
_ROWS_LOST = "Their rows are lost, too, and they know of the charge by nothing else: they charge again."
_SEED = (
    "what this seed broke was not what it depends on: its row, an answer that it waits for, or the time between two."
)
GET_CHARGE_PUT, POWERTOOLS = (worker.title for worker in USUAL_WORKERS)

EXPERIMENTS = (
    Experiment(
        1,
        "An order",
        ("place",),
        "“create”, then “confirm”. The PaymentIntent's id is stored between them: every worker finds this "
        "PaymentIntent, and no other. Read the timeline from top to bottom: one conditional write stores the order, "
        "the stream publishes it, a worker claims the row, creates, stores, confirms, finalizes.",
        "Store the id: before this nothing can be charged.",
    ),
    Experiment(
        2,
        "Five more deliveries",
        ("five", "again"),
        "five duplicates. Open one: “row” is the row as it was when it refused the claim. A duplicate that comes "
        "during the lease waits for its end; one that comes later is ignored. Neither sends a request to Stripe.",
        "Claim: one conditional write, and a refused condition returns the row.",
        "Get, charge, put reads that the order is unpaid before the other delivery has stored the payment.",
        {
            GET_CHARGE_PUT: "its deliveries came one after the other here, so each later one read that the order was "
            "paid. “Deliver it five more times” makes them overlap: Stripe answers the first one when it has received "
            "the second one."
        },
    ),
    Experiment(
        3,
        "Stripe's answer is lost",
        ("lose",),
        "a confirm with “status none”, and CHARGED: Stripe has charged, and we do not know it. The SDK sends the "
        "confirm once more under the same key (open both), and the response is violet: Stripe replays it.",
        "Confirm: an attempt has one key, and after a replay the PaymentIntent is retrieved.",
    ),
    Experiment(
        4,
        "A 500 after the charge",
        ("500",),
        "the released lease, the wait in the queue, and in the next delivery a retrieve that shows “succeeded”, unless "
        "a webhook came first. From now on Stripe replays the 500, so sending the request again under the same key "
        "never helps; another key would charge twice in a design that creates and confirms in one request.",
        "Decide: by the PaymentIntent's status.",
        _NOTHING_STORED,
    ),
    Experiment(
        5,
        "A worker is killed",
        ("kill",),
        "the blue bar, which is the lease. It goes on after the worker is dead, since the row was not released. Then "
        "the lease expires, and the message is visible again with receive count 2. The next worker retrieves the "
        "PaymentIntent, and finalizes without a confirm. This takes 90 seconds.",
        "Claim: a worker that dies leaves its message in the queue, and its lease ends by itself.",
        _NOTHING_STORED,
    ),
    Experiment(
        6,
        "Stripe is down",
        ("down",),
        "the growing waits: 2 to 4 seconds, 4 to 8, and so on, at most 15 minutes. Place more orders meanwhile: the "
        "list counts them as waiting and none as lost, and each is PAID some seconds after the minute. Even a longer "
        "outage sends nothing to the DLQ; after 22 hours an order is held.",
        "Confirm: after any other response the worker releases its lease and backs off.",
    ),
    Experiment(
        7,
        "Stripe forgets the keys",
        ("day", "release"),
        "“payment held”, in red: neither a row nor a key leads to the charge any more, so nothing is created, and the "
        "message is deleted. Then press “Release it”: the command lists Stripe's PaymentIntents, finds the one that "
        "succeeded, and stores it. If Stripe forgot a key within minutes, and our row were lost as well, the order "
        "would be charged twice: no button does that, since it would break an assumption that the protocol names.",
        "Create: only within 22 hours, while Stripe is bound to remember the order's key.",
        _ROWS_LOST,
    ),
    Experiment(
        8,
        "The payment row is deleted",
        ("row",),
        "for an order that is younger than a day, a second “payment claimed”, then a create that is replayed (violet) "
        "by the order's key, and a retrieve that shows “succeeded”.",
        "Create: every worker begins with the same key.",
        _ROWS_LOST,
    ),
    Experiment(
        9,
        "Webhooks twice and late, and the DLQ",
        ("webhook", "dlq"),
        "webhooks that change nothing: an event is a hint, after which row and PaymentIntent are compared. A message "
        "that is redriven from the DLQ is one more duplicate, and is ignored.",
        "Later changes at Stripe: webhooks and the reconciler write only if the row's revision is unchanged.",
        "Powertools' record expires after an hour by default: a message that is redriven later charges again.",
    ),
    Experiment(
        10,
        "Random faults",
        ("surprise",),
        "the figures at the top of the list: charges equal the orders that are PAID, charged twice stays 0, lost stays "
        "0. `make simulate` tries some ten thousand such sequences in two minutes, with the same code; if you find one "
        "that it does not, open an issue with the seed.",
        "The promise itself.",
        "They charge again after each loss of their rows and each answer that they did not get.",
        dict.fromkeys((GET_CHARGE_PUT, POWERTOOLS), _SEED),
    ),
)
