"""Pages as a reader sees them."""

import re
from html import unescape


def plain(html: str) -> str:
    """The text of some HTML, each white space one blank."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))
