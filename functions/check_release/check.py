"""One deployment of CodeDeploy's: the new version's self-check decides whether it gets any traffic."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.runtime.self_check import SelfCheckFailed, require_self_check

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


class Deployments(Protocol):
    """What is used of boto3's CodeDeploy client, whose types are not installed."""

    def list_deployment_targets(self, *, deploymentId: str) -> dict[str, Any]: ...  # boto3's names.

    def batch_get_deployment_targets(self, *, deploymentId: str, targetIds: list[str]) -> dict[str, Any]: ...

    def put_lifecycle_event_hook_execution_status(
        self,
        *,
        deploymentId: str,
        lifecycleEventHookExecutionId: str,
        status: Literal["Succeeded", "Failed"],
    ) -> object: ...


@dataclass(frozen=True)
class CheckRelease:
    """Checks the version that traffic is shifted to, and reports to CodeDeploy. Methods raise botocore's errors."""

    codedeploy: Deployments
    functions: "LambdaClient"
    logger: Logger

    def __call__(self, deployment_id: str, hook_execution_id: str) -> str:
        """Report `Succeeded` or `Failed`, and return it.

        Failed rolls the deployment back: the alias stays at the version that it has. If not even that can be reported,
        CodeDeploy fails the deployment after an hour (CodeDeploy User Guide, "AppSpec 'hooks' section").
        """
        status: Literal["Succeeded", "Failed"] = "Succeeded" if self._is_well(deployment_id) else "Failed"
        self.codedeploy.put_lifecycle_event_hook_execution_status(
            deploymentId=deployment_id, lifecycleEventHookExecutionId=hook_execution_id, status=status
        )
        return status

    def _is_well(self, deployment_id: str) -> bool:
        try:
            function = self._new_version(deployment_id)
            require_self_check(self.functions, function)
        except (SelfCheckFailed, BotoCoreError, ClientError, LookupError, ValueError) as reason:
            self.logger.error(
                "the new version's self-check failed: it gets no traffic",
                extra={"deployment_id": deployment_id, "reason": f"{type(reason).__name__}: {reason}"},
            )
            return False
        self.logger.info("the new version is well", extra={"deployment_id": deployment_id, "function": function})
        return True

    def _new_version(self, deployment_id: str) -> str:
        """The function and the version that the deployment shifts its alias to, as `name:version`."""
        targets = self.codedeploy.list_deployment_targets(deploymentId=deployment_id)["targetIds"]
        found = self.codedeploy.batch_get_deployment_targets(deploymentId=deployment_id, targetIds=targets)
        [target] = found["deploymentTargets"]
        version = target["lambdaTarget"]["lambdaFunctionInfo"]
        return f"{version['functionName']}:{version['targetVersion']}"
