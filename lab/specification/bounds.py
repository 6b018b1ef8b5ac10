"""Bounds in which every state is visited, and rules that are left out to see that it is noticed."""

from lab.specification import protocol, refund
from lab.specification.explore import Exploration, explore
from lab.specification.world import Left

Bounds = Left | refund.Left
Job = tuple[str, Bounds]
"""The rule that is left out, if any."""


def described(left: Bounds) -> str:
    """The bounds, without those that are as usual."""
    kind, usual = "refunds" if isinstance(left, refund.Left) else "charges", type(left)()._asdict()
    return ", ".join([kind, *(f"{name}={value}" for name, value in left._asdict().items() if value != usual[name])])


def explored(left: Bounds, rule: str = "", *, states_max: int = 10**7) -> Exploration:
    model = refund if isinstance(left, refund.Left) else protocol
    return explore(model, left, frozenset({rule} if rule else ()), states_max=states_max)


ONE = refund.Left(amounts=(1,), messages=(0, 0))
DISPUTED = refund.Left(disputed=True, person=1)
UNSTORED = DISPUTED._replace(stores_refusals=False)
HIDDEN = ONE._replace(returned=1, error=1, lag=4, ticks=3, messages=(0,))
EXAMPLE = refund.Left(paid=25, amounts=(10, 15), by_hand=7, person=1, messages=(0, 1), is_successor=False)
"""2,500 paid, 1,000 of ours waits, 700 refunded by hand: 800 are left."""

GATE = (
    Left(error=1),
    Left(loss=1),
    Left(restore=1),
    Left(page=True, processing=True),
    Left(person=1, long_memory=True),
    Left((1, 0)),
    Left((1, 2), page=True),
    Left((1, 1), ticks=3),
    ONE._replace(error=1, ticks=3, messages=(0,)),
    ONE._replace(returned=1, messages=(0,), duplicate=1),
    ONE._replace(returned=1, messages=(0,), restore=1),
    ONE._replace(returned=1, messages=(0,), person=1, counts_failed=True),
    HIDDEN,
    HIDDEN._replace(not_now=1, returned=0),
    ONE._replace(disputed=True, person=1, restore=1),
    UNSTORED._replace(error=1),
    DISPUTED._replace(duplicate=1),
    EXAMPLE._replace(amounts=(10,), messages=(0,), error=1),
)
"""Explored by each run of the tests."""

NIGHTLY = (
    Left(error=2),
    Left((1, 1)),
    Left(error=1, loss=1, long_memory=True),
    Left(error=1, restore=1),
    Left(loss=1, restore=1),
    Left(error=1, loss=1, restore=1),
    Left((1, 0), loss=1),
    Left((1, 0), error=1),
    Left((1, 0), person=1, page=True, processing=True),
    Left((1, 2), error=1, page=True),
    Left(loss=1, person=1, page=True),
    refund.Left(error=1, ticks=4),
    refund.Left(returned=1, messages=(0, 1)),
    DISPUTED._replace(ticks=3),
    UNSTORED._replace(error=1, ticks=1),
    UNSTORED._replace(error=1, ticks=4, messages=(0, 1)),
    DISPUTED._replace(restore=1),
    DISPUTED._replace(error=1, duplicate=1),
    ONE._replace(person=1, returned=1),
    HIDDEN._replace(person=1, returned=0),
    HIDDEN._replace(not_now=1),
    ONE._replace(duplicate=1, returned=1),
    ONE._replace(returned=1, restore=1),
    EXAMPLE,
    EXAMPLE._replace(amounts=(10, 8), person=0),
)
"""Explored by `make specification`, too."""

MUTANTS: list[Job] = [
    ("created at any age", Left(loss=1)),
    ("the id is stored without the lease", Left((1, 0), ticks=2, restore=1)),
    ("canceled without Stripe", Left((1, 0))),
    ("a request to cancel is overlooked", Left((1, 0), ticks=2)),
    ("finalized without the lease", Left(restore=1)),
    ("released without a look", Left(loss=1)),
    ("a look that lags", Left(loss=1)),
    ("a cancellation found is passed over", Left(loss=1)),
    ("what is open is passed over", Left(loss=1)),
    ("a restored release counts", Left(loss=1, restore=1)),
    ("a duplicate ends the order", Left(error=1, loss=1, restore=1, ticks=2)),
    ("another's cancellation is taken for its own", Left(error=1, loss=1, restore=1, ticks=2)),
    ("outcomes by arrival", ONE._replace(returned=1, messages=(0,))),
    ("a refusal is not written", DISPUTED._replace(duplicate=1, stores_refusals=False)),
    ("a refused one is sent", DISPUTED._replace(duplicate=1, stores_refusals=False)),
    ("sent without a write", UNSTORED),
    ("written on any revision", UNSTORED),
    ("FAILED is told though a request is open", UNSTORED._replace(error=1)),
    ("an answer is one to every request", UNSTORED._replace(error=1)),
    ("a new key each time", ONE._replace(error=1)),
    ("its own is not looked up", ONE._replace(ticks=3)),
    ("sent while the list may lack it", HIDDEN),
    ("what is pending is left, too", EXAMPLE),
    ("the total of an older revision", ONE._replace(person=1, messages=(0,))),
    ("the total is written later", EXAMPLE._replace(amounts=(10, 16), person=0)),
    ("Stripe's events are ignored", ONE._replace(returned=1, messages=(0,))),
    ("what is PENDING is not republished", DISPUTED._replace(restore=1, amounts=(1,), messages=(0,))),
    ("outcomes are not sent again", ONE._replace(returned=1, restore=1, messages=(0,))),
]
"""Each rule, and the bounds in which leaving it out breaks the promise."""
