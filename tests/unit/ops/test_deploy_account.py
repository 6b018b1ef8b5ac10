"""What `make deploy` and `make undeploy` do to the account: on moto's services, and on answers that botocore checks."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import ANY

from ops.connection import Stack
from ops.deploy import remove_failed
from ops.deploy_account import Account
from tests.support.stubbed_session import StubbedSession


@pytest.fixture
def session(aws: None) -> Iterator[StubbedSession]:
    with StubbedSession().activated() as session:
        yield session


@pytest.fixture
def account(session: StubbedSession) -> Account:
    used: Any = session
    return Account(Stack("shop", used))


def table(name: str, *, is_protected: bool = False) -> str:
    boto3.client("dynamodb").create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        DeletionProtectionEnabled=is_protected,
    )
    return name


def tables() -> list[str]:
    return list(boto3.client("dynamodb").list_tables()["TableNames"])


def test_an_account_without_the_stack(account: Account, session: StubbedSession) -> None:
    """Nothing is there, and nothing fails."""
    session.has_no_stack()
    session.answers("cognito-idp", "list_user_pools", {"UserPools": []}, MaxResults=60)
    assert (account.described(), list(account.retained())) == ({}, [])
    assert account.secret("shop/stripe") == {}
    assert "account 1" in account.where()


def test_a_secret_whose_deletion_is_scheduled_is_taken_back(account: Account) -> None:
    """Otherwise its name would be taken for a month."""
    account.store_secret("shop/stripe", "sk_test_1")
    boto3.client("secretsmanager").delete_secret(SecretId="shop/stripe")
    assert account.secret("shop/stripe")["SecretString"] == "sk_test_1"
    account.delete_secret("shop/stripe")
    assert account.secret("shop/stripe") == {}
    account.delete_secret("shop/stripe")


def test_what_is_retained_is_found_without_the_stack(account: Account, session: StubbedSession) -> None:
    """Tables, bucket and user pool of this name; none of a stack whose name only begins with it."""
    mine = table("shop-OrdersTable-1A")
    table("shop-dev-OrdersTable-1A")
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="shop-failedrecordsbucket-1a")
    s3.put_bucket_versioning(Bucket="shop-failedrecordsbucket-1a", VersioningConfiguration={"Status": "Enabled"})
    for body in (b"1", b"2"):
        s3.put_object(Bucket="shop-failedrecordsbucket-1a", Key="record", Body=body)
    pools = [{"Id": "us-east-1_1", "Name": "shop"}, {"Id": "us-east-1_2", "Name": "shop-dev"}]
    session.answers("cognito-idp", "list_user_pools", {"UserPools": pools}, MaxResults=60)
    described = {"UserPool": {"Id": "us-east-1_1", "DeletionProtection": "ACTIVE"}}
    session.answers("cognito-idp", "describe_user_pool", described, UserPoolId="us-east-1_1")
    session.answers("cognito-idp", "list_users", {"Users": []}, UserPoolId="us-east-1_1", Limit=1)
    found = list(account.retained())
    assert [(each.id, each.is_protected, each.is_empty) for each in found] == [
        (mine, False, True),
        ("shop-failedrecordsbucket-1a", False, False),
        ("us-east-1_1", True, True),
    ]
    session.answers("cognito-idp", "update_user_pool", {}, UserPoolId="us-east-1_1", DeletionProtection="INACTIVE")
    session.answers("cognito-idp", "delete_user_pool", {}, UserPoolId="us-east-1_1")
    for each in found:
        account.delete(each)
    session.stubs["cognito-idp"].assert_no_pending_responses()
    assert (tables(), s3.list_buckets()["Buckets"]) == (["shop-dev-OrdersTable-1A"], [])


def test_a_failed_first_deployment_is_removed_with_its_protected_tables(
    account: Account, session: StubbedSession
) -> None:
    """CloudFormation cannot delete these: ROLLBACK_FAILED. A table of an earlier stack of this name stays."""
    mine, earlier = table("shop-OrdersTable-1", is_protected=True), table("shop-OrdersTable-0", is_protected=True)
    listed = {"LogicalResourceId": "OrdersTable", "PhysicalResourceId": mine, "ResourceType": "AWS::DynamoDB::Table"}
    listed |= {"ResourceStatus": "DELETE_FAILED", "LastUpdatedTimestamp": 0}  # type: ignore[dict-item]
    session.answers("cloudformation", "list_stack_resources", {"StackResourceSummaries": [listed]}, StackName="shop")
    session.answers("cloudformation", "delete_stack", {}, StackName="shop")
    session.has_no_stack()
    session.answers("cognito-idp", "list_user_pools", {"UserPools": []}, MaxResults=60)
    remove_failed(account)
    assert tables() == [earlier]


def test_sams_uploads_of_the_stack_are_deleted(account: Account, session: StubbedSession) -> None:
    """In the bucket that all stacks of the region share, under the stack's name."""
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="sams")
    for key in ("shop/code", "shop-dev/code"):
        s3.put_object(Bucket="sams", Key=key, Body=b"")
    outputs = [{"OutputKey": "SourceBucket", "OutputValue": "sams"}]
    session.has_stack("aws-sam-cli-managed-default", Outputs=outputs)
    account.delete_artifacts()
    assert [each["Key"] for each in s3.list_objects_v2(Bucket="sams")["Contents"]] == ["shop-dev/code"]


def test_why_a_nested_stack_failed(account: Account, session: StubbedSession) -> None:
    """Its own events say it; those of the stack only that it failed."""
    nested = "arn:aws:cloudformation:us-east-1:1:stack/shop-Monitoring-1/2"
    event = {"StackId": "id", "EventId": "1", "StackName": "shop", "Timestamp": 0, "ResourceStatus": "CREATE_FAILED"}
    for name, resources in (("shop", [nested]), (nested, ["alarm"])):
        session.has_stack(name)
        failed = {**event, "LogicalResourceId": resources[0][-5:], "ResourceStatusReason": f"because of {name[:4]}"}
        session.answers("cloudformation", "describe_stack_events", {"StackEvents": [failed]}, StackName=ANY)
        summaries = [
            {
                "LogicalResourceId": "x",
                "PhysicalResourceId": each,
                "ResourceType": "t",
                "ResourceStatus": "CREATE_FAILED",
                "LastUpdatedTimestamp": 0,
            }
            for each in resources
        ]
        session.answers("cloudformation", "list_stack_resources", {"StackResourceSummaries": summaries}, StackName=ANY)
    assert account.failures("shop")[-1] == "alarm: CREATE_FAILED: because of arn:"
