"""A caller's session on moto, in which CloudFormation and Cognito answer what a test says: moto has neither here."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import boto3
from botocore.stub import Stubber


class StubbedSession:
    """botocore compares each request and each answer of the two services with their models."""

    def __init__(self) -> None:
        clients: list[Any] = [boto3.client("cloudformation"), boto3.client("cognito-idp")]
        self.stubs = {client.meta.service_model.service_name: Stubber(client) for client in clients}

    region_name = "us-east-1"

    def get_credentials(self) -> str:
        """As boto3's session; moto takes any."""
        return "any"

    def client(self, service: str, **_: Any) -> Any:
        """As boto3's session."""
        if service in self.stubs:
            return self.stubs[service].client
        return boto3.client(service)  # type: ignore[call-overload]  # The service is not known before run time.

    def answers(self, service: str, operation: str, answer: dict[str, Any], **expected: Any) -> None:
        self.stubs[service].add_response(operation, answer, expected or None)

    def has_stack(self, name: str = "shop", **more: Any) -> None:
        stack = {"StackName": name, "StackStatus": "CREATE_COMPLETE", "CreationTime": 0, **more}
        self.answers("cloudformation", "describe_stacks", {"Stacks": [stack]}, StackName=name)

    def has_no_stack(self) -> None:
        stub = self.stubs["cloudformation"]
        stub.add_client_error("describe_stacks", "ValidationError", "Stack with id shop does not exist", 400)

    @contextmanager
    def activated(self) -> Iterator[Self]:
        """The tests share the clients."""
        for stub in self.stubs.values():
            stub.activate()
        yield self
        for stub in self.stubs.values():
            stub.deactivate()
