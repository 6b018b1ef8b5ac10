"""The deployed API against its own description: whatever is sent, it answers as described, and never with 5xx."""

import json
import os
import subprocess
from pathlib import Path

from tests.support.deployed_shop import CURRENCY, DECLINED_CARD, SKU, THREE_D_SECURE_CARD, DeployedShop
from tests.support.harness import PROJECT
from tests.support.openapi import DOCUMENT

_EXAMPLES_PER_OPERATION = 40
_CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance"),
    *("response_schema_conformance", "negative_data_rejection", "ignored_auth", "ensure_resource_availability"),
)
"""All that can hold. Left out: a valid body may name what is not for sale; the token is sent with each request; and API
Gateway answers 404 instead of 405."""
_CARDS = {DECLINED_CARD: "PAYMENT_DECLINED", "pm_card_visa": "PAID", THREE_D_SECURE_CARD: "REQUIRES_ACTION"}


def test_every_answer_is_described_and_none_is_5xx(shop: DeployedShop, tmp_path: Path) -> None:
    """Data that the description allows and data that it does not: headers, paths, queries, bodies and methods."""
    canceled, *_ = placed = [shop.placed(card, _CARDS[card]) for card in (DECLINED_CARD, *_CARDS)]
    # However slow the machine is, a further cancellation is answered with 200.
    shop.post(f"{canceled}/cancel")
    assert shop.decided_status(canceled) == "CANCELED"

    token = shop.stack.issuer.token("cus_e2e", "onecharge/refund")
    exchanges = tmp_path / "exchanges.har"
    # The same requests in every run, one after the other: the emulator has a process for each request at once.
    fuzz = subprocess.run(
        [
            PROJECT / ".venv/opt/checks/bin/schemathesis",
            *("run", DOCUMENT, "--url", shop.stack.api_url, "--no-color"),
            *("--phases", "coverage,fuzzing,stateful", "--mode", "all", "--checks", ",".join(_CHECKS)),
            *("--max-examples", str(_EXAMPLES_PER_OPERATION), "--generation-deterministic", "--workers", "1"),
            *("--suppress-health-check", "all", "--no-shrink", "--request-timeout", "90", "--continue-on-failure"),
            *("--header", f"Authorization: Bearer {token}"),
            *("--report", "har", "--report-har-path", exchanges),
        ],
        cwd=tmp_path,
        env=os.environ
        | {"SCHEMATHESIS_HOOKS": "fuzz_hooks", "PYTHONPATH": str(PROJECT / "tests/support")}
        | {"FUZZ_ORDER_IDS": ",".join(placed), "FUZZ_SKU": SKU, "FUZZ_CURRENCY": CURRENCY},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert fuzz.returncode == 0, fuzz.stdout + fuzz.stderr

    entries = json.loads(exchanges.read_text())["log"]["entries"]
    seen = {(each["request"]["method"], each["response"]["status"]) for each in entries}
    assert {("GET", 200), ("POST", 200), ("POST", 202), ("POST", 400), ("POST", 404), ("POST", 409)} <= seen
