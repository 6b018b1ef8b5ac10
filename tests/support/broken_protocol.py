"""The charge protocol, broken in three places at once, so that a running stack charges an order twice."""

BREAKS = {
    "charge_rows.py": (
        '_CLAIMABLE = f"{ROW_IS_NEW} OR {_SAME_ATTEMPT} OR {_LATER_ATTEMPT}"\n',
        '_CLAIMABLE = f"{ROW_IS_NEW} OR {_SAME_ATTEMPT} OR {_LATER_ATTEMPT} OR attribute_exists(order_id)"\n',
    ),
    "charge.py": (
        "    intent = retrieve(row.payment_intent_id, tools) if row.payment_intent_id else None\n",
        "    intent = None\n",
    ),
    "charge_rules.py": (
        'return f"order:{self.order_id}:{generation}"',
        'return __import__("uuid").uuid4().hex',
    ),
}
"""Without the condition every delivery claims; without the id in the row, and with a random key, every delivery creates
a PaymentIntent and confirms it."""

PAYMENTS = "onecharge/payments"
"""Below this folder of the layer."""
