"""The examples of a page: run in order, compared with the output below them, or written anew.

``python -m website.examples PAGE ...`` runs the examples of pages and writes what they print below them; for tutorials
that are notebooks, the executed notebook, too. A block is an example unless ``excerpt`` follows its language.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ("loop", "conformal", "tail")
"""The tutorials, of ``docs/start``, that are notebooks as well."""
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")

_EXAMPLE = re.compile(r"^```(python|sh)\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A block of Python or of shell commands, and what the page shows that it prints; None if it shows nothing.

    Args:
        language: ``python`` or ``sh``.
        code: the block.
        shown: the block of text directly below.
        end: where in the page both of them end.
    """

    language: str
    code: str
    shown: str | None
    end: int


def examples(text: str) -> list[Example]:
    """The examples of a page, in order."""
    return [Example(*match.groups(), match.end()) for match in _EXAMPLE.finditer(text)]


def in_one_session(page: Path) -> bool:
    """Whether the examples of a page build on each other, as those of tutorials do; others stand alone."""
    return page.parent.name == "start"


def printed_by(example: Example, names: dict[str, Any], folder: Path) -> str:
    """What an example prints.

    Args:
        example: run in the current folder if it is Python.
        names: the variables of the session.
        folder: where shell commands run.
    """
    if example.language == "python":
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example.code, "example", "exec"), names)
        return printed.getvalue()
    with TemporaryDirectory() as programs:
        program = Path(programs) / "shortlist"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shortlist "$@"\n')
        program.chmod(0o755)
        path = os.pathsep.join([programs, str(Path(sys.executable).parent), os.environ["PATH"]])
        run = ["bash", "-eu", "-c", example.code]
        surroundings = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
        # A command that never ends, such as a service, is an excerpt.
        done = subprocess.run(run, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(f"{example.code}\nended with {done.returncode}:\n{done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def run_page(page: Path, folder: Path) -> list[tuple[Example, str]]:
    """Every example of a page with what it prints, run one after the other in ``folder``."""
    names: dict[str, Any] = {"__name__": "__main__"}
    results = []
    before = Path.cwd()
    os.chdir(folder)
    try:
        for example in examples(page.read_text(encoding="utf-8")):
            own = names if in_one_session(page) else {"__name__": "__main__"}
            results.append((example, printed_by(example, own, folder)))
    finally:
        os.chdir(before)
    return results


def alike(printed: str, shown: str) -> bool:
    """Whether the words agree, and the numbers up to what a trained model differs by from machine to machine."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", shown).split():
        return False
    ours, theirs = ([float(each.replace(",", "")) for each in NUMBER.findall(text)] for text in (printed, shown))
    return all(abs(a - b) <= max(0.06 * abs(b), 0.006) for a, b in zip(ours, theirs, strict=True))


def write_outputs(page: Path) -> None:
    """Write what the examples of a page print below those that show something."""
    text = page.read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        results = run_page(page, Path(folder))
    for example, printed in reversed(results):
        if example.shown is not None:
            start = example.end - len("```") - len(example.shown)
            text = text[:start] + printed + text[start + len(example.shown) :]
    page.write_text(text, encoding="utf-8")


def notebook(page: Path) -> Any:
    """A tutorial as a notebook without outputs: its code as cells, and the text between them."""
    import jupytext

    text = page.read_text(encoding="utf-8")
    text = re.sub(r"(?<=^```)\n\n```text\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    book = jupytext.reads(text, fmt="md")
    book.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for number, cell in enumerate(book.cells):
        cell["id"] = f"{page.stem}-{number}"
        cell["metadata"] = {}
    return book


def executed(book: Any, folder: Path) -> Any:
    """The notebook with what its cells print; not with warnings, which are of the machine and name its folders."""
    from nbclient import NotebookClient

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    options = {"timeout": 600, "record_timing": False, "coalesce_streams": True}
    client = NotebookClient(book, resources={"metadata": {"path": str(folder)}}, **options)
    done = client.execute()
    for cell in done.cells:
        cell["outputs"] = [each for each in cell.get("outputs", []) if each.get("name") != "stderr"]
        if cell.cell_type != "code":
            del cell["outputs"]
    return done


def write_notebook(page: Path) -> None:
    """Write a tutorial as an executed notebook beside it."""
    import nbformat

    with TemporaryDirectory() as folder:
        nbformat.write(executed(notebook(page), Path(folder)), page.with_suffix(".ipynb"))


def main() -> None:
    """Run the pages that the command line names."""
    for name in sys.argv[1:]:
        page = Path(name).resolve()
        write_outputs(page)
        if in_one_session(page) and page.stem in NOTEBOOKS:
            write_notebook(page)


if __name__ == "__main__":
    main()
