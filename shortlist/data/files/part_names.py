"""Names of the parts of a split: one name for each, however a source spells it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from shortlist.errors import InputError

PARTS = ("train", "val", "test")
"""The usual parts, in the order in which they are listed."""

SPELLINGS = {
    "train": ("train", "training", "trn"),
    "val": ("val", "valid", "validation", "dev", "development"),
    "test": ("test", "testing", "tst"),
}
"""What sources call each part, in lower case; matching ignores case."""

PART_PATTERN = "|".join(spelling for spellings in SPELLINGS.values() for spelling in spellings)
"""A regular expression, to be used without regard to case, for the part in the name of a file."""

Named = TypeVar("Named", str, Path)
_PART_OF = {spelling: part for part, spellings in SPELLINGS.items() for spelling in spellings}


def part_name(text: str) -> str:
    """The usual name of a part; any other name stays as it is, but for surrounding blanks.

    Example:
        >>> [part_name(text) for text in ("Train", "TESTING", " dev ", "Holdout")]
        ['train', 'test', 'val', 'Holdout']
    """
    text = text.strip()
    return _PART_OF.get(text.lower(), text)


def by_part(found: Iterable[tuple[str, Named]], where: str) -> dict[str, Named]:
    """Files or keys by their part, the usual parts first; InputError, with ``where``, if a part is found twice.

    Example:
        >>> by_part([("test", "x_tst"), ("train", "x_trn")], "`a.npz`")
        {'train': 'x_trn', 'test': 'x_tst'}
    """
    parts: dict[str, Named] = {}
    for part, one in found:
        if part in parts:
            both = " and ".join(
                f"`{name.name}`" if isinstance(name, Path) else repr(name) for name in (parts[part], one)
            )
            raise InputError(f"{where}: {both} both are the part {part!r}; one of them must go.")
        parts[part] = one
    return {part: parts[part] for part in [*PARTS, *sorted(parts.keys() - set(PARTS))] if part in parts}


def part_keys(keys: Iterable[str], stem: str, where: str) -> dict[str, str]:
    """The keys ``{stem}_{part}`` of the usual parts, as in `by_part`.

    Example:
        >>> part_keys(["x_Test", "x_training", "x_mean", "y_training"], "x", "`a.npz`")
        {'train': 'x_training', 'test': 'x_Test'}
    """
    named = ((part_name(key[len(stem) + 1 :]), key) for key in keys if key.startswith(f"{stem}_"))
    return by_part(((part, key) for part, key in named if part in PARTS), where)
