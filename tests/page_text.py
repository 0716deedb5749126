"""Pages as a reader sees them."""

import re
from html import unescape


def plain(html: str) -> str:
    """The text of some HTML, each white space one blank."""
    without_tags = re.sub(r"<[^>]+>", " ", re.sub(r"</?bdi\b[^>]*>", "", html))  # a `bdi` stands within a sentence
    return re.sub(r"\s+", " ", unescape(without_tags))
