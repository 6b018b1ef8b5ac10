"""What is taken out of log lines, of errors that leave a function, and of Stripe's messages; and what stays."""

import json
import logging
import re
import uuid
from io import StringIO
from typing import Any

import pytest
import stripe

from onecharge.payments.stripe_responses import classify
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import LIBRARIES, RedactingFormatter, function_logger
from onecharge.runtime.parts import Parts
from onecharge.runtime.redaction import REDACTED, FailedInvocation, presentable, redacted
from tests.support.functions import FUNCTIONS, parts_of
from tests.support.harness import PROJECT, LambdaContext

API_KEY = "sk_test_" + "51KeyOfTheAccount000"
SECRETS = {
    "a card number": "4000 0566 5566 5556",
    "the Stripe key": API_KEY,
    "the webhook secret": "whsec_" + "SigningSecret0000",
    "a client secret": "pi_1_secret_" + "ClientSecret0000",
    "an access token": "eyJhbGciOiJub25lIn0" + ".eyJzdWIiOiJqYW5lIn0.ItsSignature",
    "an e-mail address": "jane@customers.example",
}
OF_EACH_SECRET = pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)


@OF_EACH_SECRET
def test_a_secret_is_taken_out_of_a_text(secret: str) -> None:
    """Wherever it is; the text around it is kept."""
    assert redacted(f"refused: '{secret}' (param: x)") == f"refused: '{REDACTED}' (param: x)"


CARDS = ["4242424242424242", "4242-4242-4242-4242", "3782 822463 10005", "4242%204242%204242%204242"]


@pytest.mark.parametrize("card", CARDS)
def test_a_card_number_is_taken_out_however_it_is_grouped(card: str) -> None:
    """14 to 19 digits."""
    assert redacted(f'{{"number": "{card}"}}') == f'{{"number": "{REDACTED}"}}'


@pytest.mark.parametrize(
    "kept",
    [
        "ord_94febac0649be45f062c4f1063135110",
        "ord_11111111111111111111111111111111",
        "rfd_0123456789abcdef0123456789abcdef",
        "pi_3TqKxY2eZvKYlo2C1a2b3c4d",
        "req_kKHPGxnB0bgAsf",
        "arn:aws:sqs:us-east-1:123456789012:payments",
        "00000000-0000-4000-8000-000000000000",
        "12345678-1234-4234-8234-123456789012",
        "1-57591988-123412341234123412341234",
        "JKJaXmPLvHcESHA=",
        "2026-11-21 21:43:42,123+0000",
        "1793523605000",
        '{"amount":12900,"attempt":1}',
        "sk_test",
    ],
)
def test_what_leads_to_an_order_stays(kept: str) -> None:
    """Ids, ARNs, times and amounts: without them a log line says nothing."""
    assert redacted(kept) == kept


@pytest.fixture(autouse=True)
def a_logger_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", f"redaction-{uuid.uuid4()}")


@OF_EACH_SECRET
def test_a_functions_log_line_holds_no_secret(secret: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in its message, nor in a field, nor in the text of an exception; and it is still JSON."""
    logger = function_logger({})
    logger.info(f"refused {secret}", extra={"why": secret, "order_id": "ord_1"})
    try:
        raise ValueError(secret)
    except ValueError:
        logger.exception("failed unexpectedly")
    printed = capsys.readouterr().out
    lines = [json.loads(line) for line in printed.splitlines()]
    assert secret not in printed
    assert lines[0]["order_id"] == "ord_1"
    assert (lines[1]["exception_name"], lines[1]["message"]) == ("ValueError", "failed unexpectedly")


def test_libraries_stay_quiet_at_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lambda sets the root logger's level to DEBUG: botocore would log the response that holds the Stripe key."""
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", "DEBUG")
    logged = StringIO()
    root, handler = logging.getLogger(), logging.StreamHandler(logged)
    monkeypatch.setattr(root, "level", logging.DEBUG)
    root.addHandler(handler)
    function_logger({})
    for library in LIBRARIES:
        logging.getLogger(f"{library}.endpoint").debug("Response body: secret")
    root.removeHandler(handler)
    assert "secret" not in logged.getvalue()


@OF_EACH_SECRET
def test_an_error_that_leaves_a_function_holds_no_secret(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lambda logs its message, and returns it to the invoker; the error that caused it is no way around."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "onecharge")

    @lambda_handler(Parts)
    def handler(_: Parts, event: dict[str, Any], context: object) -> None:
        """Fail."""
        try:
            raise KeyError(secret)
        except KeyError as cause:
            raise ValueError(event["message"]) from cause

    for message in (f"not {secret}", "no secret"):
        with pytest.raises(FailedInvocation) as failed:
            handler({"message": message}, LambdaContext())
        assert secret not in str(failed.value)
        assert "ValueError" in str(failed.value)
        assert failed.value.__cause__ is None
        assert failed.value.__suppress_context__


def test_an_error_without_a_secret_is_raised_as_it_is() -> None:
    """Whoever invokes the function sees its type."""
    error = ValueError("3 of 10 records: InternalError")
    assert presentable(error) is error


def test_stripes_message_is_kept_without_secrets_and_short() -> None:
    """A row keeps it: of a wrong key, Stripe repeats a part."""
    body = {
        "error": {
            "type": "invalid_request_error",
            "message": f"Invalid API Key provided: {API_KEY} " + "x" * 9999,
        }
    }
    failure = classify(stripe.AuthenticationError("refused", http_status=401, json_body=body))
    assert failure.message is not None
    assert failure.message.startswith(f"Invalid API Key provided: {REDACTED} x")
    assert len(failure.message) == 500


def test_every_function_has_the_redacting_logger() -> None:
    """Nothing of the product makes a logger of its own."""
    files = [path for folder in ("functions", "shared") for path in (PROJECT / folder).rglob("*.py")]
    making = {path.name for path in files if re.search(r"\bLogger\(", path.read_text())}
    assert making == {"logs.py"}
    assert all(issubclass(parts_of(function), Parts) for function in FUNCTIONS)
    assert type(Parts({}).logger.registered_formatter) is RedactingFormatter
