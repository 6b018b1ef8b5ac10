"""How results are published: JSON whose diff can be read, a table in a README, a picture for light and dark pages."""

import json
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

_STYLE = 'text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }'
_BEGIN, _END = "<!-- written with WRITE=1 -->\n", "<!-- end -->\n"


def as_lines(value: Any, depth: int = 2, margin: str = "\n") -> str:
    """JSON in which an object that holds others has a line for each of them, down to this depth."""
    is_nested = isinstance(value, dict) and any(isinstance(each, dict | list) for each in value.values())
    if depth == 0 or not is_nested:
        return json.dumps(value)
    lines = [f"{margin} {json.dumps(name)}: {as_lines(each, depth - 1, f'{margin} ')}" for name, each in value.items()]
    return "{" + ",".join(lines) + margin + "}"


def write_table(readme: Path, table: str) -> None:
    """Replace the table between the two markers."""
    before, rest = readme.read_text().split(_BEGIN)
    readme.write_text(f"{before}{_BEGIN}\n{table}\n{_END}{rest.split(_END)[1]}")


def svg_page(title: str, width: int, height: int, style: tuple[str, str], body: Iterable[str]) -> str:
    """A picture with its title at the top, as SVG.

    Args:
        style: CSS for a light page, and what a dark one has instead.
    """
    light = f"{_STYLE} .title {{ font-size: 15px; font-weight: 600; }} .page {{ fill: #ffffff; }}{style[0]}"
    dark = f"text {{ fill: #e6edf3; }} .page {{ fill: #0d1117; }}{style[1]}"
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
            f'<title id="title">{escape(title)}</title>',
            f"<style>{light}@media (prefers-color-scheme: dark) {{ {dark}}}</style>",
            f'<rect class="page" width="{width}" height="{height}"/>',
            f'<text class="title" x="16" y="27">{escape(title)}</text>',
            *body,
            "</svg>",
            "",
        ]
    )
