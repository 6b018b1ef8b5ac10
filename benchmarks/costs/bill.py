"""The bill for a million paid orders, line by line: onecharge as template.yaml has it, and the naive loop beside it.

Two kinds of shop. Busy: batches are full, ten orders share an invocation, a publish, an SQS request. Low-traffic:
every order is a batch of its own.

Time on Lambda is computed, not measured there: what a function waits for, plus its CPU time on this machine divided by
the share of a vCPU that its memory buys ("At 1,769 MB, a function has the equivalent of one vCPU", AWS Lambda Developer
Guide, "Configure Lambda function memory"). One core here counts as one vCPU there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.costs import prices
from benchmarks.costs.quantities import MEASURED, Measured, PerInvocation
from testing.harness import load_template

VCPU_MB = 1769
DYNAMODB_MS, SNS_MS, SQS_MS = 4, 10, 10
"""How long one request waits, assumed; DynamoDB's as in the other benchmarks."""
BUSY, LOW_TRAFFIC = 10, 1
"""Orders of a batch."""
PLATFORM_BYTES = len(
    '{"time":"2026-11-22T00:00:00.000Z","type":"platform.start","record":{"requestId":"00000000-0000-4000-8000-'
    '000000000000","functionArn":"arn:aws:lambda:us-east-1:123456789012:function:onecharge-ChargeOrderFunction-'
    'AbCdEfGhIjKl","version":"12"}}'
    '{"time":"2026-11-22T00:00:00.000Z","type":"platform.report","record":{"requestId":"00000000-0000-4000-8000-'
    '000000000000","metrics":{"durationMs":642.123,"billedDurationMs":643,"memorySizeMB":512,"maxMemoryUsedMB":101},'
    '"status":"success"}}'
)
"""Lambda's own lines of an invocation at SystemLogLevel INFO. At WARN there is none unless it fails (AWS Lambda
Developer Guide, "Log-level filtering", system log events)."""
ACCESS_LOG_BYTES = 400
"""One line of OrdersApiAccessLog with values as long as API Gateway's."""


@dataclass(frozen=True)
class Line:
    """One line of a bill: so many units for each paid order, at dollars for a million units."""

    service: str
    units_for_each_order: float
    dollars_for_a_million: float
    what: str

    @property
    def dollars(self) -> float:
        """For a million orders."""
        return self.units_for_each_order * self.dollars_for_a_million


@dataclass(frozen=True)
class Design:
    """What decides the bill of onecharge: a lever each, as it is set now."""

    batch: int
    """Orders that share an invocation, a publish and an SQS request."""
    architecture: str
    charge_memory_mb: int
    memory_mb: int
    """Of the other functions."""
    logs_invocations: bool
    """Lambda's lines of each invocation: SystemLogLevel INFO."""
    is_parallel: bool = True
    """The records of a batch are processed on threads, so that Lambda waits for Stripe once a batch."""
    api: str = "HTTP API"
    publishes_batches: bool = True
    dollars_for_a_million_writes: float = prices.DYNAMODB_MILLION_WRITES
    sends_metrics: bool = False
    """Each invocation sends its metrics with PutMetricData, instead of writing them to its log."""
    traced: float = 0
    """The share of orders that are traced."""
    extra_writes: float = 0
    """Write units of an order beside those that were measured."""


def measured() -> Measured:
    """What was measured last."""
    return Measured.of_json(MEASURED.read_text())


def deployed(batch: int) -> Design:
    """As template.yaml is."""
    template = load_template()
    shared = template["Globals"]["Function"]
    charge_order = template["Resources"]["ChargeOrderFunction"]["Properties"]
    parameters = template["Parameters"]
    return Design(
        batch=batch,
        architecture=parameters["Architecture"]["Default"],
        charge_memory_mb=charge_order.get("MemorySize", shared["MemorySize"]),
        memory_mb=shared["MemorySize"],
        logs_invocations=shared["LoggingConfig"]["SystemLogLevel"] != {"If": ["LogsDebug", "INFO", "WARN"]},
    )


def milliseconds(invocation: PerInvocation, *, waits_ms: float, memory_mb: int) -> float:
    """What Lambda bills for one invocation, computed."""
    return waits_ms + invocation.cpu_ms / min(memory_mb / VCPU_MB, 1)


