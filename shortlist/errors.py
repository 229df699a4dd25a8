"""The error for mistakes that a user can mend."""

from __future__ import annotations


class InputError(ValueError):
    """A file, an option or a value in a file that the user can correct.

    Code that reads users' files and options raises it, with one sentence that names the file or the option, the rule
    and what was found. The command line prints that sentence and exits with code 2; any other exception is a bug and
    keeps its traceback. Functions that check a programmer's arguments raise `ValueError` or `TypeError` instead.

    Example:
        >>> raise InputError("`labels.txt` line 3: labels must be whole numbers; got 'rose'.")
        Traceback (most recent call last):
        shortlist.errors.InputError: `labels.txt` line 3: labels must be whole numbers; got 'rose'.
    """
