"""The whole system on one machine: the real template on an AWS emulator, and a Stripe that is a stand-in."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from local.aws_account import forget_aws_account
from local.deployment import STACK_NAME, Sam
from local.emulator import Emulator, running_emulator
from local.given_stripe import STRIPE_API_KEY, STRIPE_WEBHOOK_SECRET, GivenStripe
from local.http_api_routes import create_routes
from local.issuer import CLIENT_ID, Issuer, running_issuer
from local.page import running_page
from local.processes import StartupError, running
from local.project_files import PROJECT
from stripe_standin.admin import StandInAdmin


@dataclass(frozen=True)
class Stack:
    """Where everything is; `.local/stack.json` holds the same."""

    stack_name: str
    aws_endpoint_url: str
    api_url: str
    jwt_issuer: str
    jwt_audience: str
    jwt_key_file: str
    payments_queue_url: str
    payments_dlq_url: str
    order_events_topic_arn: str
    refunds_queue_url: str
    order_updates_queue_url: str
    orders_table: str
    charges_table: str
    reconcile_function: str
    republish_function: str
    stripe_api_base: str
    stripe_secret_id: str
    stripe_webhook_secret_id: str
    page_url: str
    aws_log: str
    console_url: str
    """The console's address; empty if none is served."""

    @property
    def aws(self) -> Emulator:
        return Emulator(self.aws_endpoint_url, Path(self.aws_log))

    @property
    def issuer(self) -> Issuer:
        return Issuer(self.jwt_issuer, self.jwt_audience, Path(self.jwt_key_file))

    @property
    def stripe(self) -> StandInAdmin:
        """The stand-in's ledger, faults and clock."""
        return StandInAdmin(self.stripe_api_base)

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


_LOGICAL_IDS = {
    "payments_queue_url": "PaymentsQueue",
    "payments_dlq_url": "PaymentsDlq",
    "order_events_topic_arn": "OrderEventsTopic",
    "refunds_queue_url": "RefundsQueue",
    "order_updates_queue_url": "OrderUpdatesQueue",
    "orders_table": "OrdersTable",
    "charges_table": "PaymentsTable",
    "stripe_secret_id": "StripeSecret",
    "stripe_webhook_secret_id": "StripeWebhookSecret",
    "reconcile_function": "ReconcileFunction",
    "republish_function": "RepublishFunction",
}


def resources_of(cloudformation: Any, stack_name: str) -> dict[str, str]:
    """The fields of a Stack that are physical ids of its resources."""
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack_name)
    found = [each for page in pages for each in page["StackResourceSummaries"]]
    physical_ids = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in found}
    return {field: physical_ids[logical_id] for field, logical_id in _LOGICAL_IDS.items()}


