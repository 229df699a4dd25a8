"""Names of the parts of a split: one name for each, however a source spells it."""

from __future__ import annotations

from collections.abc import Iterable

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

_PART_OF = {spelling: part for part, spellings in SPELLINGS.items() for spelling in spellings}


def part_name(text: str) -> str:
    """The usual name of a part; any other name stays as it is, but for surrounding blanks.

    Example:
        >>> [part_name(text) for text in ("Train", "TESTING", " dev ", "Holdout")]
        ['train', 'test', 'val', 'Holdout']
    """
    text = text.strip()
    return _PART_OF.get(text.lower(), text)


def part_keys(keys: Iterable[str], stem: str, where: str) -> dict[str, str]:
    """The keys ``{stem}_{part}``, by the usual name of the part and in its order.

    Raises:
        InputError: if two keys spell the same part; ``where`` names the file that holds them.

    Example:
        >>> part_keys(["x_Test", "x_training", "x_mean", "y_training"], "x", "`a.npz`")
        {'train': 'x_training', 'test': 'x_Test'}
    """
    found: dict[str, str] = {}
    for key in keys:
        part = part_name(key[len(stem) + 1 :]) if key.startswith(f"{stem}_") else ""
        if part not in PARTS:
            continue
        if part in found:
            raise InputError(f"{where}: {found[part]!r} and {key!r} both are the part {part!r}; one of them must go.")
        found[part] = key
    return {part: found[part] for part in PARTS if part in found}
