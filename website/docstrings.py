"""Docstrings, which are written for ``help()`` and Sphinx, as Markdown: formulas, references and tables."""

from __future__ import annotations

import re
import textwrap
from functools import cache
from importlib import import_module
from typing import Any

import griffe

PACKAGES = [
    "functional",
    "nn",
    "sets",
    "metrics",
    "calibration",
    "taxonomy",
    "audit",
    "data",
    "doctor",
    "train",
    "predict",
    "report",
    "evidence",
    "cluster",
    "targets",
    "labels",
    "errors",
    "integrations.heads",
    "integrations.sklearn",
    "integrations.transformers",
    "integrations.datasets",
]
"""What the site documents, in the order of its navigation."""

_BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n(?=\1 +\S|\n\1 +\S).*)*)", re.MULTILINE)
_SHARED = re.compile(r"^( +)(\*{0,2}\w+(?:, \*{0,2}\w+)+)(: .*(?:\n\1 +\S.*)*)", re.MULTILINE)
_ROLE = re.compile(r":(?:class|func|mod|meth|attr|data|exc):`~?([\w.]+)`")
_EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)
_RULE = re.compile(r"^=+(?: +=+)+$")


@cache
def exports(package: str) -> tuple[str, ...]:
    """The public names of ``shortlist.package``, in alphabetical order."""
    module = import_module(f"shortlist.{package}")
    own = (name for name, each in vars(module).items() if getattr(each, "__module__", None) == module.__name__)
    names = module.__all__ if hasattr(module, "__all__") else [name for name in own if not name.startswith("_")]
    return tuple(sorted(set(names), key=lambda name: (name.lower(), name)))


@cache
def pages() -> dict[str, str]:
    """The full public name of everything that has a place in the site, by its last part; the first package wins."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        found.setdefault(package, f"shortlist.{package}")
        for name in exports(package):
            found.setdefault(name, f"shortlist.{package}.{name}")
    return found


def markdown(text: str) -> str:
    """The docstring with formulas between dollars, references as links where the site has a target, and tables."""
    text = _BLOCK.sub(_formula, text)
    text = re.sub(r":math:`([^`]+)`", lambda match: f"${' '.join(match[1].split())}$", text)
    text = _ROLE.sub(_reference, text)
    # Arguments that share a description get it one by one.
    text = _SHARED.sub(lambda m: "\n".join(f"{m[1]}{name}{m[3]}" for name in m[2].split(", ")), text)
    return _tables(_EXAMPLE.sub(r"\1Examples:", text))


def _formula(match: re.Match[str]) -> str:
    body = " ".join(textwrap.dedent(match[2]).split())
    return f"\n{match[1]}$$\n{match[1]}{body}\n{match[1]}$$\n"


def _reference(match: re.Match[str]) -> str:
    parts = match[1].removeprefix("shortlist.").split(".")
    known = pages()
    if match[1].startswith("shortlist.") and known.get(parts[-1]) is not None:
        return f"[`{parts[-1]}`][{known[parts[-1]]}]" if parts[-1] not in PACKAGES else f"`{match[1]}`"
    return f"[`{match[1]}`][{known[match[1]]}]" if match[1] in known else f"`{match[1]}`"


def _tables(text: str) -> str:
    """Tables between rows of equals signs as tables of Markdown; columns end where their rule does."""
    lines, out = text.split("\n"), []
    at = 0
    while at < len(lines):
        if not _RULE.match(lines[at].strip()):
            out.append(lines[at])
            at += 1
            continue
        end = [i for i in range(at + 1, len(lines)) if _RULE.match(lines[i].strip())][1]
        starts = [match.start() for match in re.finditer(r"=+", lines[at])]
        spans = list(zip(starts, [*starts[1:], None], strict=True))
        rows = [[line[a:b].strip() for a, b in spans] for line in (lines[at + 1], *lines[at + 3 : end])]
        indent = " " * starts[0]
        table = [rows[0], ["---"] * len(spans), *rows[1:]]
        out += ["", *(f"{indent}| {' | '.join(row)} |" for row in table), ""]
        at = end + 1
    return "\n".join(out)


class Markup(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
