"""The AWS emulator with IAM enforced: a request that the caller's role does not allow is refused, as on AWS.

The emulator's own interpreter runs this file; with AUTH=true it gives each function the credentials of its execution
role. Six things are added to it:

- A request is checked under the action's name in IAM, where the emulator takes the request's own.
- Every decision about a role's request is appended to the file that PERMISSIONS_LOG names, once each, as a line of
  JSON: principal, action, resource, is_allowed. tests/e2e/test_permissions.py reads it.
- Requests count as sent over TLS, since the policies refuse all others and the emulator has no certificate.
- A zip is unpacked once, and every worker gets a link to it. By itself the emulator unpacks each layer anew for each
  worker: 5,000 files, which take two seconds at every cold start, and again when the run ends.
- Repeated headers are joined by a comma, as API Gateway does (payload format 2.0). By itself the emulator adds a space.
- An invocation's log is read to its end, which the worker marks. By itself the emulator waits 50 ms for the first line:
  on a busy machine it then finds the lines with the worker's next invocation, or never.
"""

import hashlib
import json
import os
import queue
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import ministack.app as app  # type: ignore[import-not-found]
from ministack.core import iam_evaluator, lambda_runtime  # type: ignore[import-not-found]
from ministack.core.responses import get_account_id  # type: ignore[import-not-found]

# "Grants permission to both publish and publish batch" (Amazon SNS Developer Guide, "Amazon SNS API permissions").
_IAM_ACTIONS = {"sns:PublishBatch": "sns:Publish"}
_enforce = iam_evaluator.enforce
_lock = Lock()
_recorded: set[str] = set()


def enforce_and_record(
    access_key_id: str, iam_action: str, service: str, region: str, resource_arn: str = "*", **context: Any
) -> Any:
    """What `enforce` decides: None if the request is allowed. Requests of the account itself are not recorded."""
    action = _IAM_ACTIONS.get(iam_action, iam_action)
    denied = _enforce(access_key_id, action, service, region, resource_arn=resource_arn, **context)
    principal = getattr(iam_evaluator.resolve_credential(access_key_id, get_account_id()), "principal_arn", "")
    if ":assumed-role/" in principal:
        decision = {"principal": principal, "action": action, "resource": resource_arn, "is_allowed": denied is None}
        _record(json.dumps(decision))
    return denied


def _record(line: str) -> None:
    with _lock:
        if line not in _recorded:
            _recorded.add(line)
            with open(os.environ["PERMISSIONS_LOG"], "a") as log:
                log.write(line + "\n")


def pin_origin_as_tls(source_ip: str, is_tls: bool) -> None:
    """The origin of the present request, which the conditions of policies refer to."""
    iam_evaluator.pin_request_origin(source_ip, True)


class UnpackedOnce(zipfile.ZipFile):
    """A function's or a layer's zip. What is unpacked is not written to, as on Lambda."""

    def _unpacked(self) -> Path:
        content = hashlib.sha256(Path(str(self.filename)).read_bytes()).hexdigest()
        return Path(tempfile.gettempdir(), "unpacked", content)

    def namelist(self) -> list[str]:
        """The names that are not checked yet: whether they lead out of the folder."""
        return [] if self._unpacked().exists() else super().namelist()

    def extractall(self, path: Any = None, members: Any = None, pwd: bytes | None = None) -> None:
        """Instead of the empty folder there is then a link to what is unpacked."""
        unpacked = self._unpacked()
        with _lock:
            if not unpacked.exists():
                super().extractall(partial := unpacked.with_suffix(".partial"))
                partial.rename(unpacked)
        Path(path).rmdir()
        Path(path).symlink_to(unpacked)


_app = app.app


async def joining_headers(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The emulator's ASGI application, given each header once. Cookies are joined by semicolons, as it does itself."""
    joined: dict[bytes, bytes] = {}
    for name, value in scope.get("headers", ()):
        separator = b"; " if name == b"cookie" else b","
        joined[name] = joined[name] + separator + value if name in joined else value
    await _app({**scope, "headers": list(joined.items())}, receive, send)


_END_OF_LOG = "the invocation's log ends here"
_LOG_SECONDS = 1
"""So long the next line of a worker's log is waited for: one that was killed does not say that it has ended."""


def marking_worker() -> str:
    """The emulator's worker, which says before each response that the invocation's log has ended."""
    loop, rest = lambda_runtime._PYTHON_WORKER_SCRIPT.rsplit("        _real_stdout.flush()\n\nrun()", 1)
    return f"{loop}        print({_END_OF_LOG!r}, file=sys.stderr)\n        _real_stdout.flush()\n\nrun(){rest}"


def log_to_its_end(worker: Any) -> str:
    """The lines of the invocation that has just ended."""
    lines: list[str] = []
    with suppress(queue.Empty):
        while not (line := worker._stderr_queue.get(timeout=_LOG_SECONDS)).endswith(_END_OF_LOG):
            lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    iam_evaluator.enforce = enforce_and_record
    app.app = joining_headers
    app.pin_request_origin = pin_origin_as_tls
    lambda_runtime.zipfile = SimpleNamespace(**{**vars(zipfile), "ZipFile": UnpackedOnce})
    lambda_runtime._PYTHON_WORKER_SCRIPT = marking_worker()
    lambda_runtime.Worker._drain_stderr = lambda_runtime.Worker._drain_stderr_bounded = log_to_its_end
    app.main()
