"""``make dist``: wheel and sdist build, pass ``twine check``, install afresh and run the README's example."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.install.environments import ROOT, Environment, readme_example, say


def main() -> None:
    """Build into ``dist/`` and check what was built."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    with TemporaryDirectory() as scratch:
        tools = Environment(Path(scratch) / "tools", "build", "twine", "hatchling")
        tools.run("python", "-m", "build", "--no-isolation", "--outdir", str(ROOT / "dist"), str(ROOT))
        built = sorted((ROOT / "dist").iterdir())
        assert {path.suffix for path in built} == {".whl", ".gz"}, built
        say(tools.run("twine", "check", "--strict", *map(str, built)).stdout)
        code, printed = readme_example()
        for path in built:
            made = Environment(Path(scratch) / path.suffix[1:], "torch", str(path))
            found = made.run("python", "-c", code).stdout
            assert found == printed, f"the README's example prints something else:\n{found}"
            assert made.run("shortlist", "--version").stdout.startswith("shortlist ")
            say(f"{path.name}: installs, runs the README's example")


if __name__ == "__main__":
    main()
