"""Pickles of plain data, read without the pickle machine: numbers, texts, lists, dicts and numeric arrays.

A pickle is a program for a stack machine, and the standard machine will call what the program names. This one knows the
instructions that plain data need and no others. The few names that numpy's pickles hold stand for functions of this
module, which check what they are given; all other names are refused before anything is done with them.
"""

from __future__ import annotations

import math
import mmap
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.data.source_files import need_file

_MAX_DIGITS = 20  # Enough for 64 bits.
_MAX_DIMENSIONS = 32
_MAX_NUMBERS = 2**40
_MAX_MARKS = 100
_LARGE = 4096  # Bytes from which a payload stays in the file.


def read_plain_pickle(path: str | Path) -> Any:
    """Read a pickle that holds plain data only; executes nothing.

    Protocols 0 to 5, of Python 2 (whose strings are given as bytes) and 3, numpy 1 and 2. Arrays stay on the disk
    where the file holds their bytes as they are (not in protocols 0 to 2 of Python 3), and are read-only.

    Args:
        path: the file.

    Returns:
        None, bool, int, str, bytes, list, tuple, dict (with keys of str, bytes or int), and numpy arrays of bool,
        integers or floating numbers, one within another.

    Raises:
        ValueError: names the file and the byte, for all other objects and for a file that is damaged.

    Example:
        >>> import pickle
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "plain").write_bytes(pickle.dumps({"labels": [3, 1]}))
        ...     read_plain_pickle(f"{folder}/plain")
        {'labels': [3, 1]}
    """
    path = need_file(path)
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ValueError(f"`{path}` is empty or cannot be read.") from error
    machine = _Machine(content)
    try:
        return machine.run()
    except _Refused as error:
        raise ValueError(f"`{path}` byte {machine.instruction}: {error}.") from error
    except IndexError as error:
        raise ValueError(f"`{path}` byte {machine.instruction}: the file ends early or is no pickle.") from error


class _Refused(Exception):  # noqa: N818
    """Why a pickle is not read."""


class _Arguments(tuple[Any, ...]):
    """A tuple that holds a name or a dtype, so that it is no data."""


class _Name:
    """A name that a pickle may hold, and what stands for it."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


class _Dtype:
    """A dtype whose byte order may still come."""

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "="

    def build(self, state: Any) -> None:
        # (version, byte order, subarray, names, fields, size, alignment, flags, ...)
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise _Refused("an array must have a plain numeric dtype")
        order = _text(state[1])
        if order not in ("<", ">", "|", "="):
            raise _Refused(f"the byte order of a dtype must be <, >, | or =, not {order!r:.20}")
        self.order = order

    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.code)


class _Array:
    """An array whose content may still come."""

    value: np.ndarray | None = None

    def build(self, state: Any) -> None:
        # (version, shape, dtype, is Fortran order, bytes)
        if not isinstance(state, tuple) or len(state) != 5:
            raise _Refused("an array must have a state of 5 parts")
        _, shape, dtype, fortran, content = state
        if not isinstance(fortran, int):
            raise _Refused("the order of an array must be a bool")
        self.value = _array(content, dtype, shape, "F" if fortran else "C")


def _array(content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(content, (bytes, memoryview)) or not isinstance(dtype, _Dtype):
        raise _Refused("an array must have bytes and a plain numeric dtype")
    if (
        not isinstance(shape, tuple)
        or len(shape) > _MAX_DIMENSIONS
        or not all(type(length) is int and length >= 0 for length in shape)
        or math.prod(max(length, 1) for length in shape) > _MAX_NUMBERS
    ):
        raise _Refused("the shape of an array must be a tuple of a few whole numbers from 0")
    layout = _text(order)
    if layout not in ("C", "F"):
        raise _Refused(f"the order of an array must be C or F, not {layout!r:.20}")
    kind = dtype.dtype()
    wanted = math.prod(shape) * kind.itemsize
    if wanted != len(content):
        raise _Refused(f"an array of shape {shape!r:.60} and dtype {kind} must have {wanted} bytes, not {len(content)}")
    return np.frombuffer(content, dtype=kind).reshape(shape, order=layout) if wanted else np.empty(shape, dtype=kind)


def _reconstruct(subtype: Any, shape: Any, code: Any) -> _Array:
    if subtype is not _NAMES["numpy", "ndarray"]:
        raise _Refused("an array must be a plain numpy.ndarray")
    return _Array()


def _dtype(code: Any, *_: Any) -> _Dtype:
    text = _text(code)
    if re.fullmatch(r"b1|[iu][1248]|f[248]", text) is None:
        raise _Refused(f"an array must have a plain numeric dtype, not {text!r:.20}")
    return _Dtype(text)


def _scalar(dtype: Any, content: Any) -> int:
    array = _array(content, dtype, (), "C")
    if array.dtype.kind not in "iub":
        raise _Refused("a number must be whole")
    return int(array)


def _encode(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or _text(encoding) not in ("latin1", "latin-1"):
        raise _Refused("bytes must be written as latin1 text")
    try:
        return text.encode("latin1")
    except UnicodeEncodeError as error:
        raise _Refused("bytes must be written as latin1 text") from error


def _no_bytes() -> bytes:
    return b""


def _ndarray(*_: Any) -> Any:
    raise _Refused("`numpy.ndarray` must not be called")


_NAMES = {
    ("numpy", "ndarray"): _Name(_ndarray),
    ("numpy", "dtype"): _Name(_dtype),
    ("_codecs", "encode"): _Name(_encode),
    ("__builtin__", "bytes"): _Name(_no_bytes),
    ("builtins", "bytes"): _Name(_no_bytes),
    ("numpy.core.multiarray", "_reconstruct"): _Name(_reconstruct),  # numpy 1
    ("numpy.core.multiarray", "scalar"): _Name(_scalar),
    ("numpy.core.numeric", "_frombuffer"): _Name(_array),
    ("numpy._core.multiarray", "_reconstruct"): _Name(_reconstruct),  # numpy 2
    ("numpy._core.multiarray", "scalar"): _Name(_scalar),
    ("numpy._core.numeric", "_frombuffer"): _Name(_array),
}


def _text(value: Any) -> str:
    """A short text, which Python 2 wrote as bytes."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    if not isinstance(value, str):
        raise _Refused(f"a text must stand here, not {type(value).__name__}")
    return value


