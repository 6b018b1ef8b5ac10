"""The first item of the price list of which Stripe can charge one piece: tests and demo order it."""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from local.processes import StartupError
from local.project_files import PROJECT
from stripe_standin.amounts import AMOUNT_MAX, MINIMUM_AMOUNTS

_PRICES = PROJECT / "functions/orders_api/prices.json"
_PIECES_MAX = 100


class Sold(NamedTuple):
    """A thing on the list, and what one piece costs."""

    sku: str
    currency: str
    unit_amount: int


@cache
def sold(path: Path = _PRICES) -> Sold:
    """Raises StartupError if there is no such price."""
    prices: dict[str, dict[str, int]] = json.loads(path.read_text())
    for sku, amounts in prices.items():
        for currency, unit_amount in amounts.items():
            if MINIMUM_AMOUNTS.get(currency.lower(), 1) <= unit_amount <= AMOUNT_MAX // _PIECES_MAX:
                return Sold(sku, currency, unit_amount)
    raise StartupError(f"{path} has no price at which Stripe charges 1 piece, and {_PIECES_MAX}: add one")
