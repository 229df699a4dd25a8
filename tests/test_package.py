"""The package as a whole: imports point one way, importing is light, files stay small and quiet."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import shortlist
from tests.python_process import run_python

PACKAGE = Path(shortlist.__file__).parent
ROOT = PACKAGE.parent
SOURCES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [
    {"errors", "formatting", "tensors"},
    {"limits"},
    {"labels", "extras", "files", "fingerprint", "fit_options", "fitted", "progress", "typed_json"},
    {"targets", "typed_values", "timing"},
    {"label_axis", "taxonomy"},
    {"kernels"},
    {"functional", "cluster", "comparison_document", "calibration"},
    {"nn", "metrics", "sets", "audit", "data"},
    {"factory", "doctor"},
    {"memory"},
    {"train", "report"},
    {"benchmark", "evidence", "integrations", "predict"},
    {"serve"},
    {"cli"},
]
LEVEL = {part: level for level, layer in enumerate(LAYERS) for part in layer}
HEAVY = {"matplotlib", "rich", "scipy", "pandas", "sklearn", "lightning", "torchmetrics", "numba"}
HEAVY |= {"transformers", "datasets"}


def module_name(path: Path) -> str:
    names = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


MODULES = {module_name(path): path for path in SOURCES}


def imported_modules(path: Path) -> Iterator[str]:
    """Every module of the package that a file imports, anywhere in the file, by its full name."""
    package = ["shortlist", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            names = (f"{prefix}.{alias.name}" for alias in node.names)
            yield from (name if name in MODULES else prefix for name in names if prefix in MODULES)


# A package's `__init__` only re-exports, and the top of the package only holds the version.
IMPORTS = {
    name: {module for module in imported_modules(path) if module not in (name, "shortlist")}
    for name, path in MODULES.items()
    if path.name not in ("__init__.py", "__main__.py")
}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """A path in ``graph`` that ends where it began, or nothing."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node not in done:
            for target in sorted(graph.get(node, ())):
                if found := visit(target, [*path, node]):
                    return found
            done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := visit(node, []))), [])


def test_imports_point_down_the_layers():
    for name, modules in IMPORTS.items():
        part = name.split(".")[1]
        assert part in LEVEL, f"place {part} among the layers"
        for module in modules:
            imported = module.split(".")[1]
            assert imported == part or LEVEL[imported] < LEVEL[part], f"{name} must not import {module}"


def test_no_files_import_each_other_in_a_circle():
    assert circle(IMPORTS) == []


@pytest.mark.parametrize("package", [name for name, path in MODULES.items() if path.name == "__init__.py"])
def test_sub_packages_and_the_files_beside_them_import_each_other_one_way(package):
    depth = package.count(".") + 1
    siblings: dict[str, set[str]] = defaultdict(set)
    for name, modules in IMPORTS.items():
        if name.startswith(f"{package}."):
            assert package not in modules, f"{name} must not import the package that re-exports it"
            own = name.split(".")[depth]
            siblings[own] |= {m.split(".")[depth] for m in modules if m.startswith(f"{package}.")} - {own}
    assert circle(siblings) == []


def test_the_search_for_circles_finds_one():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []


def test_the_check_of_imports_sees_every_way_to_import():
    assert "shortlist.functional.projections.lml" in IMPORTS["shortlist.functional.losses.projection"]
    assert "shortlist.functional" in IMPORTS["shortlist.nn.projections"]


def test_folders_hold_few_files():
    # The services at the top are more, and every command has a file.
    for package in {path.parent for path in SOURCES}:
        most = {PACKAGE: 17, PACKAGE / "cli": 21}.get(package, 13)
        assert len([path for path in package.glob("*.py") if not path.name.startswith("__")]) <= most, package


def test_importing_the_package_loads_nothing_but_torch_and_numpy():
    code = (
        "import sys, torch, numpy; before = set(sys.modules); import shortlist; "
        "sys.stdout.write(' '.join(sorted({name.split('.')[0] for name in set(sys.modules) - before})))"
    )
    run = run_python("-W", "error", "-c", code)
    loaded = set(run.stdout.split())
    assert loaded - sys.stdlib_module_names <= {"shortlist", "torch", "numpy"}
    assert not run.stderr


def test_importing_the_package_alone_loads_no_optional_dependency():
    code = "import sys, shortlist; sys.stdout.write(' '.join({name.split('.')[0] for name in sys.modules}))"
    assert not HEAVY & set(run_python("-c", code).stdout.split())


def test_source_files_stay_small_and_neither_print_nor_assert():
    for path in SOURCES:
        text = path.read_text()
        assert len(text.splitlines()) <= 600, path
        for node in ast.walk(ast.parse(text)) if path.parent.name != "cli" else ():
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
