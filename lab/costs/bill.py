"""The bill for a million paid orders, line by line: of onecharge as template.yaml has it, and of other designs.

What an order needs was measured by `make bench` (lab/speed/results.json): requests, DynamoDB's capacity units,
CPU, log bytes. Time on Lambda follows from it: what an invocation took here, plus what its CPU takes longer with less
than one vCPU ("At 1,769 MB, a function has the equivalent of one vCPU", AWS Lambda Developer Guide, "Configure Lambda
function memory"). One core here counts as one vCPU there.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.costs import aws_prices
from lab.speed.results import Invocation
from local.samples import logical_id_of
from tests.support.harness import load_template

VCPU_MB = 1769
BUSY, LOW_TRAFFIC = 10, 1
"""Orders of a batch: in a busy shop batches are full, in a low-traffic one each order is a batch."""
_PLACES = ("orders_api", "place_order")
_READS_A_STREAM = ("publish_events",)
"""Lambda polls a stream of DynamoDB's at no charge."""
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
SAMPLED = 0.05
"""The share of requests that X-Ray samples beside the first in each second, unless it is told otherwise (AWS X-Ray
Developer Guide, "Configuring sampling rules")."""


@dataclass(frozen=True)
class Settings:
    """What decides the bill besides the code."""

    api: str
    architecture: str
    memory_mb: Mapping[str, int]
    """By function; any other function has that of `""`."""
    logs_invocations: bool
    logs_access: bool
    is_traced: bool


AS_FRAMEWORKS_HAVE_IT = Settings("REST API", "x86_64", {"": 1024}, True, False, False)
"""The event `http` of Serverless Framework, and the event `Api` of `sam init`, make a REST API; 1,024 MB are Serverless
Framework's default, x86_64 is Lambda's."""
AT_ITS_CHEAPEST = Settings("HTTP API", "arm64", {"": 128}, True, False, False)
"""By somebody who knows the prices. 128 MB is the least that Lambda has."""


@dataclass(frozen=True)
class Line:
    """One line of a bill."""

    service: str
    units: float
    """For one paid order."""
    price: float
    """Dollars for a million units."""
    what: str

    @property
    def dollars(self) -> float:
        """For a million paid orders."""
        return self.units * self.price


def deployed() -> Settings:
    """What template.yaml says."""
    template = load_template()
    shared = template["Globals"]["Function"]
    functions = ("orders_api", "publish_events", "charge_order", "update_order")
    properties = {name: template["Resources"][logical_id_of(name)]["Properties"] for name in functions}
    return Settings(
        api="HTTP API",
        architecture=template["Parameters"]["Architecture"]["Default"],
        memory_mb={name: each.get("MemorySize", shared["MemorySize"]) for name, each in properties.items()},
        logs_invocations="WARN" not in str(shared["LoggingConfig"].get("SystemLogLevel")),
        logs_access=True,
        is_traced=shared.get("Tracing") == "Active",
    )


def billed_ms(step: Invocation, memory_mb: int) -> float:
    """What Lambda bills for one invocation with this memory."""
    return step.wall_ms + step.cpu_ms * (max(VCPU_MB / memory_mb, 1) - 1)


