"""check_release: the pre-traffic hook of every function's deployment. This file only puts the parts together.

CodeDeploy ─► check_release ─► the new version of the function: SELF_CHECK ─► its probes (onecharge.runtime.self_check)
          ◄── Succeeded: traffic is shifted; Failed: the deployment is rolled back
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Metrics
from botocore.config import Config

from check_release.check import CheckRelease
from onecharge.runtime.aws import aws_client, client_config
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.self_check import Probe

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

SELF_CHECK_SECONDS = 45
"""How long a self-check may take: a cold start, and one request of a few seconds for each probe."""


class Application:
    """Everything that lives as long as the execution environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.counts = Counts(Metrics())
        self.probes: Mapping[str, Probe] = {}  # It is no part of the way of an order, and is not deployed gradually.
        config = Config(connect_timeout=1, read_timeout=SELF_CHECK_SECONDS, retries={"total_max_attempts": 1})
        self.check = CheckRelease(
            codedeploy=aws_client("codedeploy", config=client_config()),
            functions=aws_client("lambda", config=config),
            logger=function_logger(),
        )


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> None:
    """Check the version that the deployment of the event is about (CodeDeploy's event of a lifecycle hook)."""
    application.check(event["DeploymentId"], event["LifecycleEventHookExecutionId"])
