"""Pickles of every writer: Python 2 and 3, all protocols, numpy 1 and 2."""

import pickle
import struct

import numpy as np
import pytest


class Python2:
    """Writes pickles as Python 2 did: protocol 0 or 2, strings of bytes, numpy 1."""

    def __init__(self, protocol):
        self.protocol = protocol

    def dumps(self, value):
        return (b"\x80\x02" if self.protocol == 2 else b"") + self._write(value) + b"."

    def _write(self, value):
        binary = self.protocol == 2
        if isinstance(value, dict):
            items = b"".join(self._write(key) + self._write(item) + b"s" for key, item in value.items())
            return (b"}" if binary else b"(d") + items
        if isinstance(value, list):
            items = b"".join(self._write(item) + b"a" for item in value)
            return (b"]" if binary else b"(l") + items
        if isinstance(value, tuple):
            return b"(" + b"".join(map(self._write, value)) + b"t"
        if value is None:
            return b"N"
        if isinstance(value, bool):
            return (b"\x88" if value else b"\x89") if binary else (b"I01\n" if value else b"I00\n")
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value) if binary else b"I%d\n" % value
        if isinstance(value, bytes):
            return b"T" + struct.pack("<i", len(value)) + value if binary else b"S" + repr(value)[1:].encode() + b"\n"
        assert isinstance(value, np.ndarray)
        dtype = b"cnumpy\ndtype\n" + self._write((value.dtype.str[1:].encode(), 0, 1)) + b"R"
        dtype += self._write((3, value.dtype.str[:1].encode(), None, None, None, -1, -1, 0)) + b"b"
        state = b"(" + self._write(1) + self._write(value.shape) + dtype + self._write(False)
        array = (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + self._write((0,)) + self._write(b"b") + b"tR"
        )
        return array + state + self._write(value.tobytes()) + b"tb"


def as_bytes(value):
    """The same with strings of bytes, as Python 2 has them."""
    if isinstance(value, dict):
        return {as_bytes(key): as_bytes(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_bytes(item) for item in value]
    return value.encode() if isinstance(value, str) else value


WRITERS = {f"python 3, protocol {protocol}": lambda v, p=protocol: pickle.dumps(v, protocol=p) for protocol in range(6)}
WRITERS |= {
    f"python 2, protocol {protocol}": lambda v, p=protocol: Python2(p).dumps(as_bytes(v)) for protocol in (0, 2)
}
WRITERS |= {
    "numpy 1": lambda v: pickle.dumps(v, protocol=3).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
}
each_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
