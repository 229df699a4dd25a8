"""Optional dependencies: imported by name; a missing one is reported in one sentence."""

from __future__ import annotations

import importlib
import importlib.metadata
from traceback import walk_tb
from types import ModuleType


class MissingExtraError(ImportError):
    """A package of an optional extra is missing or broken; the message says what to install."""


def require(module: str, *, extra: str) -> ModuleType:
    """Import ``module``, which the extra ``extra`` installs.

    Raises:
        MissingExtraError: if the module cannot be imported; the message says why, or how to install it.

    Example:
        >>> require("math", extra="report").pi > 3
        True
        >>> require("no_such_module", extra="report")
        Traceback (most recent call last):
        shortlist.extras.MissingExtraError: `no_such_module` is not installed: run `pip install 'shortlist[report]'`.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise import_failure(module, error, extra=extra) from error


def import_failure(module: str, error: Exception, *, extra: str) -> MissingExtraError:
    """Return the exception to raise after importing ``module`` raised ``error``, because it is missing or broken.

    A torchvision built for another torch breaks everything that imports it, including torchmetrics and Lightning. The
    original error names a missing operator, which does not help users.
    """
    if isinstance(error, ModuleNotFoundError):
        missing = error.name
        if missing is not None and (module == missing or module.startswith(missing + ".")):
            return MissingExtraError(
                f"`{missing}` is not installed: run `pip install 'shortlist[{extra}]'`.", name=missing
            )
    reason = " ".join(str(error).split()).rstrip(".")
    if any(
        frame.f_globals.get("__name__", "").split(".")[0] == "torchvision" for frame, _ in walk_tb(error.__traceback__)
    ):
        return MissingExtraError(
            f"the installed {_release('torchvision')} does not match {_release('torch')}, so `{module}` cannot be "
            f"imported ({reason}): install the matching build, or run `pip uninstall torchvision`.",
            name=module,
        )
    return MissingExtraError(f"`{module}` cannot be imported: {type(error).__name__} {reason}.", name=module)


def _release(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package
