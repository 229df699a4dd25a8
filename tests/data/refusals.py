"""The sentence in which something is refused."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from shortlist.data import open_dataset
from shortlist.errors import InputError


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


def refuses_to_read(read: Callable[..., Any], path: Any, message: str, **options: Any) -> None:
    """Reading a path must fail in a sentence with this in it."""
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read(path, **options)
    assert str(caught.value).endswith((".", "?"))
