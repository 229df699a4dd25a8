"""The exception for mistakes that a user can fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST = 1000
"""Characters of a sentence; of longer ones the middle is left out."""


class InputError(ValueError):
    """An invalid file, option or value in a file, which the user can correct: one line of bounded length.

    Code that reads users' files and options raises it, with one sentence that states the file or the option, the rule,
    and the value found. The command line prints that sentence and exits with code 2; any other exception is a bug and
    keeps its traceback. Functions that check a programmer's arguments raise `ValueError` or `TypeError` instead.

    Example:
        >>> raise InputError("`labels.txt` line 3: labels must be whole numbers; got 'rose'.")
        Traceback (most recent call last):
        shortlist.errors.InputError: `labels.txt` line 3: labels must be whole numbers; got 'rose'.
    """

    def __init__(self, message: str) -> None:
        # Files hold values of any length, and paths and names with line breaks.
        line = " ".join(part.strip() for part in message.splitlines())
        cut = len(line) > _LONGEST
        super().__init__(f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 4 :]}" if cut else line)


class ChoiceError(InputError):
    """An `InputError` that the user can correct by options of the reader, which it offers.

    Args:
        message: the sentence.
        choices: each a set of reader options; the command line prints the command with each of them.

    Example:
        >>> raise ChoiceError("`a.csv`: `label` must name the column of labels.", [{"label": "kind"}])
        Traceback (most recent call last):
        shortlist.errors.ChoiceError: `a.csv`: `label` must name the column of labels.
    """

    def __init__(self, message: str, choices: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message)
        self.choices = choices


def reason(error: BaseException) -> str:
    r"""The first sentence of another exception's explanation in one line, without its period.

    Example:
        >>> reason(ValueError("no such\ncolumn. Try another.")), reason(KeyError())
        ('no such column', 'KeyError')
    """
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    text = text.split(". ")[0].rstrip(".:;") or type(error).__name__
    # Those of this package are one line of bounded length already.
    return text if isinstance(error, InputError) or len(text) <= 200 else f"{text[:200]}…"
