"""The dollars that a million paid orders cost on AWS, from the units that were counted.

List prices, us-east-1, first tier, without free tiers, as public pages had them in November 2026: check them before you
budget. Storage, backups, data transfer, Stripe's fee and what a stack costs without an order are not counted.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lab.bench.designs import OURS, Invocation
from local.samples import logical_id_of
from tests.support.harness import load_template

PRICES: Mapping[str, float] = {
    "HTTP API": 1.00,  # AWS whitepaper "Best Practices for Designing Amazon API Gateway Private APIs", table 4.
    "REST API": 3.50,
    "invocation": 0.20,  # https://wring.co/blog/aws-lambda-pricing-guide (2026-03-08).
    "GB-second, arm64": 13.3334,
    "GB-second, x86_64": 16.6667,
    "write": 0.625,  # On demand: https://airbyte.com/data-engineering-resources/dynamodb-pricing (2025-07-21).
    "read": 0.125,
    # https://www.factualminds.com/blog/amazon-sns-pricing-publishes-fanout-protocols/ (2026-06-13), and
    # https://cloudburn.io/blog/amazon-sqs-pricing (2026-03-14). A batch is one request; from SNS to SQS is free.
    "sns": 0.50,
    "sqs": 0.40,
    # https://www.factualminds.com/blog/amazon-cloudwatch-pricing-metrics-logs-alarms-dashboards/ (2026-06-13).
    "log KB": 0.50,
}
"""Dollars for a million of each unit."""
VCPU_MB = 1769
"""With this a function has one vCPU (AWS Lambda Developer Guide, "Configure Lambda function memory"): one core here."""


class Settings(NamedTuple):
    """What decides the bill besides the code. The defaults, and 1,024 MB, are those of Serverless Framework."""

    architecture: str = "x86_64"
    memory_mb: Mapping[str, int] | None = None
    order_units: Sequence[tuple[str, float]] = (("REST API", 1),)
    """For each order, besides its invocations."""
    platform_log_kb: float = 0.5
    """What Lambda itself logs of an invocation at SystemLogLevel INFO."""


def settings_of(design: str) -> Settings:
    """What template.yaml says for ours."""
    if design != OURS:
        return Settings()
    template = load_template()
    shared = template["Globals"]["Function"]
    functions = ("orders_api", "publish_events", "charge_order", "update_order")
    own = {name: template["Resources"][logical_id_of(name)]["Properties"] for name in functions}
    memory_mb = {name: each.get("MemorySize", shared["MemorySize"]) for name, each in own.items()}
    order_units = [("HTTP API", 1.0), ("log KB", 0.25)]  # A line of its access log has 240 bytes.
    is_quiet = "WARN" in str(shared["LoggingConfig"].get("SystemLogLevel"))
    return Settings(template["Parameters"]["Architecture"]["Default"], memory_mb, order_units, 0 if is_quiet else 0.5)


def dollars(way: Sequence[Invocation], orders: int, settings: Settings) -> float:
    """For a million orders like these, which took these invocations."""
    units = [(name, orders * number) for name, number in settings.order_units]
    for each in way:
        memory_mb = settings.memory_mb[each.function] if settings.memory_mb else 1024
        # With less than one vCPU the same work takes longer, and waiting does not.
        billed_ms = each.wall_ms + each.cpu_ms * (max(VCPU_MB / memory_mb, 1) - 1)
        gb_seconds = (f"GB-second, {settings.architecture}", billed_ms / 1000 * memory_mb / 1024)
        log = ("log KB", len(each.log) / 1000 + settings.platform_log_kb)
        units += [*each.units, ("invocation", 1), gb_seconds, log]
    return sum(number * PRICES[name] for name, number in units) / orders
