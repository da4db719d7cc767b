"""Parts of pages that a program writes, between `<!-- generated: name -->` and `<!-- end -->`."""

import re
from collections.abc import Mapping

PART = re.compile(r"(?P<begin><!-- generated: (?P<name>[\w-]+) -->\n)(?P<text>.*?)(?P<end><!-- end -->)", re.DOTALL)


def filled(text: str, parts: Mapping[str, str]) -> str:
    """Write parts into a page; what has none keeps its text."""
    return PART.sub(
        lambda found: f"{found['begin']}{parts[found['name']]}\n{found['end']}" if found["name"] in parts else found[0],
        text,
    )
