"""Digests of tensors where they lie: on a GPU nothing as large as a tensor is copied to the host.

Each word of eight bytes is mixed with its place, so that neither words that change places nor
pairs of changes cancel, and all are added up. Additions of integers wrap, and so have no order.
Knows layouts of no tensor but a contiguous one.
"""

import zlib

import torch

LARGE_BYTES = 2**20  # below it a copy is as fast as the kernels' launches
_WORD = 8
_WORDS = 2**20  # at once: some 40 MiB of the device while they are mixed
# The constants of splitmix64 (Steele, Lea, Flood 2014), as signed numbers of 64 bits.
_STEP, _FIRST, _SECOND = (
    each - 2**64 for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def digest_in_place(tensor: torch.Tensor) -> str:
    """Digest the bytes of a contiguous tensor on its device; equal bytes have equal digests."""
    content = tensor.flatten().view(torch.uint8)
    if content.storage_offset() % _WORD:
        content = content.clone()  # words begin at a multiple of their size
    whole = content.numel() // _WORD * _WORD
    words = content[:whole].view(torch.int64)
    parts = range(0, words.numel(), _WORDS)
    sums = [_mixed(words[first : first + _WORDS], first).sum() for first in parts]
    rest = bytes(content[whole:].tolist())
    said = torch.stack(sums).tolist() if sums else []
    return f"{zlib.crc32(repr((content.numel(), said, rest)).encode()):08x}"


def _mixed(words: torch.Tensor, first: int) -> torch.Tensor:
    """Mix each word with its place, by splitmix64's finisher."""
    places = torch.arange(first, first + words.numel(), dtype=torch.int64, device=words.device)
    mixed = places.add_(1).mul_(_STEP).bitwise_xor_(words)
    mixed.bitwise_xor_(_shifted(mixed, 30)).mul_(_FIRST)
    mixed.bitwise_xor_(_shifted(mixed, 27)).mul_(_SECOND)
    return mixed.bitwise_xor_(_shifted(mixed, 31))


def _shifted(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift words to the right as unsigned ones are: copies of the sign would cancel its bit."""
    return (words >> bits).bitwise_and_(2 ** (64 - bits) - 1)
