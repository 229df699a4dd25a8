"""Optional dependencies: asked for by name, missed in one sentence."""

from __future__ import annotations

import importlib
import importlib.metadata
from traceback import walk_tb
from types import ModuleType


def require(module: str, *, extra: str) -> ModuleType:
    """Import ``module``, which comes with the extra ``extra``.

    Raises:
        ImportError: one sentence that names the module and how to install it, or why it cannot be imported.

    Example:
        >>> require("math", extra="report").pi > 3
        True
        >>> require("no_such_module", extra="report")
        Traceback (most recent call last):
        ImportError: `no_such_module` is not installed: run `pip install 'shortlist[report]'`.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise import_failure(module, error, extra=extra) from error


def import_failure(module: str, error: Exception, *, extra: str) -> ImportError:
    """What to raise when importing ``module`` raised ``error``: one sentence for a module that is missing or broken.

    A torchvision that was built for another torch breaks whatever imports it, as torchmetrics and Lightning do when it
    is installed; their own errors name an operator of it, which tells users nothing.
    """
    if isinstance(error, ModuleNotFoundError):
        missing = error.name
        if missing is not None and (module == missing or module.startswith(missing + ".")):
            return ImportError(f"`{missing}` is not installed: run `pip install 'shortlist[{extra}]'`.", name=missing)
    reason = " ".join(str(error).split()).rstrip(".")
    if any(
        frame.f_globals.get("__name__", "").split(".")[0] == "torchvision" for frame, _ in walk_tb(error.__traceback__)
    ):
        return ImportError(
            f"the installed {_release('torchvision')} does not fit {_release('torch')}, so that `{module}` cannot be "
            f"imported ({reason}): install the build that fits, or run `pip uninstall torchvision`.",
            name=module,
        )
    return ImportError(f"`{module}` cannot be imported: {type(error).__name__} {reason}.", name=module)


def _release(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package
