"""The stand-in over HTTP: Stripe's SDKs, faults of a connection, the admin API, webhooks, and the command."""

import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
import stripe as sdk

from stripe_standin import outgoing
from stripe_standin.admin import AdminError, StandInAdmin
from stripe_standin.faults import Fault
from stripe_standin.server import StandIn
from stripe_standin.tests.support import ASKS
from stripe_standin.tests.typescript import NODE_MODULES, require_node

ROOT = Path(__file__).parents[2]
CREATE: Any = {"amount": 1099, "currency": "eur", "allowed_payment_method_types": ["card"]}
PAY: Any = {**CREATE, "payment_method": "pm_card_visa", "confirm": True}


def client_of(standin: StandIn, api_key: str = "sk_test_x", read_seconds: float = 60) -> sdk.StripeClient:
    http = sdk.RequestsClient(timeout=(2, read_seconds))
    base: Any = {"api": standin.base_url}
    return sdk.StripeClient(api_key, base_addresses=base, http_client=http, max_network_retries=0)


@pytest.fixture
def admin(standin: StandIn) -> StandInAdmin:
    return StandInAdmin(standin.base_url)


@pytest.fixture
def client(standin: StandIn) -> sdk.StripeClient:
    return client_of(standin)


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


def test_stripes_node_sdk_pays_once(standin: StandIn, admin: StandInAdmin, tmp_path: Path) -> None:
    """Sent again under the same keys, the same payment is replayed."""
    require_node()
    (program := tmp_path / "pay.cjs").write_text(PROGRAM)
    command = ["node", str(program), str(standin.server_port), str(NODE_MODULES)]
    first, second = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert (first, second) == ([first[0], "succeeded", None], [first[0], "succeeded", "true"])
    assert len(admin.ledger().charges) == 1


# ------------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    ("fault", "charges"),
    [(Fault.DROP_BEFORE, 0), (Fault.DROP_AFTER, 1), (Fault.HANG_AFTER, 1), (Fault.UNAVAILABLE_503, 0)],
)
def test_a_lost_answer_charges_once(standin: StandIn, admin: StandInAdmin, fault: Fault, charges: int) -> None:
    """Whether the request was executed or not: a retry with the same key is answered. A response that trickles outlives
    every read timeout."""
    admin.add_fault(fault, seconds=3)
    client = client_of(standin, read_seconds=2)
    with pytest.raises(sdk.StripeError):
        client.v1.payment_intents.create(PAY, {"idempotency_key": "a"})
    assert len(admin.ledger().charges) == charges
    assert client.v1.payment_intents.create(PAY, {"idempotency_key": "a"}).status == "succeeded"
    assert (len(admin.ledger().charges), admin.ledger().counts["replays"]) == (1, charges)


def test_a_slow_answer_keeps_its_key_in_use(client: sdk.StripeClient, standin: StandIn, admin: StandInAdmin) -> None:
    """As does the latency of every request."""
    admin.add_fault(Fault.LATENCY, seconds=60)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(client.v1.payment_intents.create, PAY, {"idempotency_key": "a"})
        while admin.faults_met() == 0:
            time.sleep(0.02)
        with pytest.raises(sdk.APIError) as conflict:
            client.v1.payment_intents.create(PAY, {"idempotency_key": "a"})
        standin.stopping.set()
        assert (first.result().status, conflict.value.http_status) == ("succeeded", 409)
    standin.stopping.clear()
    admin.settings(latency_seconds=0.2)
    begun_at = time.monotonic()
    client.v1.charges.list()
    assert time.monotonic() - begun_at >= 0.2


def test_overlapping_requests_are_answered_once_all_have_come(client: sdk.StripeClient, admin: StandInAdmin) -> None:
    """The first one waits, however long it takes until the second one comes."""
    admin.add_fault(Fault.OVERLAP, times=2, seconds=600)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(client.v1.payment_intents.create, PAY)
        while admin.faults_met() == 0:
            time.sleep(0.02)
        with pytest.raises(TimeoutError):
            first.result(0.5)
        assert client.v1.payment_intents.create(PAY).status == first.result().status == "succeeded"


# ------------------------------------------------------------------------ the admin API


