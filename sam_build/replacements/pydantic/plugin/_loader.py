"""Shipped instead of pydantic's own, which searches all installed packages for plugins: none is shipped."""


def get_plugins() -> tuple[()]:
    return ()
