"""The optional parts of the project, and the files that each of them owns; all else that it adds is marked.

A condition says when a file or a marked block is kept:

    refunds                    the part is chosen
    refunds, cancel            all of these parts are chosen
    cancel | authentication    at least one of these parts is chosen
"""

import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

ORIGINAL = "original"
"""No part that can be chosen: the condition of what only this project has, as its benchmarks and this tool."""

PARTS = {
    "refunds": "POST /orders/{order_id}/refunds: refunds a paid order in part or whole, each request once",
    "cancel": "POST /orders/{order_id}/cancel: cancels an order that is not paid",
    "authentication": "GET /orders/{order_id} shows the client secret with which a customer authenticates (3-D Secure)",
    "webhook": "POST /stripe/events: learns at once what the reconciler learns within minutes",
    "due": "makes orders of invoices or subscription periods on the day that they are due",
    "fifo": "FIFO topics and queues, by one parameter of the template",
}
"""What each part is for."""

FILES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "refunds",
        (
            "functions/refund_charge/*",
            "functions/*/refund*.py",
            "functions/republish/waiting_refunds.py",
            "ops/refund*.py",
            "ops/review_refund.py",
            "ops/*/refund*.py",
            "shared/onecharge/*/refunds*",
            "testing/simulation/refunds.py",
            "events/refund_charge/*",
            "events/*/refund_*.json",
            "events/stripe_webhook/charge_refunded.json",
            "tests/*/test_refund*.py",
            "tests/contract/test_*_refunds.py",
        ),
    ),
    (
        "cancel",
        (
            "functions/orders_api/cancel_order.py",
            "functions/payment_questions/cancel.py",
            "shared/onecharge/orders/cancellations.py",
            "events/*/cancel*.json",
            "tests/unit/orders_api/test_cancel_order.py",
            "tests/contract/test_order_cancellations.py",
        ),
    ),
    (
        "authentication",
        (
            "functions/*/client_secret.py",
            "events/payment_questions/client_secret.json",
            "tests/unit/orders_api/test_client_secret.py",
        ),
    ),
    (
        "cancel | authentication",
        (
            "functions/payment_questions/*",
            "functions/orders_api/payments.py",
            "events/payment_questions/*",
            "tests/unit/test_payment_questions.py",
            "tests/unit/orders_api/test_payments.py",
        ),
    ),
    (
        "webhook",
        (
            "functions/stripe_webhook/*",
            "functions/stripe_eventbridge/*",
            "local/partner_events.py",
            "shared/onecharge/payments/processed_events.py",
            "shared/onecharge/payments/receive_event.py",
            "events/stripe_webhook/*",
            "events/stripe_eventbridge/*",
            "testing/webhook_harness.py",
            "tests/unit/test_stripe_webhook.py",
            "tests/unit/test_stripe_eventbridge.py",
            "ops/webhook*.py",
            "ops/rotate_webhook.py",
            "tests/unit/ops/test_webhook.py",
            "docs/guides/stripe-eventbridge.md",
            "tests/e2e/test_webhooks.py",
        ),
    ),
    (
        "due",
        (
            "functions/place_due_orders/*",
            "events/place_due_orders/*",
            "testing/due_orders.py",
            "tests/unit/test_place_due_orders.py",
            "tests/contract/test_due_documents.py",
            "tests/e2e/test_due_payments.py",
            "docs/guides/due-payments.md",
        ),
    ),
    ("fifo", ("tests/e2e/test_fifo.py", "tests/unit/test_messaging.py")),
    (
        ORIGINAL,
        (
            "README.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            ".github/ISSUE_TEMPLATE/*",
            ".github/pull_request_template.md",
            ".ci/new",
            "new_project/*",
            "benchmarks/*",
            "docs/decisions*",
            "docs/speed.svg",
            "docs/survival.svg",
            "docs/scale.md",
            "docs/load.svg",
            "requirements/bench.*",
            "testing/anyones_machine*",
            "tests/new_project/*",
            "tests/unit/test_readme.py",
            "tests/unit/test_shape.py",
            "tests/unit/test_speed.py",
            "tests/unit/test_costs.py",
            "tests/unit/test_load.py",
            "tests/unit/test_scale.py",
            "tests/simulation/test_survival.py",
        ),
    ),
)
"""Conditions and the files they hold for; a `*` stands for any characters, `/` too. A file of none of them is core."""

SKELETON = "new_project/skeleton/"
"""Files that a new project gets instead of this project's own of the same path."""


class BadCondition(ValueError):
    """A condition that no part fulfills as it is written."""


def is_kept(condition: str, chosen: Collection[str]) -> bool:
    """Whether the condition holds for the chosen parts. Raises BadCondition."""
    separators = set(re.findall(r"[|,]", condition))
    names = [name.strip() for name in re.split(r"[|,]", condition)]
    unknown = [name for name in names if name not in {*PARTS, ORIGINAL}]
    if unknown or len(separators) > 1:
        raise BadCondition(f"{condition!r}: names of parts with commas (all) or bars (any) between them")
    return any(name in chosen for name in names) if "|" in separators else all(name in chosen for name in names)


def conditions_of(path: str) -> Iterator[str]:
    """The conditions that the file is kept under; none for a file of the core."""
    return (condition for condition, globs in FILES if any(fnmatchcase(path, glob) for glob in globs))
