"""`make scale`: what limits at 10, 1,000 and 100,000 orders a second; `WRITE=1` writes the tables of docs/scale.md.

Computed from what was measured (`make costs MEASURE=1`), from template.yaml, and from the quotas below: defaults of
us-east-1, looked up on 2026-11-22 in stored copies of the pages that they name (docs.aws.amazon.com, docs.stripe.com).
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.costs.bill import (
    BUSY,
    DYNAMODB_MS,
    FOR_EACH_MONTH,
    MONTH_SECONDS,
    SNS_MS,
    VCPU_MB,
    Design,
    deployed,
    measured,
    milliseconds,
    onecharge,
    total,
)
from benchmarks.costs.quantities import Measured
from onecharge.runtime.shards import SHARDS
from testing.arguments import Arguments
from testing.harness import PROJECT, load_template

RATES = (10, 1_000, 100_000)
"""Orders a second."""
DOCUMENT = PROJECT / "docs" / "scale.md"
MEMORY_MB = (128, 256, 512, 1024, 1769)
STREAM_BATCH = 100
"""BatchSize of the streams' event source mappings."""
PARTITION_UNITS = 1_000
"""Write units a second of one partition (Amazon DynamoDB Developer Guide, "Understanding DynamoDB warm throughput in
different scenarios")."""
TABLE_UNITS = 40_000
"""Write units a second of a table, and of an index (Amazon DynamoDB Developer Guide, "Quotas in Amazon DynamoDB")."""
NEW_TABLE_UNITS = 4_000
"""Of a new on-demand table or index, which then takes twice its former peak ("Pre-warming a table for on-demand
capacity mode", "Understanding DynamoDB warm throughput in different scenarios")."""
API_REQUESTS = 10_000
"""HTTP requests a second of an account ("Amazon API Gateway quotas")."""
LAMBDA_AT_ONCE, LAMBDA_REQUESTS = 1_000, 10_000
"""Invocations of an account at once, and started a second: ten times as many (AWS Lambda Developer Guide, "Lambda
quotas", and "Understanding Lambda function scaling": "a requests per second limit that's equal to 10 times your account
concurrency")."""
QUEUE_AT_ONCE = 1_000
"""MaximumConcurrency of a queue's event source mapping, at the most (AWS CloudFormation Template Reference,
"AWS::Lambda::EventSourceMapping ScalingConfig"). Without it 1,250, and 300 more a minute (AWS Lambda Developer Guide,
"Configuring scaling behavior for SQS event source mappings")."""
SNS_MESSAGES = 30_000
"""Messages a second of an account in us-east-1, whether in batches or alone; 9,000, 1,500 or 300 elsewhere ("Amazon
Simple Notification Service endpoints and quotas")."""
SHARDED = {"PaymentsTable/unfinished": SHARDS, "OrdersTable/waiting": SHARDS}
"""Indexes whose partition keys are few; every other key is an order's or a customer's own."""
STRIPE_ENDPOINT, STRIPE_ACCOUNT = 25, 100
"""Requests a second in live mode, by default (Stripe documentation, "Rate limits"). Each operation is an endpoint."""


@dataclass(frozen=True)
class Part:
    """Something that limits how many orders a second there can be."""

    name: str
    orders_a_second: float
    """As many as it takes, computed from its quota."""
    because: str
    """The quota, and what an order needs of it."""
    raise_it: str
    """Which parameter to turn, or which quota to raise with whom."""


def durations(of: Measured, design: Design) -> dict[str, float]:
    """How many seconds one full batch takes on Lambda, by function; computed."""
    publish = of.functions["publish_events"]["10"]
    return {
        "orders_api": milliseconds(of.functions["orders_api"]["1"], waits_ms=DYNAMODB_MS, memory_mb=design.memory_mb),
        "publish_events": STREAM_BATCH / 10 * milliseconds(publish, waits_ms=SNS_MS, memory_mb=design.memory_mb),
        "charge_order": milliseconds(
            of.functions["charge_order"]["10"],
            waits_ms=2 * of.stripe_seconds * 1000 + 3 * DYNAMODB_MS,
            memory_mb=design.charge_memory_mb,
        ),
        "update_order": milliseconds(
            of.functions["update_order"]["10"], waits_ms=DYNAMODB_MS, memory_mb=design.memory_mb
        ),
    }


