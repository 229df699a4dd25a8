"""Fresh environments with a chosen part of the package, and what runs in them; slow, so run by targets of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Environment:
    """A fresh virtual environment.

    Args:
        folder: where it is made.
        requirements: what pip installs. With anything that depends on torch, name torch: otherwise pip would fetch a
            build of several gigabytes.
        constraints: a file of versions; that of the repository by default.
    """

    def __init__(self, folder: Path, *requirements: str, constraints: Path | None = None) -> None:
        self.folder = folder
        venv.create(folder, with_pip=True)
        install = ["-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
        self.run("python", *install, "--constraint", str(constraints or ROOT / "constraints.txt"), *requirements)

    def remove(self) -> None:
        """Delete it: with torch, each takes about a gigabyte."""
        shutil.rmtree(self.folder)

    def run(
        self, program: str, *arguments: str, cwd: Path | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, outside the checkout, so that the installed package is imported."""
        command = [str(self.folder / "bin" / program), *arguments]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        environment = {**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, cwd=cwd or self.folder, env=environment, capture_output=True, text=True)
        if check and done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done


def dependencies() -> list[str]:
    """What pyproject.toml requires without any extra; read as text, because Python 3.10 has no reader of TOML."""
    (content,) = re.findall(
        r"^dependencies = \[(.*?)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL
    )
    return re.findall(r'"([^"]+)"', content)


def extras() -> dict[str, list[str]]:
    """The extras of pyproject.toml, read as text likewise."""
    table = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1].split("\n[")[0]
    lists = re.findall(r"^(\w+) = \[(.*?)\]$", table, re.MULTILINE | re.DOTALL)
    return {name: re.findall(r'"([^"]+)"', content) for name, content in lists}


def readme_example() -> tuple[str, str]:
    """The first example of the README, and what it says that the example prints."""
    text = (ROOT / "README.md").read_text()
    code, rest = text.split("```python\n", 1)[1].split("```", 1)
    return code, rest.split("```text\n", 1)[1].split("```", 1)[0]


def say(sentence: str) -> None:
    """Print progress at once."""
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()
