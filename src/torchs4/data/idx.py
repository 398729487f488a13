"""The IDX format, in which MNIST and its relatives are published: a header of sizes, then plain numbers."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np
import torch

if TYPE_CHECKING:
    from jaxtyping import Shaped
    from torch import Tensor

# The third byte of a file names the type of its numbers, which are big-endian.
_NUMBER_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: str | Path) -> Shaped[Tensor, "..."]:
    """The array in an IDX file, gzipped or not, with the type and shape that its header gives."""
    path = Path(path)
    with path.open("rb") as plain:
        gzipped = plain.read(2) == _GZIP_MAGIC
        plain.seek(0)
        if not gzipped:
            return _read_array(plain, path)
        try:
            with gzip.open(plain) as unpacked:
                # Reading past the numbers makes gzip check the sum at the end of the file.
                return _read_array(cast("BinaryIO", unpacked), path)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is a damaged or truncated gzip file ({error}).") from error


def _read_array(file: BinaryIO, path: Path) -> Tensor:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _NUMBER_TYPES or magic[3] == 0:
        raise ValueError(
            f"{path} is not an IDX file: it starts with {magic.hex(' ') or 'nothing'}; expected 00 00, a "
            f"type of numbers (08, 09, 0b, 0c, 0d or 0e) and a number of axes."
        )
    axes = magic[3]
    header = file.read(4 * axes)
    if len(header) < 4 * axes:
        raise ValueError(f"{path} is truncated: its header should give the sizes of {axes} axes.")
    shape = struct.unpack(f">{axes}I", header)
    dtype = np.dtype(_NUMBER_TYPES[magic[2]])
    expected = math.prod(shape) * dtype.itemsize
    numbers = _read_at_most(file, expected + 1)
    if len(numbers) != expected:
        received = "more" if len(numbers) > expected else f"{len(numbers):,}"
        raise ValueError(
            f"{path} is truncated or has surplus bytes: its header promises {expected:,} bytes of numbers "
            f"for the shape {shape}, and it holds {received}."
        )
    # frombuffer is read-only and big-endian; torch wants neither.
    return torch.from_numpy(np.frombuffer(numbers, dtype).reshape(shape).astype(dtype.newbyteorder("=")))


def _read_at_most(file: BinaryIO, size: int) -> bytes:
    """Up to `size` bytes, in pieces: a damaged header may promise more than memory holds."""
    pieces = []
    while size > 0 and (piece := file.read(min(size, 2**20))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
