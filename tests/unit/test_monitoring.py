"""monitoring.yaml watches what the code counts, and its mails say what docs/runbook.md fixes."""

import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from onecharge.payments.stripe_client import status_of
from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm
from ops.command_line import parser
from tests.support.harness import PROJECT, load_template

RESOURCES = load_template("monitoring.yaml")["Resources"]
ALARMS = {name: each["Properties"] for name, each in RESOURCES.items() if each["Type"] == "AWS::CloudWatch::Alarm"}
RUNBOOK = (PROJECT / "docs/runbook.md").read_text()
CODE = [path for name in ("functions", "shared") for path in (PROJECT / name).rglob("*.py")]
SOURCE = "\n".join(path.read_text() for path in CODE if path.name != "alarms.py")


class Watched(NamedTuple):
    """A metric, and the alarm that watches it."""

    alarm: str
    id: str
    period: int
    namespace: str
    name: str
    dimension: tuple[str, Any]


def watched_by(alarm: str, given: dict[str, Any]) -> Iterator[Watched]:
    for query in given.get("Metrics") or [{"Id": "alarm", "MetricStat": {**given, "Metric": given}}]:
        if stat := query.get("MetricStat"):
            metric = stat["Metric"]
            [dimension] = metric["Dimensions"]
            about = metric["Namespace"], metric["MetricName"], (dimension["Name"], dimension["Value"])
            yield Watched(alarm, query["Id"], stat["Period"], *about)


WATCHED = [each for name, alarm in ALARMS.items() for each in watched_by(name, alarm)]


def expression_of(alarm: str) -> str:
    """It is Python, if it is in lower case."""
    queries = ALARMS[alarm].get("Metrics", [{"Expression": "alarm"}])
    [expression] = [each["Expression"] for each in queries if "Expression" in each]
    return re.sub(r"\b(AND|OR)\b", lambda found: found[0].lower(), expression)


def is_breaching(alarm: str, values: dict[str, float]) -> bool:
    """A metric without data counts as 0."""
    given = {each.id: values.get(each.id, 0) for each in WATCHED if each.alarm == alarm}
    assert values.keys() <= given.keys()
    return bool(eval(expression_of(alarm), {}, given) >= ALARMS[alarm]["Threshold"])  # noqa: S307


def test_every_cause_is_counted_and_watched_by_one_alarm() -> None:
    """A cause without an alarm would send no mail; an unused one would be an alarm that never comes."""
    assert sorted(each.dimension[1] for each in WATCHED if each.name == "Alarm") == sorted(Cause)
    assert {cause for cause in Cause if f"Cause.{cause.name}" not in SOURCE} == set()
    assert re.findall(r"""counts?\(["']Alarm["']\)""", SOURCE) == [], "an alarm without its cause"


def test_an_alarm_of_ours_watches_a_metric_that_the_code_emits() -> None:
    """With this namespace, name and dimensions: any other is another metric, and its alarm would never go off."""
    template = load_template()
    assert template["Resources"]["Monitoring"]["Properties"]["Parameters"]["StackName"] == "Ref AWS::StackName"
    variables = template["Globals"]["Function"]["Environment"]["Variables"]
    assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "Sub onecharge/${AWS::StackName}"
    for each in WATCHED:
        if each.namespace.startswith("AWS/"):
            continue
        assert each.namespace == "Sub onecharge/${StackName}"
        match each.name, each.dimension:
            case "Alarm", ("cause", cause):
                assert Alarm(Cause(cause)).dimensions == ({"cause": cause},)
            case "StripeSeconds", ("status", status):
                assert str(status) in {*map(status_of, (0, *range(200, 600)))}
            case "Payment.DECLINED" | "Payment.SUCCEEDED", ("service", "charge_order" | "stripe_webhook"):
                assert SOURCE.count('count(f"Payment.{') == 2, "deliveries.py and sync.py count each state"
            case metric, ("service", service):
                code = "\n".join(path.read_text() for path in (PROJECT / "functions" / service).glob("*.py"))
                assert f'"{metric}"' in code
            case other:
                raise AssertionError(f"nothing emits {other}")


