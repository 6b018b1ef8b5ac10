"""The prices: a request says what is bought and how many of it, never at which price.

`price_of` is the one function to replace by your catalog; prices.json is the list that it reads here.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

type Prices = Mapping[str, Mapping[str, int]]
"""The price of one piece: by sku, then by currency, in minor units."""

PRICES: Prices = json.loads(Path(__file__).with_name("prices.json").read_text())


class OrderLine(BaseModel):
    """One line of an order: what is bought, and how many of it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    sku: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,64}$", description="One of those that GET /prices lists.")]
    quantity: Annotated[int, Field(ge=1, le=10_000)]


type PriceOf = Callable[[Sequence[OrderLine], str], Sequence[int]]


class NotForSale(Exception):
    """Some items have no price; `reasons` says why, by the index of the item."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons


def price_of(items: Sequence[OrderLine], currency: str, prices: Prices = PRICES) -> list[int]:
    """Returns what one piece of each item costs, in the minor unit of the currency.

    An order is priced once. The amounts are stored with it, so a retry keeps them, and so does a later attempt.
    Raises NotForSale.
    """
    reasons = {
        index: f"This has no price in {currency}" if item.sku in prices else "There is nothing with this sku"
        for index, item in enumerate(items)
        if currency not in prices.get(item.sku, {})
    }
    if reasons:
        raise NotForSale(reasons)
    return [prices[item.sku][currency] for item in items]
