"""``make test-lowest``: the lowest versions that pyproject.toml allows, with the tests that depend on them most."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.install.environments import ROOT, Environment, dependencies, extras, say

# What touches every dependency; the mathematics depends on torch alone.
TESTS = [
    "tests/nn",
    "tests/metrics",
    "tests/sets",
    "tests/audit",
    "tests/report",
    "tests/predict",
    "tests/integrations",
]
TESTS += ["tests/train/test_fit.py", "tests/train/test_saved_model.py", "tests/data/formats", "tests/cli/test_main.py"]


def floors() -> str:
    """Constraints that pin every requirement of the package and of its extra ``all`` to its floor."""
    named = {**extras(), "": dependencies()}
    waiting, seen, pins = ["", "all"], set(), {}
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in named[extra]:
            if inner := re.fullmatch(r"shortlist\[(.*)\]", requirement):
                waiting += inner[1].split(",")
            elif floor := re.match(r"([\w.-]+)>=([\w.]+)", requirement):
                pins[floor[1]] = floor[2]
    return "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


def main() -> None:
    """Install and test."""
    with TemporaryDirectory() as scratch:
        constraints = Path(scratch) / "lowest.txt"
        constraints.write_text(floors())
        say(constraints.read_text())
        checkout = Path(scratch) / "checkout"
        for name in ("tests", "conftest.py", "pyproject.toml", "README.md", "CHANGELOG.md", "examples", "benchmarks"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, _made(checkout) / name)
        test = ["pytest", "hypothesis", "mpmath"]
        made = Environment(Path(scratch) / "lowest", "torch", f"{ROOT}[all]", *test, constraints=constraints)
        # Old versions warn about new ones of others; that is theirs to settle.
        options = ["-m", "not slow", "-W", "default", "-p", "no:cacheprovider", "-x"]
        done = made.run("python", "-m", "pytest", *options, *TESTS, cwd=checkout, check=False)
        say("\n".join(done.stdout.splitlines()[-30:]))
        sys.exit(done.returncode)


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


if __name__ == "__main__":
    main()
