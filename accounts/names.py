"""Normalises and checks the names of accounts and keys."""

import re
import unicodedata

MAX_LENGTH = 200
# Unicode's category Zs, for example the no-break space of word processors and the wide space of East Asian input.
BLANKS = re.compile("[ \N{NO-BREAK SPACE}\u1680\u2000-\u200a\u202f\u205f\N{IDEOGRAPHIC SPACE}]+")
# These are invisible, but Persian and Indic scripts need them, and so do emoji of several parts.
JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
# Unicode's categories of the characters that JOINERS may join: letters without case, marks, symbols. Between other
# characters they would allow two names that look alike.
JOINED = frozenset({"Lo", "Mn", "Mc", "So", "Sk"})


def tidied(name: str) -> str:
    """Returns a name as it is stored: composed (NFC), with one ordinary space for each run of blanks."""
    return BLANKS.sub(" ", unicodedata.normalize("NFC", name)).strip()


def is_name(name: str) -> bool:
    """Tells whether a tidied name has 1 to MAX_LENGTH printable characters."""
    seen = "".join(character for at, character in enumerate(name) if not _joins(name, at))
    return 0 < len(name) <= MAX_LENGTH and seen.isprintable()


def _joins(name: str, at: int) -> bool:
    neighbours = name[at - 1 : at] + name[at + 1 : at + 2]
    is_inside = len(neighbours) == 2
    return name[at] in JOINERS and is_inside and all(unicodedata.category(next_to) in JOINED for next_to in neighbours)
