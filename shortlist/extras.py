"""Optional dependencies: imported by name; a missing one is reported in one sentence."""

from __future__ import annotations

import importlib
import importlib.metadata
from traceback import walk_tb
from types import ModuleType

SOURCE = "."
"""What pip installs the package from: a checkout. The name on the package index is not ours yet; once it is, it goes
here, `how_to_install` loses its last words, and no other message has to change."""

COMMAND_EXTRAS = frozenset({"audit", "completion", "data", "metrics", "onnx", "report", "train"})
"""The extras that the extra ``cli`` installs together."""


class MissingExtraError(ImportError):
    """A package of an optional extra is missing or broken; the message says what to install.

    Args:
        message: the sentence.
        name: the missing or broken module.
        extra: the extra that installs it, if it is missing.
    """

    def __init__(self, message: str, *, name: str | None = None, extra: str | None = None) -> None:
        super().__init__(message, name=name)
        self.extra = extra

    def for_commands(self) -> str:
        """The sentence on the command line: a command may need several extras, which ``cli`` installs at once."""
        if self.name is None or self.extra not in COMMAND_EXTRAS:
            return str(self)
        return _missing(self.name, "cli")


def how_to_install(extra: str) -> str:
    """What to run for an extra, and where.

    Example:
        >>> how_to_install("train")
        "run `pip install '.[train]'` in a checkout of shortlist"
    """
    return f"run `pip install '{SOURCE}[{extra}]'` in a checkout of shortlist"


def _missing(package: str, extra: str) -> str:
    return f"`{package}` is not installed: {how_to_install(extra)}."


def require(module: str, *, extra: str) -> ModuleType:
    """Import ``module``, which the extra ``extra`` installs.

    Raises:
        MissingExtraError: if the module cannot be imported; the message says why, or how to install it.

    Example:
        >>> require("math", extra="report").pi > 3
        True
        >>> require("no_such_module", extra="report")
        Traceback (most recent call last):
        shortlist.extras.MissingExtraError: `no_such_module` is not installed: run `pip install '.[report]'` in a
        checkout of shortlist.
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
            return MissingExtraError(_missing(missing, extra), name=missing, extra=extra)
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
