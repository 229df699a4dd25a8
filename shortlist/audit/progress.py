"""A file of finished verdicts, one line each, from which an interrupted audit goes on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from shortlist.audit.decide import Decision
from shortlist.audit.encoding import decode_decision, encode_decision
from shortlist.audit.system import System

_FORMAT = "shortlist audit progress"
_VERSION = 1

Key = tuple[int, ...]


def fingerprint(system: System, radius: bool) -> str:
    """Tells one question from another: layer, bias, mode, and whether the exact radius is wanted."""
    digest = hashlib.sha256(f"{system.mode} {system.dft} {radius} {system.weight.shape}".encode())
    digest.update(system.weight.tobytes())
    digest.update(b"" if system.bias is None else system.bias.tobytes())
    return digest.hexdigest()


class Progress:
    """Append-only lines; the first says which layer and question they belong to.

    Args:
        path: the file; made if it is missing.
        question: `fingerprint` of the audit.

    Raises:
        ValueError: when the file belongs to another audit or is not such a file. It is left as it is.
    """

    def __init__(self, path: str | Path, question: str) -> None:
        self._path = Path(path)
        self._header = {"format": _FORMAT, "version": _VERSION, "question": question}
        self.finished: dict[Key, Decision] = {}
        if self._path.exists() and self._path.stat().st_size:
            self._read()
        else:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._header) + "\n")

    def _read(self) -> None:
        data = self._path.read_bytes()
        # A process that was killed may leave half a line at the end: it is cut off and computed again.
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].decode("utf-8", errors="replace").splitlines()
        self._check(lines[0] if lines else "")
        for number, line in enumerate(lines[1:], start=2):
            key, decision = self._decode(number, line)
            self.finished[key] = decision
        if whole < len(data):
            with self._path.open("rb+") as file:
                file.truncate(whole)

    def _decode(self, number: int, line: str) -> tuple[Key, Decision]:
        try:
            value = json.loads(line)
            return tuple(value["labels"]), decode_decision(value)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"`{self._path}` line {number} is damaged: {error}.") from error

    def _check(self, line: str) -> None:
        try:
            header: Any = json.loads(line)
        except ValueError:
            header = None
        if not isinstance(header, dict) or header.get("format") != _FORMAT:
            raise ValueError(f"`{self._path}` is not a file of finished verdicts.")
        if header.get("version") != _VERSION:
            raise ValueError(f"`{self._path}` has version {header.get('version')}; this release reads {_VERSION}.")
        if header != self._header:
            raise ValueError(f"`{self._path}` belongs to the audit of another layer or question.")

    def append(self, decisions: dict[Key, Decision]) -> None:
        """Write finished sets and hand them to the operating system."""
        lines = [json.dumps({"labels": key, **encode_decision(decision)}) for key, decision in decisions.items()]
        with self._path.open("a") as file:
            file.write("".join(line + "\n" for line in lines))
