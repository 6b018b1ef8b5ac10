"""Goes through pages, from the place where an earlier run stopped and as long as there is time."""

from collections.abc import Callable, Iterator, Sequence


def paged[Part, Item, Cursor](
    parts: Sequence[Part],
    read: Callable[..., tuple[Sequence[Item], Cursor | None]],
    start: tuple[int, Cursor | None] = (0, None),
    *,
    has_time: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[Sequence[Item], tuple[int, Cursor | None]]]:
    """Yields each page, and the place where the next one starts: the index of its part, and the cursor in that.

    A later run may start at that place. Once all parts are read, the index is their number.

    Args:
        read: takes a part, such as a shard, and `after`, a cursor; returns a page and the cursor of the next one, None
            at the part's end.
    """
    part, after = start
    while part < len(parts) and has_time():
        items, after = read(parts[part], after=after)
        part += after is None
        yield items, (part, after)