def bill(way: Sequence[Invocation], batch: int, settings: Settings) -> list[Line]:
    """The bill for orders that are each paid at the first attempt, so many in a batch."""
    shares = [(step, step.times / batch) for step in way]

    def used(kind: str) -> float:
        return sum(
            share * number
            for step, share in shares
            for name, number in {**step.calls, **step.units}.items()
            if name.startswith(kind)
        )

    def memory(step: Invocation) -> int:
        return settings.memory_mb.get(step.function) or settings.memory_mb[""]

    invocations = sum(share for _, share in shares)
    gb_ms = sum(share * billed_ms(step, memory(step)) * memory(step) / 1024 for step, share in shares)
    queues = sum(step.function not in (*_PLACES, *_READS_A_STREAM) for step in way)
    log_bytes = sum(share * step.log_bytes for step, share in shares)
    log_bytes += settings.logs_access * ACCESS_LOG_BYTES + settings.logs_invocations * invocations * PLATFORM_BYTES
    gb_second = aws_prices.LAMBDA_GB_SECOND[settings.architecture]
    lines = [
        Line("API Gateway", 1, aws_prices.API_GATEWAY_MILLION_REQUESTS[settings.api], settings.api),
        Line(
            "Lambda, requests",
            invocations,
            aws_prices.LAMBDA_MILLION_REQUESTS,
            f"{len(way)} functions on the way of an order",
        ),
        Line("Lambda, GB-seconds", gb_ms / 1000, gb_second * 1e6, f"{settings.architecture}"),
        Line(
            "Lambda, durable", used("durable"), aws_prices.LAMBDA_MILLION_DURABLE_OPERATIONS, "steps, and nothing else"
        ),
        Line("DynamoDB, writes", used("write "), aws_prices.DYNAMODB_MILLION_WRITES, "units of tables and of indexes"),
        Line("DynamoDB, reads", used("read "), aws_prices.DYNAMODB_MILLION_READS, "units"),
        Line("SNS", used("sns."), aws_prices.SNS_MILLION_REQUESTS, "a batch is one request; to SQS is free"),
        Line("SQS", used("sqs.") + 2 * queues / batch, aws_prices.SQS_MILLION_REQUESTS, "send, receive, delete"),
        Line("CloudWatch Logs", log_bytes / 1e3, aws_prices.LOGS_GB, f"{log_bytes:,.0f} bytes"),
        Line("X-Ray", settings.is_traced * SAMPLED, aws_prices.XRAY_MILLION_TRACES, f"{SAMPLED:.0%} of the orders"),
    ]
    return [line for line in lines if line.units]


def total(lines: Sequence[Line]) -> float:
    """Dollars for a million paid orders, without what is paid each month anyway."""
    return sum(line.dollars for line in lines)


CUSTOM_METRICS = 40
"""What a low-traffic shop reports: each metric with each value of its dimensions."""
_MONTH_SECONDS = 30 * 86_400


def each_month() -> list[tuple[str, float, str]]:
    """What is paid however many orders there are: service, dollars, reason."""
    templates = [load_template(name) for name in ("template.yaml", "monitoring.yaml")]
    resources = [each for template in templates for each in template["Resources"].values()]
    kinds = Counter(each["Type"].removeprefix("AWS::") for each in resources)
    alarms, composites, queues = (
        kinds[name] for name in ("CloudWatch::Alarm", "CloudWatch::CompositeAlarm", "SQS::Queue")
    )
    topics = sum(
        "KmsMasterKeyId" in each.get("Properties", {}) for each in resources if each["Type"] == "AWS::SNS::Topic"
    )
    # SNS reuses a data key for 5 minutes (Amazon SNS Developer Guide, "Estimating AWS KMS costs").
    kms = _MONTH_SECONDS / 300 * 2 * topics * aws_prices.KMS_MILLION_REQUESTS / 1e6
    polls = 5 * _MONTH_SECONDS / 20 * queues / 2 * aws_prices.SQS_MILLION_REQUESTS / 1e6  # Nobody polls a DLQ.
    return [
        ("Secrets Manager", 2 * aws_prices.SECRET_MONTH, "the Stripe key, the webhook's secret"),
        ("Cognito", aws_prices.MACHINES_CLIENT_MONTH, "the client for machines; none with an issuer of your own"),
        ("KMS", kms, f"2 requests in 5 minutes for each of {topics} topics"),
        ("SQS, idle", polls, f"5 long polls of 20 s for each of {queues // 2} queues"),
        ("CloudWatch, alarms", alarms * aws_prices.ALARM_MONTH, f"{alarms} on metrics"),
        ("CloudWatch, composite", composites * aws_prices.COMPOSITE_ALARM_MONTH, f"{composites} composite alarms"),
        ("CloudWatch, metrics", CUSTOM_METRICS * aws_prices.METRIC_MONTH, f"about {CUSTOM_METRICS}"),
        ("CloudWatch, dashboard", aws_prices.DASHBOARD_MONTH, "free among the first three of an account"),
    ]