def onecharge(design: Design, of: Measured) -> list[Line]:
    """The bill of onecharge, for a million orders that were each paid at the first attempt."""
    size, batch = str(design.batch), design.batch
    turns = 1 if design.is_parallel else batch
    orders_api = of.functions["orders_api"]["1"]
    publish, charge, update = (of.functions[name][size] for name in ("publish_events", "charge_order", "update_order"))
    waits = {
        "orders_api": (1, orders_api, DYNAMODB_MS, design.memory_mb),
        "publish_events": (2 / batch, publish, SNS_MS, design.memory_mb),
        "charge_order": (
            1 / batch,
            charge,
            turns * (2 * of.stripe_seconds * 1000 + 3 * DYNAMODB_MS),
            design.charge_memory_mb,
        ),
        "update_order": (1 / batch, update, turns * DYNAMODB_MS, design.memory_mb),
    }
    invocations = sum(times for times, *_ in waits.values())
    gb_seconds = sum(
        times * milliseconds(each, waits_ms=waits_ms, memory_mb=memory) / 1000 * memory / 1024
        for times, each, waits_ms, memory in waits.values()
    )
    writes = design.extra_writes + sum(of.writes(batch).values())
    reads = sum(units for name, units in of.units[size].items() if name.startswith("read "))
    log_bytes = sum(times * each.log_bytes for times, each, *_ in waits.values())
    log_bytes += ACCESS_LOG_BYTES + design.logs_invocations * invocations * PLATFORM_BYTES
    publishes = 2 / batch if design.publishes_batches else 2
    lambda_second = prices.LAMBDA_GB_SECOND[design.architecture] * 1e6
    return [
        Line("API Gateway", 1, prices.API_GATEWAY_MILLION_REQUESTS[design.api], f"one request to the {design.api}"),
        Line("Lambda, requests", invocations, prices.LAMBDA_MILLION_REQUESTS, "of four functions, one of them twice"),
        Line("Lambda, GB-seconds", gb_seconds, lambda_second, f"charge_order has {design.charge_memory_mb} MB"),
        Line(
            "DynamoDB, writes", writes, design.dollars_for_a_million_writes, "of two tables, their indexes, and slots"
        ),
        Line("DynamoDB, reads", reads, prices.DYNAMODB_MILLION_READS, "none: each write shows what it met"),
        Line("SNS", publishes, prices.SNS_MILLION_REQUESTS, "the order placed, its outcome; to SQS is free"),
        Line("SQS", 2 * 2 / batch, prices.SQS_MILLION_REQUESTS, "two queues, each receives and deletes"),
        Line("CloudWatch Logs", log_bytes / 1e3, prices.LOGS_GB, f"{log_bytes:,.0f} bytes an order"),
        Line(
            "CloudWatch, sent",
            design.sends_metrics * invocations,
            prices.PUT_METRIC_DATA_MILLION,
            "metrics are in the log",
        ),
        Line("X-Ray", design.traced, prices.XRAY_MILLION_TRACES, "the share that X-Ray samples"),
    ]


@dataclass(frozen=True)
class NaiveDesign:
    """How the naive loop is configured."""

    batch: int
    memory_mb: int = 1024
    """Serverless Framework's default."""
    architecture: str = "x86_64"
    """Lambda's default."""
    api: str = "REST API"
    """What the event `http` of Serverless Framework makes, and the event `Api` of `sam init`."""


def naive_loop(design: NaiveDesign, of: Measured) -> list[Line]:
    """The bill of the naive loop (naive.py): no outbox, no topic, no index, no reconciliation, no alarm."""
    size, batch = str(design.batch), design.batch
    place, charge = of.functions["place_order"]["1"], of.functions["charge_orders"][size]
    waits = {
        "place_order": (1, place, DYNAMODB_MS + SQS_MS),
        "charge_orders": (1 / batch, charge, batch * (of.stripe_seconds * 1000 + 2 * DYNAMODB_MS)),
    }
    invocations = sum(times for times, *_ in waits.values())
    gb_seconds = sum(
        times * milliseconds(each, waits_ms=waits_ms, memory_mb=design.memory_mb) / 1000 * design.memory_mb / 1024
        for times, each, waits_ms in waits.values()
    )
    writes, reads = (of.naive_units[size][f"{kind} NaiveTable"] for kind in ("write", "read"))
    log_bytes = sum(times * each.log_bytes for times, each, _ in waits.values()) + invocations * PLATFORM_BYTES
    lambda_second = prices.LAMBDA_GB_SECOND[design.architecture] * 1e6
    return [
        Line("API Gateway", 1, prices.API_GATEWAY_MILLION_REQUESTS[design.api], f"one request to the {design.api}"),
        Line("Lambda, requests", invocations, prices.LAMBDA_MILLION_REQUESTS, "two functions"),
        Line("Lambda, GB-seconds", gb_seconds, lambda_second, f"{design.memory_mb} MB, {design.architecture}"),
        Line("DynamoDB, writes", writes, prices.DYNAMODB_MILLION_WRITES, "put, put; one table without an index"),
        Line("DynamoDB, reads", reads, prices.DYNAMODB_MILLION_READS, "get, strongly consistent"),
        Line("SQS", 1 + 2 / batch, prices.SQS_MILLION_REQUESTS, "each order is sent alone; receive, delete"),
        Line("CloudWatch Logs", log_bytes / 1e3, prices.LOGS_GB, f"{log_bytes:,.0f} bytes: each prints its event"),
    ]


def total(lines: list[Line]) -> float:
    """Dollars for a million paid orders, without what is paid each month anyway."""
    return sum(line.dollars for line in lines)


