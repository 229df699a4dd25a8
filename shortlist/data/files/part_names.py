"""Names of the parts of a split: one name for each, however a source spells it."""

from __future__ import annotations

from collections.abc import Iterable

PARTS = ("train", "val", "test")
"""The usual parts, in the order in which they are listed."""

SPELLINGS = {
    "train": ("train", "training", "trn"),
    "val": ("val", "valid", "validation", "dev", "development"),
    "test": ("test", "testing", "tst"),
}
"""How sources call each part, in lower case; capitals do not count."""

_PART_OF = {spelling: part for part, spellings in SPELLINGS.items() for spelling in spellings}


def part_name(text: str) -> str:
    """The usual name of a part; any other name stays as it is, but for blanks around it.

    Example:
        >>> [part_name(text) for text in ("Train", "TESTING", " dev ", "Holdout")]
        ['train', 'test', 'val', 'Holdout']
    """
    text = text.strip()
    return _PART_OF.get(text.lower(), text)


def part_keys(keys: Iterable[str], stem: str) -> dict[str, str]:
    """The keys that are ``stem``, an underscore and a part, by the usual name of the part and in its order.

    Raises:
        ValueError: if two keys spell the same part; the sentence begins with them, for a file to stand before it.

    Example:
        >>> part_keys(["x_Test", "x_training", "x_mean", "y_training"], "x")
        {'train': 'x_training', 'test': 'x_Test'}
    """
    found: dict[str, str] = {}
    for key in keys:
        part = part_name(key[len(stem) + 1 :]) if key.startswith(f"{stem}_") else ""
        if part not in PARTS:
            continue
        if part in found:
            raise ValueError(f"{found[part]!r} and {key!r} must not both be there, being the part {part!r}.")
        found[part] = key
    return {part: found[part] for part in PARTS if part in found}
