"""Pickles of plain data, read without the pickle machine: numbers, texts, lists, dicts and numeric arrays.

A pickle is a program for a stack machine, and the standard machine will call what the program names. This one knows the
instructions that plain data need and no others. The few names that numpy's pickles hold stand for functions of
`pickle_objects`, which check what they are given; all other names are refused before anything is done with them. Memory
is bounded by the size of the file: nothing that a pickle remembers is copied twice.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.data.files.text_files import need_file
from shortlist.data.formats.pickle_objects import (
    NAMES,
    Arguments,
    Array,
    Dtype,
    Name,
    Payload,
    Refused,
    as_text,
    finished,
    plain,
    unescaped,
)

_MAX_DIGITS = 20  # Enough for 64 bits.
_MAX_MARKS = 100
_MAX_INSTRUCTIONS = 2**24  # An instruction of one byte can make an object of a hundred; CIFAR needs half a million.
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
        stored = np.memmap(path, dtype=np.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise ValueError(f"`{path}` is empty or cannot be read.") from error
    machine = _Machine(content, stored)
    try:
        return machine.run()
    except Refused as error:
        raise ValueError(f"`{path}` byte {machine.instruction}: {error}.") from error
    except IndexError as error:
        raise ValueError(f"`{path}` byte {machine.instruction}: the file ends early or is no pickle.") from error


class _Machine:
    """The stack, the memo, and an action for each instruction that is allowed."""

    def __init__(self, content: mmap.mmap, stored: np.ndarray) -> None:
        self.content, self.view, self.stored = content, memoryview(content), stored
        self.place = self.instruction = 0
        self.encoded = 0  # bytes that were made of texts
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Execute up to the end, and return what is left on the stack."""
        view, actions = self.view, self._actions()
        for _ in range(_MAX_INSTRUCTIONS):
            self.instruction = self.place
            code = view[self.place]
            self.place += 1
            action = actions.get(code)
            if action is not None:
                action()
            elif code == ord("."):
                break
            else:
                raise Refused(f"instruction {bytes([code])!r} is not one of plain data")
        else:
            raise Refused(f"there must be at most {_MAX_INSTRUCTIONS} instructions")
        if len(self.stack) != 1 or self.marks:
            raise Refused("one object must be left at the end")
        return plain(self.stack[0])

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
            "S": lambda: push(unescaped(self._line())),
            "V": lambda: push(self._decoded(self._line(), "raw-unicode-escape")),
            "]": lambda: push([]),
            ")": lambda: push(()),
            "}": lambda: push({}),
            "a": lambda: self._append([self.stack.pop()]),
            "e": lambda: self._append(self._to_mark()),
            "l": lambda: push([plain(item) for item in self._to_mark()]),
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
            raise Refused(f"data must not be nested deeper than {_MAX_MARKS}")
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

    def _bytes(self, count: int) -> bytes | Payload:
        taken = self._take(count)
        return bytes(taken) if count < _LARGE else Payload(self.stored[self.place - count : self.place])

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
            raise Refused("a whole number must have at most 64 bits")
        return length

    def _digits(self, line: bytes) -> int | bool:
        if line in (b"00", b"01"):  # So is a bool written before protocol 2.
            return line == b"01"
        if re.fullmatch(rb"[-+]?[0-9]{1,%d}" % _MAX_DIGITS, line) is None:
            raise Refused(f"a whole number must stand here, not {line[:20]!r}")
        return int(line)

    def _decoded(self, content: bytes | memoryview, encoding: str) -> str:
        try:
            return str(content, encoding, "surrogatepass" if encoding == "utf-8" else "strict")
        except UnicodeDecodeError as error:
            raise Refused(f"a text is not {encoding}") from error

    def _check_protocol(self, protocol: int) -> None:
        if protocol > 5:
            raise Refused(f"protocol {protocol} is not one of 0 to 5")

    def _append(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise Refused("only a list can be appended to")
        self.stack[-1].extend(plain(item) for item in items)

    def _tuple(self, items: list[Any]) -> None:
        if any(isinstance(item, (Name, Dtype, Arguments)) for item in items):
            self.stack.append(Arguments(finished(item) for item in items))
        else:
            self.stack.append(tuple(plain(item) for item in items))

    def _set(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise Refused("only a dict takes keys and values, in pairs")
        for key, value in zip(map(plain, items[::2]), items[1::2], strict=True):
            if not isinstance(key, (str, bytes, int)):
                raise Refused(f"a key must be a text or a whole number, not {type(key).__name__}")
            target[key] = plain(value)

    def _dict(self) -> None:
        items = self._to_mark()
        self.stack.append({})
        self._set(items)

    def _remember(self, number: int) -> None:
        self.memo[number] = self.stack[-1]

    def _recall(self, number: int) -> None:
        if number not in self.memo:
            raise Refused(f"nothing is remembered as {number}")
        self.stack.append(self.memo[number])

    def _name(self, module: Any, name: Any) -> None:
        module, name = as_text(module), as_text(name)
        if (module, name) not in NAMES:
            raise Refused(f"{f'{module}.{name}'!r:.80} is named, which is no plain data")
        self.stack.append(NAMES[module, name])

    def _reduce(self) -> None:
        call, arguments = self._pop(2)
        if not isinstance(call, Name) or not isinstance(arguments, tuple):
            raise Refused("only a known name can be called")
        try:
            made = call.call(*arguments)
        except TypeError as error:
            raise Refused("a name is called with other arguments than it takes") from error
        if isinstance(made, bytes):
            # Each text of a true pickle becomes bytes once, and takes at least as many in the file.
            self.encoded += len(made)
            if self.encoded > len(self.view):
                raise Refused("texts must become no more bytes than the file has")
        self.stack.append(made)

    def _build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], (Array, Dtype)):
            raise Refused("only an array or a dtype takes a state")
        self.stack[-1].build(state)
