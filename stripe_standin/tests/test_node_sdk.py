"""Stripe's own Node SDK works with the stand-in."""

import json
import subprocess
from pathlib import Path

from stripe_standin.tests.standin_account import Account
from stripe_standin.tests.typescript import NODE_MODULES, require_node

PROGRAM = """
const [, , port, modules] = process.argv;
const stripe = new (require(`${modules}/stripe`))("sk_test_x", {host: "127.0.0.1", port, protocol: "http"});
const created = {amount: 1099, currency: "eur", allowed_payment_method_types: ["card"]};
const send = async () => {
  const intent = await stripe.paymentIntents.create(created, {idempotencyKey: "create-1"});
  return stripe.paymentIntents.confirm(intent.id, {payment_method: "pm_card_visa"}, {idempotencyKey: "confirm-1"});
};
const said = ({id, status, lastResponse}) => [id, status, lastResponse.headers["idempotent-replayed"] ?? null];
send().then(async (first) => console.log(JSON.stringify([said(first), said(await send())])));
"""


def test_it_creates_confirms_and_replays(account: Account, tmp_path: Path) -> None:
    """Sent again under the same keys, the same payment is replayed, and the ledger has one charge."""
    require_node()
    (program := tmp_path / "pay.cjs").write_text(PROGRAM)
    command = ["node", str(program), account.base_url.rpartition(":")[2], str(NODE_MODULES)]
    first, second = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert (first, second) == ([first[0], "succeeded", None], [first[0], "succeeded", "true"])
    assert account.charges == 1