@pytest.mark.parametrize(
    ("alarm", "values", "is_on"),
    [
        *((each.alarm, {each.id: 1}, True) for each in WATCHED if each.name == "Alarm"),
        ("UnexpectedError", {"api": 2}, False),
        ("UnexpectedError", {"api": 1, "publish": 1, "update": 1}, True),
        ("UnexpectedError", {"republish": 1, "charge": 1, "refund": 1}, True),
        ("UnexpectedError", {"reconcile": 3}, True),
        ("StripeUnavailable", {"unanswered": 2, "limited": 9}, False),
        ("StripeUnavailable", {"unanswered": 2, "failing": 1}, True),
        ("StripeUnavailable", {"limited": 10}, True),
        ("CardTesting", {"declined": 19}, False),
        ("CardTesting", {"declined": 60, "refused": 40, "paid": 90, "confirmed": 11}, False),
        ("CardTesting", {"declined": 10, "refused": 10, "paid": 10, "confirmed": 10}, True),
        *(("DlqNotEmpty", {queue: 1}, True) for queue in ("payments", "updates", "refunds", "subscriptions")),
        ("Delayed", {"payments": 900, "updates": 300, "refunds": 3600, "published": 300_000}, False),
        *(("Delayed", {queue: 3601}, True) for queue in ("payments", "updates", "refunds")),
        ("Delayed", {"published": 300_001}, True),
        ("JobsNotRun", {"reconciled": 1, "behind": 21_600, "republished": 1}, False),
        ("JobsNotRun", {"reconciled": 3, "behind": 21_601, "republished": 1}, True),
        ("JobsNotRun", {"republished": 1}, True),
        ("JobsNotRun", {"reconciled": 3}, True),
        ("JobsNotRun", {"reconciled": 3, "republished": 3, "failed": 3}, True),
    ],
)
def test_an_alarm_is_on_if_one_of_its_metrics_says_so(alarm: str, values: dict[str, float], is_on: bool) -> None:
    """And off without data, except that of the jobs, whose data is what is missing."""
    assert is_breaching(alarm, values) is is_on
    assert is_breaching(alarm, {}) is (alarm == "JobsNotRun")
    assert ALARMS[alarm]["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"


def test_an_alarm_on_jobs_has_the_longest_period_of_them() -> None:
    """A shorter one would miss runs that are not due yet."""
    seconds = {"rate(5 minutes)": 300, "rate(15 minutes)": 900}
    functions = [each["Properties"] for each in load_template()["Resources"].values() if "Properties" in each]
    events = [event for each in functions for event in each.get("Events", {}).values() if event["Type"] == "ScheduleV2"]
    longest = max(seconds[event["Properties"]["ScheduleExpression"]] for event in events)
    assert {each.period for each in WATCHED if each.alarm == "JobsNotRun"} == {longest}


@pytest.mark.parametrize("name", ALARMS)
def test_a_mail_names_its_stack_its_entry_and_a_command_that_can_be_typed(name: str) -> None:
    """Two stacks in one account do not overwrite each other's alarms. CloudWatch takes 1,024 characters. A second mail
    says that the alarm is over: what came meanwhile is listed then."""
    alarm = ALARMS[name]
    assert alarm["AlarmName"] == f"Sub ${{StackName}}-{name}"
    assert alarm["AlarmActions"] == alarm["OKActions"] == ["Ref AlarmTopic"]
    assert re.search(rf"(?m)^## {name}$", RUNBOOK)
    says = str(alarm["AlarmDescription"]).removeprefix("Sub ").replace("${StackName}", "shop")
    assert len(says) < 900
    assert says.endswith(f"(docs/runbook.md#{name.lower()})")
    if name != "CardTesting":  # Its payments are at Stripe.
        [command] = re.findall(r"\.venv/bin/python -m ops (.*) \(", says)
        assert parser().parse_args(shlex.split(command)).stack == "shop"


def test_what_missing_data_means_is_said() -> None:
    """Breaching where missing data is what the alarm is for; the default, missing, would keep the last state. A second
    dispute sends a mail, too: an alarm of one period of one minute is over a few minutes later."""
    said = {name: each["TreatMissingData"] for name, each in ALARMS.items()}
    assert said == {name: "breaching" if name == "JobsNotRun" else "notBreaching" for name in ALARMS}
    once = {name for name, each in ALARMS.items() if (each.get("Period"), each["EvaluationPeriods"]) == (60, 1)}
    assert once == {"ChargeDisputed", "RefundFailed"}


def test_cloudwatch_takes_the_metrics_and_the_range_that_is_evaluated() -> None:
    """At most ten metrics of one period, all of them used, and a day (Amazon CloudWatch API Reference,
    PutMetricAlarm)."""
    for name, alarm in ALARMS.items():
        ids = [each.id for each in WATCHED if each.alarm == name]
        [period] = {each.period for each in WATCHED if each.alarm == name}
        assert period % 60 == 0
        assert period * alarm["EvaluationPeriods"] <= 86_400
        assert alarm.get("DatapointsToAlarm", 1) <= alarm["EvaluationPeriods"]
        assert set(re.findall(r"\b[a-z]+\b", re.sub(r"\b(and|or)\b", "", expression_of(name)))) == set(ids)
        assert len(ids) <= 10
        assert [each.get("ReturnData", True) for each in alarm.get("Metrics", [{}])].count(True) == 1


def test_every_function_and_queue_is_watched() -> None:
    """A new one without an alarm would fail unseen. What the API invokes is in the API's own 5xx."""
    template = load_template()["Resources"]
    functions = {name: each["Properties"] for name, each in template.items() if each["Type"].endswith("less::Function")}
    behind = {name for name, each in functions.items() if "HttpApi" in [e["Type"] for e in each["Events"].values()]}
    queues = {name for name, each in template.items() if each["Type"] == "AWS::SQS::Queue"}
    kinds = ("Errors", "ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage", "5xx")
    watched = {each.dimension[1] for each in WATCHED if each.name in kinds}
    assert watched == {"Ref OrdersApiId", *(f"Ref {name}Name" for name in {*functions, *queues} - behind)}
    assert behind == {"OrdersApiFunction", "GetPaymentFunction", "StripeWebhookFunction"}
