"""The charge protocol, broken in several places at once, so that a running stack charges an order twice."""

BREAKS = (
    (
        "charge_rows.py",
        'f"{_IS_NEW} OR {_SAME_ATTEMPT} OR {_LATER_ATTEMPT}"',
        'f"{_IS_NEW} OR {_SAME_ATTEMPT} OR {_LATER_ATTEMPT} OR attribute_exists(order_id)"',
    ),
    ("charge_rows.py", 'condition = " AND attribute_not_exists(payment_intent_id)"', 'condition = ""'),
    ("charge.py", "    if row.payment_intent_id:\n", "    if False:\n"),
    (
        "rows.py",
        'return f"{shop}:{self.request.order_id}:{self.released_at or 0}:{number}"',
        'return __import__("uuid").uuid4().hex',
    ),
)
"""In a file, what is right and what replaces it. Every delivery claims, creates a PaymentIntent under a random key, and
stores and confirms it."""

PAYMENTS = "onecharge/payments"
"""Below this folder of the layer."""