def test_the_admin_acts_for_customers_banks_and_time(client: sdk.StripeClient, admin: StandInAdmin) -> None:
    """Payments are authenticated or decided, refunds fail, disputes end, keys are deleted. A wrong name is refused."""
    paid = client.v1.payment_intents.create(PAY, {"idempotency_key": "a"})
    refund = client.v1.refunds.create({"payment_intent": paid.id})
    admin.fail_refund(refund.id)
    dispute = admin.open_dispute(paid.id, amount=100)
    admin.close_dispute(dispute, status="won")
    found = client.v1.refunds.retrieve(refund.id).status, client.v1.disputes.retrieve(dispute).status
    assert found == ("failed", "won")
    asks: Any = {**PAY, "payment_method": ASKS}
    admin.authenticate((waiting := client.v1.payment_intents.create(asks)).id)
    admin.add_fault(Fault.STAYS_PROCESSING)
    admin.authenticate((processing := client.v1.payment_intents.create(PAY)).id, succeed=False)
    decided = [client.v1.payment_intents.retrieve(each.id).status for each in (waiting, processing)]
    assert decided == ["succeeded", "requires_payment_method"]
    admin.advance_clock(24 * 3600)
    assert client.v1.payment_intents.create(PAY, {"idempotency_key": "a"}).id != paid.id
    assert admin.delete_keys("a") == 1
    wrong: list[Any] = [lambda: admin.settings(latency=1), lambda: admin.add_fault(Fault.LATENCY, skip=1)]
    wrong += [lambda: admin.close_dispute(dispute), lambda: admin.open_dispute("pi_unknown")]
    for call in wrong:
        with pytest.raises(AdminError):
            call()
    with pytest.raises(sdk.PermissionError):
        client.v1.payment_intents.create(PAY, {"stripe_account": "acct_other"})
    admin.reset()
    assert (admin.events(), admin.ledger().charges) == ([], [])


@pytest.mark.parametrize(
    ("host", "status"), [("localhost:1", 200), ("172.17.0.1:1", 200), ("rebound.example:1", 403), ("", 403)]
)
def test_another_host_is_refused(standin: StandIn, host: str, status: int) -> None:
    """A site whose name resolves to this machine is of the stand-in's own origin then: it reads and sends nothing."""
    headers = {"Authorization": "Bearer sk_test_x", "Host": host}
    for path in ("_standin/ledger", "v1/events", "stripe.js"):
        assert requests.get(f"{standin.base_url}/{path}", headers=headers, timeout=60).status_code == status


@pytest.mark.parametrize(("origin", "status"), [("https://a.example", 403), ("null", 403), ("{own}", 200)])
def test_a_page_of_another_origin_does_not_reach_the_admin_api(standin: StandIn, origin: str, status: int) -> None:
    """A form, or text without CORS, is sent without asking first. The stand-in's own pages have its address. An image
    of any page can send a GET, without an Origin: it only reads."""
    assert requests.get(f"{standin.base_url}/_standin/reset", timeout=60).status_code == 404
    headers = {"Origin": origin.format(own=standin.base_url), "Content-Type": "text/plain"}
    assert requests.post(f"{standin.base_url}/_standin/reset", "{}", headers=headers, timeout=60).status_code == status


# ------------------------------------------------------------------------ webhooks


def test_events_are_delivered_signed(
    client: sdk.StripeClient, admin: StandInAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once and in order as they happen, or by index; an endpoint gets its types while it is enabled."""
    url, received, send = "https://shop.example/stripe/events", list[tuple[str, str]](), outgoing.send

    def sends(method: str, to: str, body: str, headers: Any) -> Any:
        if to != url:
            return send(method, to, body, headers)
        received.append((body, headers["Stripe-Signature"]))
        return 302, "", {}

    monkeypatch.setattr(outgoing, "send", sends)
    admin.settings(webhook_url=url, webhook_secret="whsec_x", webhooks_by_themselves=True)
    client.v1.payment_intents.create(PAY)
    types, deadline = [each["type"] for each in admin.events()], time.monotonic() + 60
    while len(received) < len(types) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [sdk.Webhook.construct_event(*each, "whsec_x").type for each in received] == types
    admin.settings(webhook_url=None, webhooks_by_themselves=False)
    wanted: Any = {"url": url, "enabled_events": ["charge.succeeded"]}
    endpoint = client.v1.webhook_endpoints.create(wanted)
    assert admin.deliver_webhooks([2, 1, 0, 1]) == [302, 302]
    assert sdk.Webhook.construct_event(*received[-1], str(endpoint.secret)).type == "charge.succeeded"
    client.v1.webhook_endpoints.update(endpoint.id, {"disabled": True})
    assert admin.deliver_webhooks() == []


# ------------------------------------------------------------------------ README.md


def test_the_test_of_the_readme_passes(tmp_path: Path) -> None:
    """As a reader copies it; without the idempotency key it fails."""
    found = re.search(r"(?ms)^```python\n(.*?)^```", (ROOT / "stripe_standin/README.md").read_text())
    assert found is not None
    (tmp_path / "test_right.py").write_text(found[1])
    (tmp_path / "test_wrong.py").write_text(found[1].replace('{"idempotency_key": "order-1"}', "{}"))
    program = f"import sys, pytest; sys.path.insert(0, {str(ROOT)!r}); sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert "1 failed, 1 passed" in said, said
    assert "FAILED test_wrong.py" in said
