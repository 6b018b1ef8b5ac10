"""What a function logs at which level, and that its metrics are logged at every level."""

import json
import os

import pytest

from onecharge.runtime.logs import function_logger
from tests.support.harness import load_template

LEVELS = load_template()["Parameters"]["LogLevel"]["AllowedValues"]


@pytest.mark.parametrize("level", LEVELS)
def test_the_level_is_the_parameters_whatever_lambda_says(
    level: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Powertools itself takes Lambda's level, which is INFO even if the parameter says WARNING."""
    monkeypatch.setenv("AWS_LAMBDA_LOG_LEVEL", "DEBUG" if level == "DEBUG" else "INFO")
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", level)
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", f"test_{level}")
    logger = function_logger(os.environ)
    for each in LEVELS:
        getattr(logger, each.lower())("a line")
    written = [json.loads(line)["level"] for line in capsys.readouterr().out.splitlines()]
    assert written == LEVELS[LEVELS.index(level) :]


def test_lambda_drops_no_line_that_holds_metrics() -> None:
    """They are lines at INFO: a higher level of Lambda's would drop them, and with them every alarm."""
    logging_config = load_template()["Globals"]["Function"]["LoggingConfig"]
    assert logging_config["ApplicationLogLevel"] == {"If": ["LogsDebug", "DEBUG", "INFO"]}
    assert logging_config["LogFormat"] == "JSON", "with Text Lambda has no levels"
