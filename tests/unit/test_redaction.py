"""What is taken out of log lines, of errors and of Stripe's messages, and which lines a function writes."""

import json
import logging
import uuid
from io import StringIO
from typing import Any

import pytest

from onecharge.runtime.logs import LIBRARIES, function_logger
from onecharge.runtime.parts import Parts, lambda_handler
from onecharge.runtime.redaction import REDACTED, FailedInvocation, presentable, redacted
from tests.support.harness import LambdaContext, load_template

API_KEY = "sk_test_" + "51KeyOfTheAccount000"
SECRETS = {
    "a card number": "4000 0566 5566 5556",
    "a card number in a URL": "4242%204242%204242%204242",
    "a card number of 15 digits": "3782 822463 10005",
    "the Stripe key": API_KEY,
    "the webhook secret": "whsec_" + "SigningSecret0000",
    "a client secret": "pi_1_secret_" + "ClientSecret0000",
    "an access token": "eyJhbGciOiJub25lIn0" + ".eyJzdWIiOiJqYW5lIn0.ItsSignature",
    "an e-mail address": "jane@customers.example",
}


@pytest.fixture(autouse=True)
def a_logger_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", f"redaction-{uuid.uuid4()}")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "onecharge")


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_no_secret_leaves_a_function(secret: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in the message of a log line, nor in a field, nor in an exception's text; and it is still JSON. Lambda
    logs the message of an error that is raised, and returns it: the error that caused it is no way around."""
    assert redacted(f"refused: '{secret}' (param: x)") == f"refused: '{REDACTED}' (param: x)"
    logger = function_logger()

    @lambda_handler(Parts)
    def handler(_: Parts, event: dict[str, Any], context: object) -> None:
        """Fail."""
        try:
            raise KeyError(secret)
        except KeyError as cause:
            logger.exception(f"refused {secret}", extra={"why": secret, "order_id": "ord_1"})
            raise ValueError(event["message"]) from cause

    for message in (f"not {secret}", "no secret"):
        with pytest.raises(FailedInvocation, match="ValueError") as failed:
            handler({"message": message}, LambdaContext())
        assert secret not in str(failed.value)
        assert (failed.value.__cause__, failed.value.__suppress_context__) == (None, True)
    printed = capsys.readouterr().out
    assert secret not in printed
    line = json.loads(printed.splitlines()[0])
    assert (line["order_id"], line["exception_name"]) == ("ord_1", "KeyError")


KEPT = (
    "ord_11111111111111111111111111111111 rfd_0123456789abcdef0123456789abcdef pi_3TqKxY2eZvKYlo2C1a2b3c4d "
    "req_kKHPGxnB0bgAsf arn:aws:sqs:us-east-1:123456789012:payments 2026-11-21T21:43:42,123+0000, 1793523605000 "
    '{"amount":12900,"attempt":1} sk_test'
)


def test_what_leads_to_an_order_stays() -> None:
    """Ids, ARNs, times and amounts: without them a log line says nothing. An error without a secret is raised as it is:
    whoever invokes the function sees its type."""
    error = ValueError(KEPT)
    assert (redacted(KEPT), presentable(error)) == (KEPT, error)


# ---------------------------------------------------------------- the logger


def test_libraries_stay_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """At DEBUG botocore would log the response that holds the Stripe key."""
    root, of_root = logging.getLogger(), logging.StreamHandler(StringIO())
    monkeypatch.setattr(root, "level", logging.DEBUG)
    root.addHandler(of_root)
    function_logger()
    for library in LIBRARIES:
        logging.getLogger(f"{library}.endpoint").debug("Response body: secret")
    root.removeHandler(of_root)
    assert "secret" not in of_root.stream.getvalue()


def test_lambda_drops_no_line_that_holds_metrics() -> None:
    """They are lines at INFO: a higher level of Lambda's would drop them, and with them every alarm."""
    logging_config = load_template()["Globals"]["Function"]["LoggingConfig"]
    assert logging_config["ApplicationLogLevel"] == "INFO"
    assert logging_config["LogFormat"] == "JSON", "with Text Lambda has no levels"
