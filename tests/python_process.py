"""Run Python on the code of this repository, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``python *arguments`` with one thread, and return what it wrote; the test fails if it fails."""
    path = os.pathsep.join(filter(None, [environment.pop("PYTHONPATH", ""), str(ROOT), os.environ.get("PYTHONPATH")]))
    variables = os.environ | {"OMP_NUM_THREADS": "1"} | environment | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done
