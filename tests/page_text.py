"""Converts pages to the text that a reader sees."""

import re
from html import unescape


def plain(html: str) -> str:
    """Returns the text of some HTML, with each run of white space as one blank."""
    without_tags = re.sub(r"<[^>]+>", " ", re.sub(r"</?bdi\b[^>]*>", "", html))  # a `bdi` is within a sentence
    return re.sub(r"\s+", " ", unescape(without_tags))
