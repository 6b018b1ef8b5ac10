"""python -m benchmarks.costs: what a million paid orders cost on AWS, from list prices and from how often each is paid.

An upper estimate, for a quiet shop: every order is a batch of its own. In a busy one up to ten orders share an
invocation, a publish and an SQS request. Stripe's own fee is not in it.
"""

import sys
from dataclasses import dataclass

LIST_PRICES = "us-east-1, arm64, November 2026, without free tiers"
"""Source: the pricing pages of AWS Lambda, Amazon API Gateway, DynamoDB, SNS, SQS, CloudWatch, Secrets
Manager and KMS; "Estimating AWS KMS costs" in the Amazon SNS Developer Guide."""


@dataclass(frozen=True)
class Cost:
    """One line of the bill: so many units for each paid order, at dollars for a million units."""

    service: str
    units_for_each_order: float
    dollars_for_a_million: float
    what: str

    @property
    def dollars_for_a_million_orders(self) -> float:
        return self.units_for_each_order * self.dollars_for_a_million


MEMORY_GB = 1.0
"""charge_order's MemorySize in template.yaml."""

FOR_EACH_ORDER = [
    Cost("API Gateway", 1, 1.00, "one request to the HTTP API"),
    Cost("Lambda, requests", 5, 0.20, "orders_api, publish_events twice, charge_order, update_order"),
    Cost("Lambda, time", 1.0 * MEMORY_GB, 13.3334, "one second of charge_order, which mostly waits for Stripe"),
    Cost("DynamoDB, Orders", 7, 0.625, "2 writes; by_customer has 2, by_status 3: a changed key is two writes"),
    Cost("DynamoDB, Payments", 5, 0.625, "claim, PaymentIntent's id, finalize; `unfinished` is entered and left"),
    Cost("SNS", 2, 0.50, "the order placed and its outcome; deliveries to SQS are free"),
    Cost("SQS", 4, 0.40, "two messages, each received and deleted"),
    Cost("CloudWatch Logs", 6, 0.50, "6 KB of log lines, metrics and access log, at $0.50 a GB"),
]

METRIC_ALARMS, COMPOSITE_ALARMS = 60, 11
"""Of monitoring.yaml and template.yaml, with all optional parts."""
CUSTOM_METRICS = 40
"""That a quiet shop reports: each name with each value of its dimensions, of docs/metrics.md."""

FOR_EACH_MONTH = [
    ("Secrets Manager", 3 * 0.40, "three secrets"),
    (
        "KMS",
        30 * 86_400 / 300 * 2 * 3 * 3.00 / 1e6,
        "SNS: 2 requests every 5 minutes for each topic and its publishers",
    ),
    ("SQS, idle", 3 * 5 * 30 * 86_400 / 20 * 0.40 / 1e6, "Lambda's 5 long polls of 20 s on each of 3 queues"),
    ("CloudWatch, alarms", METRIC_ALARMS * 0.10, f"{METRIC_ALARMS} on metrics, at $0.10 each"),
    ("CloudWatch, composite", COMPOSITE_ALARMS * 0.50, f"{COMPOSITE_ALARMS} composite alarms, at $0.50 each"),
    ("CloudWatch, metrics", CUSTOM_METRICS * 0.30, f"about {CUSTOM_METRICS}, at $0.30 each"),
    ("CloudWatch, dashboard", 3.00, "one; the first three of an account are free if they show at most 50 metrics"),
]


def main() -> None:
    """Print the table."""
    lines = [
        f"{each.service:<20}{each.units_for_each_order:>6.1f} at{each.dollars_for_a_million:>9.4f}"
        f"{each.dollars_for_a_million_orders:>9.2f}   {each.what}"
        for each in FOR_EACH_ORDER
    ]
    total = sum(each.dollars_for_a_million_orders for each in FOR_EACH_ORDER)
    monthly = [f"{service:<22}{dollars:>24.2f}   {what}" for service, dollars, what in FOR_EACH_MONTH]
    table = [
        f"Dollars for a million paid orders ({LIST_PRICES})",
        *lines,
        f"{'together':<20}{total:>26.2f}",
        "",
        "Dollars for each month, however many orders there are",
        *monthly,
        "",
        "Not counted: storage, backups, Stripe's fee.",
    ]
    sys.stdout.write("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