def _finished(value: Any) -> Any:
    """An array in place of one that waited for its content; all else as it is."""
    if not isinstance(value, _Array):
        return value
    if value.value is None:
        raise _Refused("an array must have its content before it is used")
    return value.value


def _plain(value: Any) -> Any:
    """What data may hold."""
    if isinstance(value, (_Name, _Dtype, _Arguments)):
        raise _Refused("a name or a dtype is no data")
    return bytes(value) if isinstance(value, memoryview) else _finished(value)


_ESCAPES = {b"\\": b"\\", b"'": b"'", b'"': b'"', b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def _unescaped(line: bytes) -> bytes:
    """The string of which Python 2 wrote the ``repr``."""

    def meant(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        if len(escape) == 3:
            return bytes([int(escape[1:], 16)])
        if escape not in _ESCAPES:
            raise _Refused("a string has an unknown escape")
        return _ESCAPES[escape]

    if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
        raise _Refused("a string must stand in quotes")
    return re.sub(rb"\\(x[0-9a-fA-F]{2}|.|$)", meant, line[1:-1], flags=re.DOTALL)


class _Machine:
    """The stack, the memo, and an action for each instruction that is allowed."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content, self.view = content, memoryview(content)
        self.place = self.instruction = 0
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Execute up to the end, and return what is left on the stack."""
        view, actions = self.view, self._actions()
        while True:
            self.instruction = self.place
            code = view[self.place]
            self.place += 1
            action = actions.get(code)
            if action is not None:
                action()
            elif code == ord("."):
                break
            else:
                raise _Refused(f"instruction {bytes([code])!r} is not one of plain data")
        if len(self.stack) != 1 or self.marks:
            raise _Refused("one object must be left at the end")
        return _plain(self.stack[0])

    def _actions(self) -> dict[int, Callable[[], object]]:
        push, take = self._push, self._take
        named: dict[str, Callable[[], object]] = {
            "\x80": lambda: self._check_protocol(take(1)[0]),
            "\x95": lambda: take(8),  # How long a frame is; the instructions in it follow.
            "(": self._mark,
            "0": lambda: self.stack.pop(),
            "1": self._to_mark,
            "N": lambda: push(None),
            "\x88": lambda: push(True),
            "\x89": lambda: push(False),
            "I": lambda: push(self._digits(self._line())),
            "L": lambda: push(self._digits(self._line().removesuffix(b"L"))),
            "K": lambda: push(take(1)[0]),
            "M": lambda: push(self._number(2)),
            "J": lambda: push(self._number(4, signed=True)),
            "\x8a": lambda: push(self._number(self._short_length(), signed=True)),
            "S": lambda: push(_unescaped(self._line())),
            "V": lambda: push(self._decoded(self._line(), "raw-unicode-escape")),
            "]": lambda: push([]),
            ")": lambda: push(()),
            "}": lambda: push({}),
            "a": lambda: self._append([self.stack.pop()]),
            "e": lambda: self._append(self._to_mark()),
            "l": lambda: push([_plain(item) for item in self._to_mark()]),
            "t": lambda: self._tuple(self._to_mark()),
            "\x85": lambda: self._tuple(self._pop(1)),
            "\x86": lambda: self._tuple(self._pop(2)),
            "\x87": lambda: self._tuple(self._pop(3)),
            "s": lambda: self._set(self._pop(2)),
            "u": lambda: self._set(self._to_mark()),
            "d": self._dict,
            "p": lambda: self._remember(self._digits(self._line())),
            "q": lambda: self._remember(take(1)[0]),
            "r": lambda: self._remember(self._number(4)),
            "\x94": lambda: self._remember(len(self.memo)),
            "g": lambda: self._recall(self._digits(self._line())),
            "h": lambda: self._recall(take(1)[0]),
            "j": lambda: self._recall(self._number(4)),
            "c": lambda: self._name(self._line(), self._line()),
            "\x93": lambda: self._name(*self._pop(2)),
            "R": self._reduce,
            "b": self._build,
        }
        for code, width in {"U": 1, "T": 4, "C": 1, "B": 4, "\x8e": 8, "\x96": 8}.items():
            named[code] = lambda width=width: push(self._bytes(self._number(width)))
        for code, width in {"\x8c": 1, "X": 4, "\x8d": 8}.items():
            named[code] = lambda width=width: push(self._decoded(take(self._number(width)), "utf-8"))
        return {ord(code): action for code, action in named.items()}

    def _push(self, value: Any) -> None:
        self.stack.append(value)

    def _pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise IndexError
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def _mark(self) -> None:
        if len(self.marks) == _MAX_MARKS:
            raise _Refused(f"data must not be nested deeper than {_MAX_MARKS}")
        self.marks.append(self.stack)
        self.stack = []

    def _to_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def _take(self, count: int) -> memoryview:
        if count > len(self.view) - self.place:
            raise IndexError
        self.place += count
        return self.view[self.place - count : self.place]

    def _bytes(self, count: int) -> bytes | memoryview:
        return self._take(count) if count >= _LARGE else bytes(self._take(count))

    def _line(self) -> bytes:
        end = self.content.find(b"\n", self.place)
        if end < 0:
            raise IndexError
        line = bytes(self.view[self.place : end])
        self.place = end + 1
        return line

    def _number(self, width: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._take(width), "little", signed=signed)

    def _short_length(self) -> int:
        length = self._take(1)[0]
        if length > 9:  # Up to 64 bits and a sign.
            raise _Refused("a whole number must have at most 64 bits")
        return length

    def _digits(self, line: bytes) -> int | bool:
        if line in (b"00", b"01"):  # So is a bool written before protocol 2.
            return line == b"01"
        if re.fullmatch(rb"[-+]?[0-9]{1,%d}" % _MAX_DIGITS, line) is None:
            raise _Refused(f"a whole number must stand here, not {line[:20]!r}")
        return int(line)

    def _decoded(self, content: bytes | memoryview, encoding: str) -> str:
        try:
            return str(content, encoding, "surrogatepass" if encoding == "utf-8" else "strict")
        except UnicodeDecodeError as error:
            raise _Refused(f"a text is not {encoding}") from error

    def _check_protocol(self, protocol: int) -> None:
        if protocol > 5:
            raise _Refused(f"protocol {protocol} is not one of 0 to 5")

    def _append(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise _Refused("only a list can be appended to")
        self.stack[-1].extend(_plain(item) for item in items)

    def _tuple(self, items: list[Any]) -> None:
        if any(isinstance(item, (_Name, _Dtype, _Arguments)) for item in items):
            self.stack.append(_Arguments(_finished(item) for item in items))
        else:
            self.stack.append(tuple(_plain(item) for item in items))

    def _set(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise _Refused("only a dict takes keys and values, in pairs")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, (str, bytes, int)):
                raise _Refused(f"a key must be a text or a whole number, not {type(key).__name__}")
            target[key] = _plain(value)

    def _dict(self) -> None:
        items = self._to_mark()
        self.stack.append({})
        self._set(items)

    def _remember(self, number: int) -> None:
        self.memo[number] = self.stack[-1]

    def _recall(self, number: int) -> None:
        if number not in self.memo:
            raise _Refused(f"nothing is remembered as {number}")
        self.stack.append(self.memo[number])

    def _name(self, module: Any, name: Any) -> None:
        module, name = _text(module), _text(name)
        if (module, name) not in _NAMES:
            raise _Refused(f"{f'{module}.{name}'!r:.80} is named, which is no plain data")
        self.stack.append(_NAMES[module, name])

    def _reduce(self) -> None:
        call, arguments = self._pop(2)
        if not isinstance(call, _Name) or not isinstance(arguments, tuple):
            raise _Refused("only a known name can be called")
        try:
            self.stack.append(call.call(*arguments))
        except TypeError as error:
            raise _Refused("a name is called with other arguments than it takes") from error

    def _build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], (_Array, _Dtype)):
            raise _Refused("only an array or a dtype takes a state")
        self.stack[-1].build(state)
