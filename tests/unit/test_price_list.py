"""What is ordered on this machine is on the price list."""

import json
from pathlib import Path

import pytest

from local.price_list import sold
from local.processes import StartupError


@pytest.mark.parametrize(
    "prices", [{}, {"mug": {}}, {"stamp": {"EUR": 49}}, {"house": {"EUR": 999_999_999_999}}], ids=str
)
def test_a_list_that_nothing_can_be_ordered_from_is_named(tmp_path: Path, prices: dict[str, dict[str, int]]) -> None:
    """One piece is below Stripe's minimum, or a hundred are too much: one sentence, and not a traceback."""
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(prices))
    with pytest.raises(StartupError, match=f"{path} has no price"):
        sold(path)
    (tmp_path / "more.json").write_text(json.dumps(prices | {"chair": {"CHF": 8900}}))
    assert sold(tmp_path / "more.json") == ("chair", "CHF", 8900)
