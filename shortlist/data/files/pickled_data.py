"""Pickled dicts of arrays, numbers and texts, read without unpickling: nothing that a file names is ever called.

A pickle is a program for a stack machine. This reader follows the opcodes that plain data need, with the argument
parsers of `pickletools`, and refuses all others. Names (of numpy's reconstructors) and calls stay symbols; only
`resolve` gives a meaning to the few that stand for arrays, numbers and bytes, and checks sizes before anything is
allocated. Large contents stay in the file, and no content is copied twice, so memory is bounded by the file's size.
"""

from __future__ import annotations

import codecs
import math
import mmap
import pickletools
import re
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.data.files.text_files import need_file
from shortlist.errors import InputError, reason
from shortlist.limits import limit

_MAPPED_BYTES = 4096  # Contents from this size on stay in the file.
_MAX_ENCODED = 256  # Characters of an item of a list: each may encode the same text anew.
_ESCAPE = re.compile(rb"\\(?:[\\'\"nrt]|x[0-9a-fA-F]{2})")
_BY_CODE = {opcode.code: opcode for opcode in pickletools.opcodes}
_NAMES = {"_codecs encode", "__builtin__ bytes", "builtins bytes", "numpy ndarray", "numpy dtype"}
for _core in ("numpy.core", "numpy._core"):
    _NAMES |= {f"{_core}.multiarray _reconstruct", f"{_core}.multiarray scalar", f"{_core}.numeric _frombuffer"}