def dollars_per_million() -> Mapping[str, float]:
    """Dollars for a million paid orders in a busy shop, of all services, by design; the fixed monthly part is apart."""
    of = measured()
    return {
        "naive": total(naive_loop(NaiveDesign(BUSY), of)),
        "onecharge": total(onecharge(deployed(BUSY), of)),
    }


PROVISIONED_USE = 0.7
"""The share of provisioned capacity that is used: the target that DynamoDB's auto scaling is usually given."""


def provisioned_million_writes() -> float:
    """Dollars for a million write units of provisioned capacity, of which PROVISIONED_USE is used."""
    return prices.DYNAMODB_WRITE_CAPACITY_HOUR / 3600 * 1e6 / PROVISIONED_USE


def write_floor(of: Measured) -> list[tuple[str, float]]:
    """What an order's write units are for, without the slots of Stripe's limit, which a batch shares."""
    units = of.writes(BUSY)
    return [
        ("the payment: claim, PaymentIntent's id, final state", units["PaymentsTable"]),
        ("the order: placed, paid", units["OrdersTable"]),
        ("into the index of unfinished payments, and out", units["PaymentsTable/unfinished"]),
        ("into the index of orders that wait, and out", units["OrdersTable/waiting"]),
        ("into the index of the customer's orders", units["OrdersTable/by_customer"]),
    ]


@dataclass(frozen=True)
class Lever:
    """One decision about cost: the design with and without it, all else as it is deployed."""

    name: str
    with_it: Design
    without_it: Design
    why_not: str = ""
    """Why it is not taken; empty if it is."""

    def gives(self, of: Measured) -> float:
        """Dollars for a million orders that it saves, or would save."""
        return total(onecharge(self.without_it, of)) - total(onecharge(self.with_it, of))


def levers(batch: int) -> list[Lever]:
    """What is taken, then what is not."""
    now = deployed(batch)
    full = [
        Lever("batches of ten, not one order each", now, replace(now, batch=LOW_TRAFFIC)),
        Lever("ten records in parallel: Lambda waits for Stripe once", now, replace(now, is_parallel=False)),
        Lever("PublishBatch", now, replace(now, publishes_batches=False)),
    ]
    return [
        *(full if batch > LOW_TRAFFIC else []),
        Lever("metrics in the log, not PutMetricData", now, replace(now, sends_metrics=True)),
        Lever("no traces by default", now, replace(now, traced=1)),
        Lever("HTTP API, not REST API", now, replace(now, api="REST API")),
        Lever(f"charge_order has {now.charge_memory_mb} MB, not 1,024", now, replace(now, charge_memory_mb=1024)),
        Lever("no log lines of Lambda for what succeeds", now, replace(now, logs_invocations=True)),
        Lever("arm64, not x86_64", now, replace(now, architecture="x86_64")),
        Lever("by_customer has keys only: an order writes to it once", now, replace(now, extra_writes=1)),
        Lever(
            f"provisioned writes, {PROVISIONED_USE:.0%} of them used",
            replace(now, dollars_for_a_million_writes=provisioned_million_writes()),
            now,
            "for steady traffic alone: a peak above them is throttled until they are scaled",
        ),
        Lever(
            "charge_order with 256 MB",
            replace(now, charge_memory_mb=256),
            now,
            "a batch takes 0.3 s longer, a cold start seconds of CPU",
        ),
    ]


METRIC_ALARMS, COMPOSITE_ALARMS = 56, 11
"""Of monitoring.yaml and template.yaml, with all optional parts."""
CUSTOM_METRICS = 40
"""That a low-traffic shop reports: each name with each value of its dimensions, of docs/metrics.md."""

MONTH_SECONDS = 30 * 86_400
FOR_EACH_MONTH = (
    ("Secrets Manager", 3 * prices.SECRET_MONTH, "three secrets"),
    (
        "KMS",
        MONTH_SECONDS / 300 * 2 * 3 * prices.KMS_MILLION_REQUESTS / 1e6,
        "SNS reuses a data key for 5 minutes: 2 requests for each topic and its publishers",
    ),
    ("SQS, idle", 3 * 5 * MONTH_SECONDS / 20 * prices.SQS_MILLION_REQUESTS / 1e6, "5 long polls of 20 s, 3 queues"),
    ("CloudWatch, alarms", METRIC_ALARMS * prices.ALARM_MONTH, f"{METRIC_ALARMS} on metrics"),
    ("CloudWatch, composite", COMPOSITE_ALARMS * prices.COMPOSITE_ALARM_MONTH, f"{COMPOSITE_ALARMS} composite alarms"),
    ("CloudWatch, metrics", CUSTOM_METRICS * prices.METRIC_MONTH, f"about {CUSTOM_METRICS}"),
    ("CloudWatch, dashboard", prices.DASHBOARD_MONTH, "one; free among an account's first three of 50 metrics each"),
)
"""What is paid however many orders there are. Prices: prices.py; how often SNS asks KMS: "Estimating AWS KMS costs" in
the Amazon SNS Developer Guide."""
