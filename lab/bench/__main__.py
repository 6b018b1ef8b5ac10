"""`make bench [ROUNDS=8]`: what you pay and wait for with onecharge, and with two designs that people copy.

onecharge is what `sam build` has made, the others what `pip install -r layers/requirements/bench.txt` has, compiled.
Ten orders are placed and charged in one batch, then their messages are delivered again. Rounds are interleaved, so a
slow minute is in all designs. The table does not show Lambda itself, TLS, or Stripe's rate limit.
"""

import compileall
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from py_compile import PycInvalidationMode
from statistics import median
from typing import Any

from rich.console import Console

from lab.bench.designs import DESIGNS, NAIVE, OURS, PACKAGES, POWERTOOLS, Design, Onecharge, WorkFailed
from lab.bench.dynamodb_local import dynamodb_client, running_dynamodb_local
from lab.bench.prices import dollars, settings_of
from local.arguments import Arguments, at_least
from local.deployment import Sam
from local.emulator import CREDENTIALS
from local.terminal import run_in_terminal
from stripe_standin.admin import StandInAdmin
from stripe_standin.server import running_standin
from tests.support.harness import PROJECT, create_table, load_template

STRIPE_SECONDS, AWS_SECONDS = 0.3, 0.004
"""How long a request takes, except in a warm-up and a cold start."""
ORDERS, WARM_UP = 10, 20
"""Orders in a batch, and batches before the first that counts."""
FRESH, DUPLICATES, COLD = "billed, 10 fresh orders", "billed, 10 duplicates", "cold start"
MEMORY, MILLION = "peak memory", "a million orders"
Run = Mapping[str, dict[str, list[float]]]  # By design and row: a figure for each round.


def table(run: Run) -> Iterator[str]:
    """Medians of all rounds as ratios: the compared design is 1."""
    yield f"{'':23}{''.join(f'{name:>18}' for name in DESIGNS)}  1.00 is"
    for row in (FRESH, DUPLICATES, COLD, MEMORY, MILLION):
        base = median(run[NAIVE if row == MILLION else POWERTOOLS][row])
        cells = [f"{median(run[each][row]) / base:.2f}" if run[each][row] else "charges again" for each in DESIGNS]
        unit = f"{base:,.0f} {'MB' if row == MEMORY else 'ms'}" if row != MILLION else f"{base:,.2f} dollars"
        yield f"{row:23}{''.join(f'{cell:>18}' for cell in cells)}  {unit}"


def measure(designs: Sequence[Design], stripe: StandInAdmin, rounds: int) -> Run:
    """Measure each design in all rounds. Raises WorkFailed."""
    run: Run = {design.name: defaultdict(list) for design in designs}
    charging_again = [design for design in designs if _warm_up(design, stripe)]
    chance = random.Random(1)
    for design in (each for _ in range(rounds) for each in chance.sample(designs, len(designs))):
        figures = run[design.name]
        stripe.settings(latency_seconds=STRIPE_SECONDS)
        design.aws_seconds = AWS_SECONDS
        batch = design.whole_way(ORDERS)
        figures[MILLION].append(dollars(design.taken, ORDERS, settings_of(design.name)))
        figures[FRESH] += [each.wall_ms for each in design.taken if each.function == design.charging]
        again = design.deliver(design.charging, batch)
        figures[MEMORY].append(again.peak_mb)
        figures[DUPLICATES] += [] if design in charging_again else [again.wall_ms]
        stripe.settings(latency_seconds=0)
        design.aws_seconds = 0
        figures[COLD].append(_cold_start(design))
    return run


def _warm_up(design: Design, stripe: StandInAdmin) -> bool:
    """Charge some batches; returns whether duplicates are charged again. Raises WorkFailed if a fresh order is."""

    def charged() -> list[str | None]:
        return [charge.order_id for charge in stripe.ledger().charges]

    _cold_start(design)  # The first one reads the files from the disk.
    stripe.reset()
    batches = [design.whole_way(ORDERS) for _ in range(WARM_UP)]
    if not len(set(charged())) == len(charged()) == ORDERS * WARM_UP:
        raise WorkFailed(f"{design.name} has made {len(charged())} charges for {ORDERS * WARM_UP} orders")
    for batch in batches:
        design.deliver(design.charging, batch)
    return len(charged()) > ORDERS * WARM_UP


def _cold_start(design: Design) -> float:
    """From the start of the process until it has charged one order."""
    event = {"Records": design.place(1)}
    started = time.monotonic()
    function = design.start(design.charging)
    with function.process:
        function.invoke(event)
        return (time.monotonic() - started) * 1000


def _create_tables(dynamodb: Any) -> None:
    for name, resource in load_template()["Resources"].items():
        if resource["Type"] == "AWS::DynamoDB::Table":
            create_table(dynamodb, name, name)
    # Powertools' own key is `id` ("Idempotency", "Required resources").
    for name, key in (("PeerOrders", "order_id"), ("PeerIdempotency", "id")):
        types, keys = [{"AttributeName": key, "AttributeType": "S"}], [{"AttributeName": key, "KeyType": "HASH"}]
        dynamodb.create_table(TableName=name, AttributeDefinitions=types, KeySchema=keys, BillingMode="PAY_PER_REQUEST")


def bench(rounds: int, console: Console) -> int:
    """Build and measure everything, and print the table. Raises StartupError."""
    if not compileall.compile_dir(PACKAGES, quiet=1, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH):
        raise WorkFailed(f"{PACKAGES} was not compiled, so cold starts would compile")
    with (
        console.status("building with `sam build`, then measuring"),
        tempfile.TemporaryDirectory() as folder,
        running_dynamodb_local(work_dir := Path(folder)) as url,
        running_standin() as standin,
    ):
        tools = PROJECT / ".venv"
        sam = Sam(program=tools / "opt/sam/bin/sam", python=tools / "bin/python", project=PROJECT, work_dir=work_dir)
        _create_tables(dynamodb := dynamodb_client(url))
        environment = {"PATH": os.environ["PATH"], **CREDENTIALS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
        environment |= {"AWS_ENDPOINT_URL_DYNAMODB": url, "STRIPE_API_BASE": standin.base_url}
        peers = [Design(name, environment) for name in DESIGNS if name != OURS]
        designs = [*peers, Onecharge(environment, sam.build().parent, dynamodb)]
        run = measure(designs, StandInAdmin(standin.base_url), rounds)
    print(f"`make bench ROUNDS={rounds}`: medians, where Stripe takes {STRIPE_SECONDS} s and AWS {AWS_SECONDS} s.")
    print("\n".join(table(run)))
    return 0


if __name__ == "__main__":
    parser = Arguments(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=at_least(2, "ROUNDS"), default=8)
    raise SystemExit(run_in_terminal(lambda console: bench(parser.parse_args().rounds, console)))
