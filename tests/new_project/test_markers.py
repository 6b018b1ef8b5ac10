"""A text is cut down to the chosen parts: what a marker means, and which cannot be read."""

import pytest

from new_project.markers import BadMarker, cut

BOTH = """\
before
# optional: refunds, cancel
both
# end optional
after
"""
EITHER = BOTH.replace("refunds, cancel", "refunds | cancel")


@pytest.mark.parametrize(
    ("text", "chosen", "kept"),
    [
        (BOTH, {"refunds", "cancel"}, True),
        (BOTH, {"refunds"}, False),
        (BOTH, {"cancel", "webhook"}, False),
        (EITHER, {"refunds"}, True),
        (EITHER, {"cancel"}, True),
        (EITHER, {"webhook"}, False),
    ],
)
def test_a_comma_asks_for_all_parts_and_a_bar_for_one(text: str, chosen: set[str], kept: bool) -> None:
    """And in any case the markers are gone."""
    assert cut("a.py", text, chosen) == "before\nboth\nafter\n" if kept else "before\nafter\n"


def test_a_block_inside_a_block_needs_both_conditions() -> None:
    """It goes with the block around it."""
    text = "# optional: refunds\na\n# optional: webhook\nb\n# end optional\nc\n# end optional\n"
    assert cut("a.py", text, {"webhook"}) == ""
    assert cut("a.py", text, {"refunds"}) == "a\nc\n"
    assert cut("a.py", text, {"refunds", "webhook"}) == "a\nb\nc\n"


def test_one_line_is_marked_at_its_end() -> None:
    """The rest of the line stays as it is, another comment on it too."""
    text = "one: 1 # optional: fifo\ntwo: 2 # seconds # optional: due\n"
    assert cut("a.yaml", text, {"due"}) == "two: 2 # seconds\n"


def test_markdown_is_marked_in_its_own_comments() -> None:
    """A table's row can be, and the Python comment of a code example is no marker."""
    text = "| a |\n| b | <!-- optional: due -->\n<!-- optional: fifo -->\nc\n<!-- end optional -->\n# optional: x y\n"
    assert cut("a.md", text, set()) == "| a |\n# optional: x y\n"
    assert cut("a.md", text, {"due", "fifo"}) == "| a |\n| b |\nc\n# optional: x y\n"


def test_a_marker_may_be_a_banner() -> None:
    """As in the template, where it heads a section; around what is gone one blank line stays."""
    text = "a\n\n  # ==== optional: due ====\nb\n  # ==== end optional ====\n\nc\n"
    assert cut("template.yaml", text, set()) == "a\n\nc\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# optional: refund\na\n# end optional\n", "names of parts"),
        ("# optional: refunds, cancel | due\na\n# end optional\n", "names of parts"),
        ("# optional: refunds\na\n", "without an end"),
        ("a\n# end optional\n", "no beginning"),
        ("# optional refunds\na\n# end optional\n", "a.py:1: not a marker"),
        ("a  #optional: refunds\n", "a.py:1: not a marker"),
        ("a  # optional: refunds: why\n", "a.py:1: not a marker"),
    ],
)
def test_what_is_no_marker_is_refused_with_its_place(text: str, reason: str) -> None:
    """Else a part would stay, or go, without anybody seeing it."""
    with pytest.raises(BadMarker, match=reason):
        cut("a.py", text, {"refunds", "cancel", "due"})
