"""Optional dependencies: asked for by name, missed in one sentence."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, *, extra: str) -> ModuleType:
    """Import ``module``, which comes with the extra ``extra``.

    Raises:
        ImportError: one sentence that names the module and how to install it.

    Example:
        >>> require("math", extra="report").pi > 3
        True
        >>> require("no_such_module", extra="report")
        Traceback (most recent call last):
        ImportError: `no_such_module` is not installed: run `pip install 'shortlist[report]'`.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise
        raise ImportError(f"`{error.name}` is not installed: run `pip install 'shortlist[{extra}]'`.") from None
