"""Goes through pages, from the place where an earlier run stopped and as long as there is time."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol


class ReadPage[Part, Item, Cursor](Protocol):
    """Returns a page of a part, such as a shard or a day, and the cursor of the next page; None at the part's end."""

    def __call__(self, part: Part, /, *, after: Cursor | None) -> tuple[Sequence[Item], Cursor | None]: ...


def paged[Part, Item, Cursor](
    parts: Sequence[Part],
    read: ReadPage[Part, Item, Cursor],
    start: tuple[int, Cursor | None] = (0, None),
    *,
    has_time: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[Sequence[Item], tuple[int, Cursor | None]]]:
    """Yields each page, and the place where the next one starts: the index of its part, and the cursor in that.

    A caller that has handled a page may store that place: a later run starts there. Once all parts are read, the index
    is their number.
    """
    part, after = start
    while part < len(parts) and has_time():
        items, after = read(parts[part], after=after)
        part += after is None
        yield items, (part, after)