@contextmanager
def published(stack: Stack, path: Path) -> Iterator[None]:
    """Write the stack's addresses to a file for `ops` and `local.token`; the file is removed with the stack."""
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(stack.as_json())
    unfinished.rename(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def running_stack(
    *,
    work_dir: Path,
    project: Path = PROJECT,
    stripe: GivenStripe | None = None,
    messaging: str = "standard",
    webhooks_by_themselves: bool = False,
    page_port: int = 0,
    console_url: str = "",
    on_progress: Callable[[str], object] = lambda _: None,
) -> Iterator[Stack]:
    """Deploy the project to an emulator; the stack lives as long as the block.

    Args:
        work_dir: takes the build, the logs and all that is temporary.
        stripe: an existing Stripe; without one, a stand-in is started.
        messaging: standard or fifo, as the template's parameter.
        webhooks_by_themselves: whether the stand-in delivers each event as it happens; else a test delivers them.
        page_port: the port of the customer's page; 0 takes any.
        console_url: the address of the console that will be served, if any; the page links to it.
        on_progress: called with the next step, since the build takes a while.

    Raises:
        StartupError: a part did not start; the message says which, and why.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    forget_aws_account(os.environ)
    # Nothing here is reached through a proxy; every HTTP client of ours looks at these.
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1", "localhost")))
    tools = PROJECT / ".venv"
    sam = Sam(tools / "opt/sam/bin/sam", Path(sys.executable), project, work_dir)
    with ExitStack() as parts:
        if stripe is None:
            on_progress("starting the Stripe stand-in")
            stripe = parts.enter_context(_running_standin())
        is_standin = stripe.is_standin()
        page_server = parts.enter_context(ThreadingHTTPServer(("127.0.0.1", page_port), BaseHTTPRequestHandler))
        page_origin = f"http://127.0.0.1:{page_server.server_port}"
        issuer = parts.enter_context(running_issuer(work_dir))
        on_progress("starting the AWS emulator")
        emulator = parts.enter_context(running_emulator(python=tools / "opt/emulator/bin/python", work_dir=work_dir))
        on_progress("building the functions and the layers (sam build): a minute at first, then what has changed")
        sam.build()
        on_progress("deploying template.yaml to the emulator (sam deploy)")
        sam.deploy(
            emulator,
            {
                "JwtIssuer": issuer.url,
                "JwtAudience": issuer.audience,
                "StripeApiBase": stripe.api_base,
                "Messaging": messaging,
                # The sample events' shop. At a real Stripe each local stack is another shop, as its id has it.
                "ShopId": "local" if is_standin else "",
                "WebOrigin": page_origin,
            },
        )
        resources = resources_of(emulator.client("cloudformation"), STACK_NAME)
        secrets = emulator.client("secretsmanager")
        secrets.put_secret_value(SecretId=resources["stripe_secret_id"], SecretString=stripe.api_key)
        secrets.put_secret_value(SecretId=resources["stripe_webhook_secret_id"], SecretString=stripe.webhook_secret)
        create_routes(emulator, STACK_NAME)
        api_url = f"{emulator.endpoint_url}/_aws/execute-api/{emulator.physical_id(STACK_NAME, 'OrdersApi')}/$default"
        webhook_url = f"{api_url}/stripe/events"
        if is_standin:
            StandInAdmin(stripe.api_base).settings(
                webhook_url=webhook_url,
                webhook_secret=stripe.webhook_secret,
                webhooks_by_themselves=webhooks_by_themselves,
            )
        else:
            on_progress(
                f"{stripe.api_base} is no stand-in. For its webhooks run `stripe listen --forward-to '{webhook_url}'`; "
                "this has to be started with STRIPE_WEBHOOK_SECRET=$(stripe listen --print-secret)"
            )
        page = {
            "api": api_url,
            "currency": "EUR",
            "publishable_key": stripe.publishable_key,
            "stripe_js": f"{stripe.api_base}/stripe.js" if is_standin else "https://js.stripe.com/endive/stripe.js",
            "authorize_url": issuer.authorize_url,
            "token_url": issuer.token_url,
            "client_id": CLIENT_ID,
            "scope": "openid",
            **({"console": console_url} if console_url else {}),
        }
        yield Stack(
            stack_name=STACK_NAME,
            aws_endpoint_url=emulator.endpoint_url,
            api_url=api_url,
            jwt_issuer=issuer.url,
            jwt_audience=issuer.audience,
            jwt_key_file=str(issuer.key_file),
            **resources,
            stripe_api_base=stripe.api_base,
            page_url=parts.enter_context(running_page(page_server, page)),
            aws_log=str(emulator.log),
            console_url=console_url,
        )


@contextmanager
def _running_standin() -> Iterator[GivenStripe]:
    command = [sys.executable, "-m", "stripe_standin"]
    with running(command, env=os.environ, log=None, cwd=PROJECT) as process:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise StartupError("the Stripe stand-in did not start; `python -m stripe_standin` says why")
        yield GivenStripe(json.loads(line)["stripe_api_base"], STRIPE_API_KEY, STRIPE_WEBHOOK_SECRET)
