"""Replaces a logger or a metrics counter where a test ignores what they receive."""

from typing import Any


class _Silent:
    def __call__(self, *_: object, **__: object) -> None:
        pass

    info = warning = error = exception = thread_safe_append_keys = thread_safe_clear_keys = __call__


SILENT: Any = _Silent()
