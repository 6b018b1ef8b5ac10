"""Shipped instead of botocore's own: on Lambda nobody calls help() on a client's methods."""


def _none(**_: object) -> str:
    return ""


ClientMethodDocstring = PaginatorDocstring = WaiterDocstring = _none
