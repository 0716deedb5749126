"""Names of accounts and keys: what people type, in one form."""

import re
import unicodedata

MAX_LENGTH = 200
# Unicode's category Zs: the no-break space of word processors, the wide space of East Asian input.
BLANKS = re.compile("[ \N{NO-BREAK SPACE}\u1680\u2000-\u200a\u202f\u205f\N{IDEOGRAPHIC SPACE}]+")
# Invisible, but Persian and Indic scripts are spelt with them, and an emoji of several parts is held together by them.
JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
# Unicode's categories of what they join: letters without case, marks, symbols. Between others they would be a way to
# give two names the same look.
JOINED = frozenset({"Lo", "Mn", "Mc", "So", "Sk"})


def tidied(name: str) -> str:
    """The form in which a name is kept: composed (NFC), and one ordinary space for each run of blanks."""
    return BLANKS.sub(" ", unicodedata.normalize("NFC", name)).strip()


def is_name(name: str) -> bool:
    """True for a tidied name of 1 to MAX_LENGTH printable characters."""
    seen = "".join(character for at, character in enumerate(name) if not _joins(name, at))
    return 0 < len(name) <= MAX_LENGTH and seen.isprintable()


def _joins(name: str, at: int) -> bool:
    neighbours = name[at - 1 : at] + name[at + 1 : at + 2]
    is_inside = len(neighbours) == 2
    return name[at] in JOINERS and is_inside and all(unicodedata.category(next_to) in JOINED for next_to in neighbours)
