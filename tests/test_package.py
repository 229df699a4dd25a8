"""The package as a whole: imports point one way, importing is light, files stay small and quiet."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shortlist

PACKAGE = Path(shortlist.__file__).parent
ROOT = PACKAGE.parent
SOURCES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [
    {"errors", "formatting", "tensors"},
    {"labels", "extras", "files", "fingerprint", "fit_options", "progress", "typed_json", "checks"},
    {"targets", "typed_values", "timing"},
    {"label_axis"},
    {"kernels"},
    {"functional", "cluster", "comparison_document"},
    {"nn", "metrics", "sets", "audit", "data"},
    {"recipes"},
    {"memory"},
    {"train", "report"},
    {"benchmark", "evidence", "predict"},
    {"cli"},
]
LEVEL = {part: level for level, layer in enumerate(LAYERS) for part in layer}
HEAVY = {"matplotlib", "rich", "scipy", "pandas", "sklearn", "lightning", "torchmetrics", "plotly", "numba"}


def part_of(module: str) -> str | None:
    """Return ``functional`` for ``shortlist.functional.lml``; None for other packages and the top."""
    names = module.split(".")
    return names[1] if names[0] == "shortlist" and len(names) > 1 else None


def imported_modules(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file, by its full name."""
    package = ["shortlist", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            yield prefix
            yield from (f"{prefix}.{alias.name}" for alias in node.names)


def owner(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def test_imports_point_one_way():
    for path in SOURCES:
        if path.parent == PACKAGE and path.name in ("__init__.py", "__main__.py"):
            continue
        part = owner(path)
        assert part in LEVEL, f"place {part} among the layers"
        for module in imported_modules(path):
            imported = part_of(module)
            if imported in LEVEL and imported != part:
                assert LEVEL[imported] < LEVEL[part], f"{path} must not import {module}"


def test_the_check_of_imports_sees_every_way_to_import():
    path = PACKAGE / "functional" / "lml.py"
    assert "shortlist.functional.autograd" in set(imported_modules(path))
    names = set(imported_modules(PACKAGE / "nn" / "projections.py"))
    assert {"shortlist.functional", "torch.Tensor"} <= names


def test_importing_the_package_loads_nothing_but_torch_and_numpy():
    code = (
        "import sys, torch, numpy; before = set(sys.modules); import shortlist; "
        "sys.stdout.write(' '.join(sorted({name.split('.')[0] for name in set(sys.modules) - before})))"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())
    assert loaded - sys.stdlib_module_names <= {"shortlist", "torch", "numpy"}
    assert not run.stderr


def test_importing_the_package_alone_loads_no_optional_dependency():
    code = "import sys, shortlist; sys.stdout.write(' '.join({name.split('.')[0] for name in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not HEAVY & set(run.stdout.split())


def test_source_files_stay_small_and_neither_print_nor_assert():
    for path in SOURCES:
        text = path.read_text()
        assert len(text.splitlines()) <= 600, path
        for node in ast.walk(ast.parse(text)) if owner(path) != "cli" else ():
            printing = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            assert not printing, f"{path}:{node.lineno} prints"
            assert not isinstance(node, ast.Assert), f"{path}:{node.lineno} asserts"


def test_test_files_stay_small():
    for path in (ROOT / "tests").rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 600, path


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").is_file()


def test_the_version_is_the_newest_of_the_changelog():
    assert re.fullmatch(r"\d+\.\d+\.\d+", shortlist.__version__)
    changelog = ROOT / "CHANGELOG.md"
    if changelog.is_file():
        newest = re.search(r"^## \[?v?(\d+\.\d+\.\d+)", changelog.read_text(), re.MULTILINE)
        assert newest, "no heading with a version"
        assert newest[1] == shortlist.__version__


@pytest.mark.parametrize("name", shortlist.__all__)
def test_what_the_package_lists_exists(name):
    assert hasattr(shortlist, name)