def parts(of: Measured, design: Design) -> list[Part]:
    """Each limit, the first to be met first."""
    template = load_template()
    resources, parameters = template["Resources"], template["Parameters"]
    seconds = {name: each / 1000 for name, each in durations(of, design).items()}
    charging = template["Mappings"]["Profile"]["live"]["ChargeConcurrency"]
    updating = resources["UpdateOrderFunction"]["Properties"]["Events"]["PaymentFinalized"]["Properties"]
    updating_at_once = updating["ScalingConfig"]["MaximumConcurrency"]
    admitted = resources["OrdersApi"]["Properties"]["DefaultRouteSettings"]["ThrottlingRateLimit"]
    fuse = parameters["TableUnitsMax"]["Default"]
    stripe = parameters.get("StripeEndpointLimit", {}).get("Default", STRIPE_ENDPOINT)
    units = of.writes(BUSY)
    most_of_a_table = max(each for name, each in units.items() if "/" not in name)
    most = max(units.values())
    invocations = 1 + 2 / STREAM_BATCH + 2 / BUSY
    environments = (
        seconds["orders_api"]
        + 2 * seconds["publish_events"] / STREAM_BATCH
        + seconds["charge_order"] / BUSY
        + seconds["update_order"] / BUSY
    )
    found = [
        Part(
            "Stripe, an endpoint",
            stripe,
            f"{stripe} requests/s; an order creates once and confirms once",
            "Stripe's support, with your peak; then StripeEndpointLimit",
        ),
        Part(
            "Stripe, the account",
            STRIPE_ACCOUNT / 2,
            f"{STRIPE_ACCOUNT} requests/s; an order makes 2",
            "Stripe's support, then StripeAccountLimit; more than one account, each with a stack of its own",
        ),
        Part(
            "charge_order at once",
            charging * BUSY / seconds["charge_order"],
            f"ChargeConcurrency {charging}; a batch of {BUSY} takes {seconds['charge_order']:.2f} s",
            "ChargeConcurrency, after Stripe's limit",
        ),
        Part("HTTP API, its throttle", admitted, f"{admitted} requests/s", "ThrottlingRateLimit in template.yaml"),
        Part(
            "update_order at once",
            updating_at_once * BUSY / seconds["update_order"],
            f"MaximumConcurrency {updating_at_once}; a batch of {BUSY} takes {seconds['update_order']:.2f} s",
            "MaximumConcurrency of its queue, up to 1,000",
        ),
        Part(
            "the tables' fuse",
            fuse / most_of_a_table,
            f"{fuse:,} write units/s a table; an order writes {most_of_a_table:g}",
            f"TableUnitsMax, up to DynamoDB's {TABLE_UNITS:,}",
        ),
        Part(
            "publish_events, a shard",
            STREAM_BATCH / seconds["publish_events"],
            f"one batch of {STREAM_BATCH} at once for each shard takes {seconds['publish_events']:.2f} s; "
            "a new table has 4 shards, a busy one more",
            "ParallelizationFactor of the streams, up to 10",
        ),
        Part(
            "a new on-demand table",
            NEW_TABLE_UNITS / most,
            f"{NEW_TABLE_UNITS:,} write units/s at first, then twice the former peak within 30 minutes; "
            f"an order writes {most:g}",
            "warm throughput of the table or index, before the peak",
        ),
        Part(
            "Lambda, the account",
            LAMBDA_AT_ONCE / environments,
            f"{LAMBDA_AT_ONCE:,} invocations at once; an order needs {environments * 1000:.0f} ms of one",
            "Service Quotas: concurrent executions",
        ),
        Part(
            "Lambda, requests",
            LAMBDA_REQUESTS / invocations,
            f"{LAMBDA_REQUESTS:,} invocations/s, ten for each that may run at once; an order needs {invocations:.2f}",
            "Service Quotas: concurrent executions",
        ),
        Part("API Gateway, the account", API_REQUESTS, f"{API_REQUESTS:,} requests/s", "Service Quotas: throttle rate"),
        Part(
            "SQS mapping of charge_order",
            QUEUE_AT_ONCE * BUSY / seconds["charge_order"],
            f"{QUEUE_AT_ONCE:,} batches at once by MaximumConcurrency, 300 more a minute",
            "provisioned mode of the event source mapping, instead of MaximumConcurrency",
        ),
        Part(
            "DynamoDB, a table or index",
            TABLE_UNITS / most,
            f"{TABLE_UNITS:,} write units/s; an order writes {most:g}",
            "Service Quotas: write units of a table",
        ),
        Part(
            "SNS, the account",
            SNS_MESSAGES / 2,
            f"{SNS_MESSAGES:,} messages/s in us-east-1, 300 to 9,000 elsewhere; an order is two",
            "Service Quotas: messages published a second",
        ),
    ]
    found += [
        Part(
            f"index {name.partition('/')[2]}",
            SHARDED[name] * PARTITION_UNITS / each,
            f"{PARTITION_UNITS:,} write units/s a partition, {SHARDED[name]} shards; an order writes {each:g}",
            "more shards, in two deployments (docs/guides/changes.md)",
        )
        for name, each in units.items()
        if name in SHARDED
    ]
    return sorted(found, key=lambda part: part.orders_a_second)


