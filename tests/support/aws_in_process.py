"""An AWS in this process, made once: moto's, and clients that the tests share."""

import os
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config


class SharedClients(boto3.Session):
    """boto3's session with one client for each service and configuration. Making one takes longer than most tests."""

    def __init__(self) -> None:
        super().__init__()
        self._clients: dict[Any, Any] = {}
        self._registered: list[Callable[[], None]] = []

    def client(self, service_name: str, **options: Any) -> Any:  # type: ignore[override]  # Typed for each service.
        given = {name: vars(value) if isinstance(value, Config) else value for name, value in options.items()}
        environment = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "http"))}
        key = f"{service_name} {given} {environment}"
        if key not in self._clients:
            self._clients[key] = self._watched(super().client(service_name, **options))  # type: ignore[call-overload]
        return self._clients[key]

    def _watched(self, client: Any) -> Any:
        """The client, which remembers the handlers that a test registers."""
        register = client.meta.events.register

        def registered(event: str, handler: Any, *arguments: Any, **named: Any) -> None:
            register(event, handler, *arguments, **named)
            self._registered.append(lambda: client.meta.events.unregister(event, handler))

        client.meta.events.register = registered
        return client

    def forget_handlers(self) -> None:
        """Unregister what the test registered."""
        while self._registered:
            self._registered.pop()()
