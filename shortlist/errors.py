"""The exception for mistakes that a user can fix."""

from __future__ import annotations


class InputError(ValueError):
    """An invalid file, option or value in a file, which the user can correct.

    Code that reads users' files and options raises it, with one sentence that states the file or the option, the rule,
    and the value found. The command line prints that sentence and exits with code 2; any other exception is a bug and
    keeps its traceback. Functions that check a programmer's arguments raise `ValueError` or `TypeError` instead.

    Example:
        >>> raise InputError("`labels.txt` line 3: labels must be whole numbers; got 'rose'.")
        Traceback (most recent call last):
        shortlist.errors.InputError: `labels.txt` line 3: labels must be whole numbers; got 'rose'.
    """
