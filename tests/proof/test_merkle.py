"""The tree is that of RFC 6962: its published vectors hold, and each proof verifies for other implementations too."""

from collections.abc import Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tlog_scales.tlog import ConsistencyProof, InclusionProof, InclusionProofInvalid

from proof import merkle

# The test data of the reference implementations (certificate-transparency-go, transparency-dev/merkle).
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
INCLUSION = {  # by index and size
    (0, 1): (),
    (0, 8): (
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ),
    (5, 8): (
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ),
    (2, 3): ("fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",),
    (1, 5): (
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ),
}
CONSISTENCY = {  # by the old and the new size
    (1, 1): (),
    (1, 8): (
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ),
    (6, 8): (
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ),
    (2, 5): (
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ),
}
SIZES = st.integers(1, 700)


def naive_root(hashes: Sequence[bytes]) -> bytes:
    """Follows the definition of RFC 6962, section 2.1, word for word."""
    if not hashes:
        return sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    left = 1
    while 2 * left < len(hashes):
        left *= 2
    return sha256(b"\x01" + naive_root(hashes[:left]) + naive_root(hashes[left:])).digest()


def hashes_of(size: int) -> list[bytes]:
    return [merkle.leaf_hash(b"%d" % number) for number in range(size)]


def tree_of(hashes: Sequence[bytes], batch: int = 10**9) -> merkle.ReadTile:
    """Appends in batches, and returns what reads the tiles; as in the database, a tile that is missing is an error."""
    tiles: dict[tuple[int, int], bytes] = {}

    def read_tile(level: int, number: int) -> bytes:
        return tiles[level, number]

    for begin in range(0, len(hashes), batch):
        tree = merkle.Appended(begin, read_tile)
        for each in hashes[begin : begin + batch]:
            tree.add(each)
        tiles.update(tree.tiles)
    return read_tile


def in_hex(path: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(each.hex() for each in path)


@pytest.mark.parametrize("size", [3, 255, 256, 300])
def test_leaves_that_another_process_has_added_meanwhile_do_not_count(size: int) -> None:
    """The size of the tree is read before its tiles, which may have grown in between."""
    hashes = [merkle.leaf_hash(bytes([number % 256, number // 256])) for number in range(1000)]
    grown, other = tree_of(hashes), merkle.leaf_hash(b"other")
    tree = merkle.Appended(size, grown)
    for _ in range(600):
        tree.add(other)
    expected = tree_of([*hashes[:size], *[other] * 600])
    assert merkle.root(tree.size, tree.read_tile) == merkle.root(tree.size, expected)


def test_the_published_vectors_hold() -> None:
    hashes = [merkle.leaf_hash(leaf) for leaf in LEAVES]
    read_tile = tree_of(hashes)
    assert tuple(merkle.root(size, read_tile).hex() for size in range(9)) == ROOTS
    assert {of: in_hex(merkle.inclusion_proof(*of, read_tile)) for of in INCLUSION} == INCLUSION
    assert {of: in_hex(merkle.consistency_proof(*of, read_tile)) for of in CONSISTENCY} == CONSISTENCY


@given(size=SIZES, batch=st.integers(1, 300))
def test_a_tree_that_grew_in_batches_is_the_tree_of_its_leaves(size: int, batch: int) -> None:
    hashes = hashes_of(size)
    assert merkle.root(size, tree_of(hashes, batch)) == naive_root(hashes)


@given(size=SIZES, data=st.data())
def test_another_implementation_accepts_each_proof(size: int, data: st.DataObject) -> None:
    hashes = hashes_of(size)
    read_tile = tree_of(hashes)
    index = data.draw(st.integers(0, size - 1))
    old = data.draw(st.integers(0, size))
    path = merkle.inclusion_proof(index, size, read_tile)
    InclusionProof(index, size, path).check(hashes[index], naive_root(hashes))
    assert merkle.root_of_proof(index, size, hashes[index], path) == naive_root(hashes)
    growth = merkle.consistency_proof(old, size, read_tile)
    ConsistencyProof(old, size, growth).check(naive_root(hashes[:old]), naive_root(hashes))


@given(size=st.integers(2, 300), data=st.data())
def test_a_changed_proof_leads_to_no_root_or_to_another_one(size: int, data: st.DataObject) -> None:
    hashes = hashes_of(size)
    index = data.draw(st.integers(0, size - 1))
    path = merkle.inclusion_proof(index, size, tree_of(hashes))
    at = data.draw(st.integers(0, len(path) - 1))
    changed = {
        "another hash": [*path[:at], bytes(32), *path[at + 1 :]],
        "one too few": [*path[:at], *path[at + 1 :]],
        "one too many": [*path, bytes(32)],
    }
    root = naive_root(hashes)
    for each in changed.values():
        assert merkle.root_of_proof(index, size, hashes[index], each) != root
    other = data.draw(st.integers(0, size - 1).filter(lambda number: number != index))
    assert merkle.root_of_proof(other, size, hashes[index], path) != root
    with pytest.raises(InclusionProofInvalid):
        InclusionProof(index, size, changed["one too many"]).check(hashes[index], root)


@pytest.mark.parametrize("index", [-1, 8, 9])
def test_an_index_outside_the_tree_has_no_root(index: int) -> None:
    assert merkle.root_of_proof(index, 8, hashes_of(1)[0], [bytes(32)] * 3) is None


@pytest.mark.parametrize("size", [255, 256, 257, 65535, 65536, 65537])
def test_tiles_fill_at_256_hashes(size: int) -> None:
    hashes = hashes_of(size)
    read_tile = tree_of(hashes, 10_000)
    widths = [len(read_tile(0, size // 256 if size % 256 else size // 256 - 1)) // 32]
    assert widths == [size % 256 or 256]
    full, level = size // 256, 1
    while full:  # a tile of a higher level has the root of each full tile below
        tile = read_tile(level, (full - 1) // 256)
        assert len(tile) // 32 == (full - 1) % 256 + 1
        assert tile[-32:] == naive_root(hashes[(full - 1) * 256**level : full * 256**level])
        full, level = full // 256, level + 1
    with pytest.raises(KeyError):
        read_tile(level, 0)
    root = naive_root(hashes)
    assert merkle.root(size, read_tile) == root
    for index in (0, 254, size - 1):
        InclusionProof(index, size, merkle.inclusion_proof(index, size, read_tile)).check(hashes[index], root)
    for old in (1, 254, 255, size - 1):
        proof = merkle.consistency_proof(old, size, read_tile)
        ConsistencyProof(old, size, proof).check(naive_root(hashes[:old]), root)
