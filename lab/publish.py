"""How results are published: a table in a README."""

from pathlib import Path

_BEGIN, _END = "<!-- written with WRITE=1 -->\n", "<!-- end -->\n"


def write_table(readme: Path, table: str) -> None:
    """Replace the table between the two markers."""
    before, rest = readme.read_text().split(_BEGIN)
    readme.write_text(f"{before}{_BEGIN}\n{table}\n{_END}{rest.split(_END)[1]}")
