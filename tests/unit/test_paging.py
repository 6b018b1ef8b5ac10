"""paged: every page of every part, once, however often a run stops and the next continues."""

from itertools import islice

from onecharge.runtime.paging import paged

PARTS = ["a", "b", "c"]
PAGES = {"a": ["a0", "a1", "a2"], "b": [""], "c": ["c0", "c1"]}
"""A part without items has one page, too."""


def read(part: str, /, *, after: int | None) -> tuple[str, int | None]:
    number = 0 if after is None else after
    return PAGES[part][number], number + 1 if number + 1 < len(PAGES[part]) else None


def test_a_run_that_starts_at_a_place_reads_what_is_left() -> None:
    """Wherever the one before has stopped; the last place is behind all parts, and from there nothing is read."""
    pages = list(paged(PARTS, read))
    assert [items for items, _ in pages] == ["a0", "a1", "a2", "", "c0", "c1"]
    for number, (_, place) in enumerate(pages, start=1):
        assert list(paged(PARTS, read, place)) == pages[number:]
    assert pages[-1][1] == (len(PARTS), None)


def test_no_page_is_read_without_time() -> None:
    """With time for n pages, these are the first n; not one without any."""
    for number in range(7):
        left = iter([True] * number + [False])
        first = list(islice(paged(PARTS, read), number))
        assert list(paged(PARTS, read, has_time=left.__next__)) == first
