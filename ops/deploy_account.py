"""The AWS account: the stack, its two secrets, and what CloudFormation retains of a stack."""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from botocore.exceptions import ClientError

from ops.connection import Stack
from ops.deploy_plan import Retained, causes
from ops.errors import Problem

_SAMS_STACK = "aws-sam-cli-managed-default"
"""Has the bucket that `sam deploy --resolve-s3` uploads to, for all stacks of the region."""


class Account:
    """One stack's name in one account and region."""

    def __init__(self, stack: Stack) -> None:
        self.name, self.client = stack.name, stack.client
        self._cloudformation = stack.client("cloudformation")

    def where(self) -> str:
        """The account and the region."""
        return f"account {self.client('sts').get_caller_identity()['Account']}, {self.region}"

    @property
    def region(self) -> str:
        return str(self._cloudformation.meta.region_name)

    def described(self, name: str = "") -> Mapping[str, Any]:
        """A stack as CloudFormation describes it; empty if there is none."""
        try:
            return dict(self._cloudformation.describe_stacks(StackName=name or self.name)["Stacks"][0])
        except ClientError as error:
            if "does not exist" in str(error):
                return {}
            raise

    def protect(self) -> None:
        """Against deletion. CI may not: it finds the protection of the first deployment, which was made by hand."""
        if not self.described().get("EnableTerminationProtection"):
            self._cloudformation.update_termination_protection(StackName=self.name, EnableTerminationProtection=True)

    # ------------------------------------------------------------ secrets

    def secret(self, name: str) -> Mapping[str, Any]:
        """A secret's ARN and value; empty without it. A deletion that is scheduled is taken back."""
        secrets = self.client("secretsmanager")
        try:
            if "DeletedDate" in secrets.describe_secret(SecretId=name):
                secrets.restore_secret(SecretId=name)
            return dict(secrets.get_secret_value(SecretId=name))
        except secrets.exceptions.ResourceNotFoundException:
            return {}

    def store_secret(self, name: str, value: str) -> None:
        self.client("secretsmanager").create_secret(Name=name, SecretString=value)

    def delete_secret(self, name: str) -> None:
        """Immediately: its value can be made again at Stripe, and its name is free for the next deployment."""
        secrets = self.client("secretsmanager")
        with suppress(secrets.exceptions.ResourceNotFoundException):
            secrets.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)

    # ------------------------------------------------------------ the stack

    def sam(self, *words: str, parameters: Mapping[str, str]) -> None:
        """Run the SAM CLI. Raises Problem if it fails, with CloudFormation's reasons."""
        given = [f'{name}="{value}"' for name, value in sorted(parameters.items())]
        # make puts the project's own sam first on PATH.
        done = subprocess.run(["sam", *words, "--parameter-overrides", *given], check=False)  # noqa: S603, S607
        if done.returncode:
            reasons = "".join(f"\n  {line}" for line in self.failures(self.name)) if words[0] == "deploy" else ""
            raise Problem(f"sam {words[0]} failed, as it says above.{reasons}\nFix the cause and run this again.")

    def failures(self, stack: str) -> list[str]:
        """Why the last operation failed, of the nested stack, too."""
        if not self.described(stack):
            return []
        pages = self._cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack)
        found = causes(event for page in pages for event in page["StackEvents"])
        nested = [id_ for id_ in self.resources(stack) if id_.startswith("arn:") and ":stack/" in id_]
        return [*found, *(line for each in nested for line in self.failures(each))]

    def resources(self, stack: str = "") -> list[str]:
        """The physical ids of a stack's resources."""
        pages = self._cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack or self.name)
        return [each.get("PhysicalResourceId", "") for page in pages for each in page["StackResourceSummaries"]]

    def delete_stack(self) -> None:
        """And wait until it is gone. Raises WaiterError if CloudFormation cannot delete it."""
        self._cloudformation.delete_stack(StackName=self.name)
        waiter = self._cloudformation.get_waiter("stack_delete_complete")
        waiter.wait(StackName=self.name, WaiterConfig={"Delay": 5, "MaxAttempts": 720})

    # ------------------------------------------------------------ what CloudFormation retains

    def retained(self) -> Iterator[Retained]:
        """The stack's tables, bucket and user pool, also of a stack of this name that is gone."""
        dynamodb, name = self.client("dynamodb"), re.escape(self.name)
        for page in dynamodb.get_paginator("list_tables").paginate():
            # Another stack's name may begin with this one and a hyphen: a logical id has no hyphen.
            for table in (each for each in page["TableNames"] if re.fullmatch(rf"{name}-\w+Table-\w+", each)):
                is_protected = dynamodb.describe_table(TableName=table)["Table"].get("DeletionProtectionEnabled", False)
                is_empty = not dynamodb.scan(TableName=table, Limit=1)["Count"]
                yield Retained("table", table, is_protected, is_empty)
        for bucket in (each["Name"] for each in self.client("s3").list_buckets()["Buckets"]):
            if re.fullmatch(rf"{name}-failedrecordsbucket-\w+", bucket):
                yield Retained("bucket", bucket, False, not any(self._versions(bucket)))
        cognito = self.client("cognito-idp")
        for page in cognito.get_paginator("list_user_pools").paginate(MaxResults=60):
            for pool in (each["Id"] for each in page["UserPools"] if each["Name"] == self.name):
                described = cognito.describe_user_pool(UserPoolId=pool)["UserPool"]
                is_empty = not cognito.list_users(UserPoolId=pool, Limit=1)["Users"]
                yield Retained("user pool", pool, described.get("DeletionProtection") == "ACTIVE", is_empty)

    def delete(self, each: Retained) -> None:
        """With all that is in it, protected or not."""
        match each.kind:
            case "table":
                dynamodb = self.client("dynamodb")
                if each.is_protected:
                    dynamodb.update_table(TableName=each.id, DeletionProtectionEnabled=False)
                    dynamodb.get_waiter("table_exists").wait(TableName=each.id)
                dynamodb.delete_table(TableName=each.id)
                dynamodb.get_waiter("table_not_exists").wait(TableName=each.id)
            case "bucket":
                self.empty_bucket(each.id)
                self.client("s3").delete_bucket(Bucket=each.id)
            case _:
                cognito = self.client("cognito-idp")
                if each.is_protected:
                    cognito.update_user_pool(UserPoolId=each.id, DeletionProtection="INACTIVE")
                cognito.delete_user_pool(UserPoolId=each.id)

    def delete_artifacts(self) -> None:
        """What `sam deploy` has uploaded for this stack."""
        for output in self.described(_SAMS_STACK).get("Outputs", []):
            if output["OutputKey"] == "SourceBucket":
                self.empty_bucket(output["OutputValue"], f"{self.name}/")

    def empty_bucket(self, bucket: str, prefix: str = "") -> None:
        for versions in self._versions(bucket, prefix):
            self.client("s3").delete_objects(Bucket=bucket, Delete={"Objects": versions})

    def _versions(self, bucket: str, prefix: str = "") -> Iterator[Sequence[Mapping[str, str]]]:
        """The versions of its objects, a page at a time."""
        for page in self.client("s3").get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
            listed = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
            if listed:
                yield [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in listed]
