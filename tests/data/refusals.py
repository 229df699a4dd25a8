"""The sentence in which something is refused."""

import re
from typing import Any

import pytest

from shortlist.data import open_dataset


def refusal(path: Any, kind: type[Exception] = ValueError, **options: Any) -> str | None:
    """The sentence in which opening a path fails, with the path written as PATH; None if it is read."""
    try:
        open_dataset(path, **options)
    except kind as error:
        text = str(error)
    else:
        return None
    one = re.fullmatch(r"[^\n]*[^.]\.", text) and not re.search(r"[.!?] [A-Z]", text)
    return text.replace(f"`{path}", "`PATH") if one else pytest.fail(f"not one sentence: {text}")


def refused(path: Any, *given: Any, **options: Any) -> str:
    """As `refusal`, for a path that must not be read."""
    return refusal(path, *given, **options) or pytest.fail("was read")