_LITERALS = {"INT", "LONG", "LONG1", "BININT", "BININT1", "BININT2"}
_LITERALS |= {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_CONTENTS = {"STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_PUTS, _GETS = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), ("GET", "BINGET", "LONG_BINGET")
_POPPED = {"APPEND": 1, "SETITEM": 2, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "STACK_GLOBAL": 2, "REDUCE": 2, "BUILD": 1}
_POPPED |= {"POP": 1}
_MARKED = {"APPENDS", "SETITEMS", "LIST", "TUPLE", "DICT", "POP_MARK"}
_OPCODES = {*_LITERALS, *_CONTENTS, *_CONSTANTS, *_EMPTY, *_PUTS, *_GETS, *_POPPED, *_MARKED}
_OPCODES |= {"GLOBAL", "MARK", "PROTO", "FRAME"}


class _Name(str):
    """A name in a pickle; never looked up."""


class _Call:
    """A call that a pickle asks for, with the state that follows; never made."""

    def __init__(self, name: _Name, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments = name, arguments
        self.state: tuple[Any, ...] | None = None
        self.value: Any = None  # what `resolve` found, so that a call is resolved once however often it is used


def read_pickled_dict(path: str | Path) -> dict[Any, Any]:
    """Read a pickle of a dict; executes nothing.

    Protocols 0 to 5, of Python 2 (whose strings are given as bytes) and 3, numpy 1 and 2.

    Args:
        path: the file.

    Returns:
        The dict, with keys of str, bytes or int; pass its values to `resolve`.

    Raises:
        InputError: names the file and the byte of an opcode that plain data do not need, or where the file is damaged.
    """
    path = need_file(path)
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        machine = _Machine(content, np.memmap(path, dtype=np.uint8, mode="r"))
    except (OSError, ValueError) as error:
        raise InputError(f"`{path}` is empty or cannot be read.") from error
    try:
        found = machine.run()
    except IndexError as error:
        raise InputError(f"`{path}` byte {machine.opcode_at}: the file ends early or is no pickle.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}` byte {machine.opcode_at}: {reason(error)}.") from error
    if not isinstance(found, dict):
        raise InputError(f"`{path}` must hold a dict; got {type(found).__name__.strip('_').lower()}.")
    return found


def resolve(value: Any, where: str) -> Any:
    """The data that a value of a pickled dict stands for: a number, a text, bytes, a list or a numpy array.

    Arrays are read-only and stay in the file where it holds their bytes as they are (protocols 0 to 2 of Python 3
    encode them).

    Raises:
        InputError: for a value that is none of these; ``where`` names it.
    """
    try:
        if not isinstance(value, list):
            return _resolved(value)
        for item in value:
            if isinstance(item, _Call) and any(
                isinstance(text, str) and len(text) > _MAX_ENCODED for text in item.arguments
            ):
                raise ValueError(f"an item of a list must have at most {_MAX_ENCODED} characters")
        return [_resolved(item) for item in value]
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{where} cannot be read: {reason(error)}.") from error


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self, content: Any, stored: np.ndarray) -> None:
        self.content, self.stored = content, stored
        self.opcode_at = 0
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        most = limit("opcodes")  # One byte can make an object of a hundred; CIFAR needs half a million opcodes.
        for _ in range(most):
            self.opcode_at = self.content.tell()
            opcode = _BY_CODE.get(self.content.read(1).decode("latin-1"))
            if opcode is None:
                raise IndexError
            if opcode.name == "STOP":
                if len(self.stack) != 1 or self.marks:
                    raise ValueError("one object must be left at the end")
                return self.stack[0]
            if opcode.name not in _OPCODES:
                raise ValueError(f"the opcode {opcode.name} is not one of plain data")
            self._execute(opcode.name, self._argument(opcode))
        raise ValueError(f"there must be at most {most} opcodes")

    def _argument(self, opcode: Any) -> Any:
        if opcode.name in ("STRING", "GLOBAL"):  # pickletools would insist on ASCII.
            lines: list[Any] = [
                pickletools.read_stringnl(self.content, decode=False, stripquotes=opcode.name == "STRING")
                for _ in range(1 if opcode.name == "STRING" else 2)
            ]
            if opcode.name == "GLOBAL":
                return b" ".join(lines).decode("latin-1")
            if b"\\" in _ESCAPE.sub(b"", lines[0]):
                raise ValueError("a string has an unknown escape")
            return codecs.escape_decode(lines[0])[0]
        found: Any = None if opcode.arg is None else opcode.arg.reader(self.content)
        return found.encode("latin-1") if opcode.name in ("BINSTRING", "SHORT_BINSTRING") else found

    def _execute(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _CONTENTS:
            end = self.content.tell()
            as_stored = name != "STRING" and len(argument) >= _MAPPED_BYTES
            stack.append(self.stored[end - len(argument) : end] if as_stored else bytes(argument))
        elif name in _PUTS:
            self.memo[len(self.memo) if argument is None else argument] = stack[-1]
        elif name in _GETS:
            if argument not in self.memo:
                raise ValueError(f"the memo has no entry {argument}")
            stack.append(self.memo[argument])
        elif name == "GLOBAL":
            stack.append(_known_name(argument))
        elif name == "MARK":
            self.marks.append(stack)
            self.stack = []
        elif name == "PROTO" and argument > 5:
            raise ValueError(f"the protocol must be one of 0 to 5; got {argument}")
        elif name in _MARKED:
            self.stack = self.marks.pop()
            self._combine(name, stack)
        elif name in _POPPED:
            if len(stack) < _POPPED[name]:
                raise IndexError
            items = stack[-_POPPED[name] :]
            del stack[-_POPPED[name] :]
            self._combine(name, items)

    def _combine(self, name: str, items: list[Any]) -> None:
        """Combine the items that an opcode took from the stack."""
        stack = self.stack
        if name in ("APPEND", "APPENDS"):
            _expect(stack[-1], list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            _set_items(_expect(stack[-1], dict), items)
        elif name == "BUILD":
            _expect(stack[-1], _Call).state = _expect(items[0], tuple)
        elif name == "DICT":
            stack.append({})
            _set_items(stack[-1], items)
        elif name == "LIST":
            stack.append(items)
        elif name.startswith("TUPLE"):
            stack.append(tuple(items))
        elif name == "STACK_GLOBAL":
            stack.append(_known_name(" ".join(map(_as_text, items))))
        elif name == "REDUCE":
            stack.append(_Call(_expect(items[0], _Name), _expect(items[1], tuple)))


def _known_name(name: str) -> _Name:
    if name not in _NAMES:
        raise ValueError(f"the name {name!r:.80} is not one of plain data")
    return _Name(name)


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"expected a {kind.__name__.strip('_').lower()}; got {type(value).__name__}")
    return value


def _set_items(target: dict[Any, Any], items: list[Any]) -> None:
    if len(items) % 2:
        raise ValueError("keys and values must come in pairs")
    for key, value in zip(map(_resolved, items[::2]), items[1::2], strict=True):
        if not isinstance(key, (str, bytes, int)) or isinstance(key, _Name):
            raise ValueError(f"a key must be a text or an integer; got {type(key).__name__}")
        target[key] = value


def _resolved(value: Any) -> Any:
    if isinstance(value, _Name):
        raise ValueError(f"the name {str(value)!r} is no data")
    if not isinstance(value, _Call):
        return value
    if value.value is None:
        value.value = _meaning(value, value.name.rpartition(" ")[2])
    return value.value


def _meaning(call: _Call, name: str) -> Any:
    """The bytes, number or array that a call stands for."""
    arguments, state = call.arguments, call.state
    if name == "encode" and len(arguments) == 2 and isinstance(arguments[0], str) and _is_latin1(arguments[1]):
        return arguments[0].encode("latin-1")
    if name == "bytes" and not arguments:
        return b""
    if name == "_frombuffer" and len(arguments) == 4:
        return _array(*arguments)
    if name == "scalar" and len(arguments) == 2:
        number = _array(arguments[1], arguments[0], (), "C")
        if number.dtype.kind in "iub":
            return int(number)
    if name == "_reconstruct" and arguments[:1] == ("numpy ndarray",) and state is not None and len(state) == 5:
        _, shape, dtype, fortran, content = state
        if isinstance(fortran, int):
            return _array(content, dtype, shape, "F" if fortran else "C")
    raise ValueError(f"a call of {str(call.name)!r} with such arguments is no data")


def _array(content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    content, kind = _resolved(content), _dtype(dtype)
    if not isinstance(content, (bytes, np.ndarray)) or not isinstance(shape, tuple) or len(shape) > 4:
        raise ValueError("an array must have bytes and a shape of at most 4 numbers")
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError("the shape of an array must be integers from 0")
    if _as_text(order) not in ("C", "F"):
        raise ValueError(f"the memory order of an array must be C or F; got {order!r:.20}")
    need = math.prod(shape) * kind.itemsize
    if need != len(content):
        raise ValueError(f"an array of shape {shape!r:.60} and dtype {kind} must have {need} bytes; got {len(content)}")
    stored = content.view(kind) if isinstance(content, np.ndarray) else np.frombuffer(content, dtype=kind)
    return stored.reshape(shape, order="F" if _as_text(order) == "F" else "C")


def _dtype(call: Any) -> np.dtype[Any]:
    if not isinstance(call, _Call) or call.name != "numpy dtype" or not call.arguments:
        raise ValueError("an array must have a dtype")
    code, state = _as_text(call.arguments[0]), call.state
    if re.fullmatch(r"b1|[iu][1248]|f[248]", code) is None:
        raise ValueError(f"an array must have a plain numeric dtype; got {code!r:.20}")
    if state is None:
        return np.dtype(code)
    # The state is (version, byte order, subarray, names, fields, size, alignment, flags, ...).
    if len(state) < 5 or any(part is not None for part in state[2:5]) or _as_text(state[1]) not in ("<", ">", "|", "="):
        raise ValueError("an array must have a plain numeric dtype with a byte order")
    return np.dtype(_as_text(state[1]) + code)


def _is_latin1(encoding: Any) -> bool:
    return _as_text(encoding) in ("latin1", "latin-1")


def _as_text(value: Any) -> str:
    """A short text, which Python 2 wrote as bytes."""
    value = _resolved(value)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise ValueError(f"expected a text; got {type(value).__name__}")
    return value