def limits_table(of: Measured) -> Iterator[str]:
    """In Markdown: each part, and whether it holds at each rate."""
    yield "| part | orders/s | 10 | 1,000 | 100,000 | because | to raise it |"
    yield "|---|---:|:-:|:-:|:-:|---|---|"
    for part in parts(of, deployed(BUSY)):
        holds = " | ".join(_factor(rate, part.orders_a_second) for rate in RATES)
        yield f"| {part.name} | {_rounded(part.orders_a_second):,} | {holds} | {part.because} | {part.raise_it} |"


def _factor(rate: int, limit: float) -> str:
    """✓, or by which factor the limit is to be raised."""
    factor = rate / limit
    return "✓" if factor <= 1 else f"x {factor:.1f}" if factor < 10 else f"x {_rounded(factor):,}"


def _rounded(number: float) -> int:
    """Two figures: no more is known."""
    digits = max(0, math.floor(math.log10(number)) - 1)
    return int(round(number, -digits)) if number >= 1 else 1


def needs_table(of: Measured) -> Iterator[str]:
    """In Markdown: what each rate needs, and costs."""
    design = deployed(BUSY)
    seconds = {name: each / 1000 for name, each in durations(of, design).items()}
    sizes = {"orders_api": 1, "publish_events": STREAM_BATCH / 2, "charge_order": BUSY, "update_order": BUSY}
    units = sum(of.writes(BUSY).values())
    per_million = total(onecharge(design, of))
    fixed = sum(dollars for _, dollars, _ in FOR_EACH_MONTH)
    yield f"| at | {' | '.join(f'{rate:,} orders/s' for rate in RATES)} |"
    yield "|---|" + "---:|" * len(RATES)
    for name, size in sizes.items():
        at_once = (f"{max(1, math.ceil(rate / size * seconds[name])):,}" for rate in RATES)
        yield f"| {name}, invocations at once | {' | '.join(at_once)} |"
    yield f"| write units/s of all tables and indexes | {' | '.join(f'{rate * units:,.0f}' for rate in RATES)} |"
    yield f"| requests/s to Stripe | {' | '.join(f'{rate * 2:,}' for rate in RATES)} |"
    dollars = (rate * MONTH_SECONDS / 1e6 * per_million + fixed for rate in RATES)
    yield f"| dollars a month, if it lasted all month | {' | '.join(f'{each:,.0f}' for each in dollars)} |"


def memory_table(of: Measured) -> Iterator[str]:
    """In Markdown: charge_order's time and price by its memory, computed."""
    concurrency = load_template()["Mappings"]["Profile"]["live"]["ChargeConcurrency"]
    charge = of.functions["charge_order"]["10"]
    waits_ms = 2 * of.stripe_seconds * 1000 + 3 * DYNAMODB_MS
    yield "| charge_order with | of a vCPU | ten orders take | GB-seconds of an order | orders/s at once |"
    yield "|---:|---:|---:|---:|---:|"
    for memory in MEMORY_MB:
        took = milliseconds(charge, waits_ms=waits_ms, memory_mb=memory) / 1000
        yield (
            f"| {memory:,} MB | {min(memory / VCPU_MB, 1):.2f} | {took:.2f} s | {took * memory / 1024 / BUSY:.4f} "
            f"| {concurrency * BUSY / took:.0f} |"
        )


TABLES = {"limits": limits_table, "needs": needs_table, "memory": memory_table}


def with_tables(text: str, of: Measured) -> str:
    """The document with the tables between their markers as they are now."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: written by make scale WRITE=1 -->", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n\n" + "\n".join(table(of)) + f"\n\n{end}{rest.split(end)[1]}"
    return text


def main() -> int:
    parser = Arguments(prog="make scale", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the tables of docs/scale.md")
    options = parser.parse_args()
    of = measured()
    for table in TABLES.values():
        sys.stdout.write("\n".join(table(of)) + "\n\n")
    if options.write:
        DOCUMENT.write_text(with_tables(DOCUMENT.read_text(), of))
    return 0


if __name__ == "__main__":
    sys.exit(main())
