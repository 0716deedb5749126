"""Computes the hashes and proofs of a Merkle tree (RFC 6962, section 2.1) from its tiles (c2sp.org/tlog-tiles).

A tile has up to 256 hashes of 32 bytes. Those of level 0 are the hashes of the leaves. Each hash of a higher level is
the root of a full tile of the level below.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256

HASH_BYTES = 32
TILE_HEIGHT = 8
TILE_WIDTH = 2**TILE_HEIGHT
EMPTY_ROOT = sha256(b"").digest()

# Returns the hashes of a tile, by its level and number, as one string of bytes.
ReadTile = Callable[[int, int], bytes]


def leaf_hash(leaf: bytes) -> bytes:
    """Returns the hash of a leaf, 32 bytes."""
    return sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Returns the hash of a node above two hashes."""
    return sha256(b"\x01" + left + right).digest()


def tile_root(tile: bytes) -> bytes:
    """Returns the root of the hashes of a tile, whose number is a power of two."""
    hashes = split(tile)
    while len(hashes) > 1:
        hashes = [node_hash(left, right) for left, right in zip(hashes[::2], hashes[1::2], strict=True)]
    return hashes[0]


def split(hashes: bytes) -> list[bytes]:
    """Splits a string of hashes."""
    return [hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)]


def root(size: int, read_tile: ReadTile) -> bytes:
    """Returns the root of the tree of the first `size` leaves."""
    return _Tree(read_tile).hash_of(0, size) if size else EMPTY_ROOT


def inclusion_proof(index: int, size: int, read_tile: ReadTile) -> list[bytes]:
    """Returns the hashes that prove that a leaf is in the tree of `size` leaves, the leaf's sibling first."""
    tree, begin, end, path = _Tree(read_tile), 0, size, []
    while end - begin > 1:
        middle = begin + _left_size(end - begin)
        if index < middle:
            path.append(tree.hash_of(middle, end))
            end = middle
        else:
            path.append(tree.hash_of(begin, middle))
            begin = middle
    return path[::-1]


def consistency_proof(old: int, new: int, read_tile: ReadTile) -> list[bytes]:
    """Returns the hashes that prove that the tree of `new` leaves begins with the tree of `old` leaves.

    There are none if `old` is zero or the same as `new`, since nothing has to be proved.
    """
    if old in (0, new):
        return []
    tree, begin, end, path = _Tree(read_tile), 0, new, []
    while old != end:
        middle = begin + _left_size(end - begin)
        if old <= middle:
            path.append(tree.hash_of(middle, end))
            end = middle
        else:
            path.append(tree.hash_of(begin, middle))
            begin = middle
    if begin:  # the verifier knows the root of the old tree, but not the root of a part of it
        path.append(tree.hash_of(begin, end))
    return path[::-1]


def root_of_proof(index: int, size: int, leaf: bytes, path: Sequence[bytes]) -> bytes | None:
    """Returns the root that an inclusion proof leads to (RFC 9162, section 2.1.3.2).

    `leaf` is the hash of the leaf. Returns None if the proof has the wrong length for its index and size.
    """
    node, last, found = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return None
        if node & 1 or node == last:
            found = node_hash(sibling, found)
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            found = node_hash(found, sibling)
        node, last = node >> 1, last >> 1
    return found if last == 0 and 0 <= index < size else None


class Appended:
    """Adds leaves to a tree, and collects the tiles that this changes in `tiles`, by level and number."""

    def __init__(self, size: int, read_tile: ReadTile) -> None:
        self.size = size
        self._read_tile = read_tile
        self.tiles: dict[tuple[int, int], bytes] = {}

    def add(self, leaf: bytes) -> None:
        """Adds the hash of a leaf."""
        level, index, found = 0, self.size, leaf
        while True:
            number, position = divmod(index, TILE_WIDTH)
            # Another process may have added leaves since the size was read: only those before it count.
            tile = (self.read_tile(level, number)[: position * HASH_BYTES] if position else b"") + found
            self.tiles[level, number] = tile
            if position + 1 < TILE_WIDTH:
                break
            level, index, found = level + 1, number, tile_root(tile)
        self.size += 1

    def read_tile(self, level: int, number: int) -> bytes:
        """Returns a tile with what was added to it."""
        changed = self.tiles.get((level, number))
        return self._read_tile(level, number) if changed is None else changed


class _Tree:
    """Reads the hashes of ranges of leaves, and each tile only once."""

    def __init__(self, read_tile: ReadTile) -> None:
        self._read_tile = read_tile
        self._tiles: dict[tuple[int, int], bytes] = {}

    def hash_of(self, begin: int, end: int) -> bytes:
        """Returns the hash above the leaves from `begin` up to `end`, which is excluded.

        `begin` is a multiple of the largest power of two that is not larger than the number of leaves.
        """
        count = end - begin
        if count & (count - 1):
            middle = begin + _left_size(count)
            return node_hash(self.hash_of(begin, middle), self.hash_of(middle, end))
        level = (count.bit_length() - 1) // TILE_HEIGHT
        width = count >> level * TILE_HEIGHT  # in hashes of the tile; a power of two below 256
        number, position = divmod(begin >> level * TILE_HEIGHT, TILE_WIDTH)
        if (level, number) not in self._tiles:
            self._tiles[level, number] = self._read_tile(level, number)
        return tile_root(self._tiles[level, number][position * HASH_BYTES : (position + width) * HASH_BYTES])


def _left_size(count: int) -> int:
    """Returns the number of leaves below the left child: the largest power of two below `count`."""
    return 1 << (count - 1).bit_length() - 1
