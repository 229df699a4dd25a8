"""What a project keeps beside its code: versions that agree, citation, workflows, history of the benchmarks."""

import csv
import json
import re
import sys
from importlib import util
from pathlib import Path
from types import SimpleNamespace

import pytest

import shortlist
from benchmarks.history import COLUMNS, FIGURES, HISTORY, RESULTS, ranges

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PYTHONS = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())


def steps(workflow):
    return [step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]]


def test_the_citation_has_the_version_and_what_the_format_requires():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == shortlist.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    name = citation["license"]
    assert f'license = "{name}"' in (ROOT / "pyproject.toml").read_text()


def test_the_tests_run_on_every_version_of_python_that_is_promised():
    (matrix,) = [
        job["strategy"]["matrix"]["python"]
        for job in yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"].values()
        if "python" in job.get("strategy", {}).get("matrix", {})
    ]
    assert matrix == PYTHONS
    assert f'requires-python = ">={PYTHONS[0]}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_targets_that_exist_and_may_only_read(workflow):
    content = yaml.safe_load(workflow.read_text())
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = [step["run"].split()[1:] for step in steps(workflow) if step.get("run", "").startswith("make ")]
    matrix = [job.get("strategy", {}).get("matrix", {}).get("target", []) for job in content["jobs"].values()]
    wanted = {name for names in made for name in names if re.fullmatch(r"[a-z-]+", name)}
    assert wanted | {entry.split()[0] for entries in matrix for entry in entries} <= targets
    assert content["permissions"] == {"contents": "read"}
    assert all(re.search(r"@(v\d+|release/v\d+)$", step["uses"]) for step in steps(workflow) if "uses" in step)


def test_only_the_job_that_publishes_has_an_identity_and_it_holds_no_secret():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert {name for name, job in jobs.items() if "permissions" in job} == {"publish"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"
    assert not any("secrets." in path.read_text() for path in WORKFLOWS)


def test_the_history_of_the_benchmarks_has_every_figure_of_todays_results():
    with HISTORY.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert all(float(row["low"]) <= float(row["high"]) for row in rows)
    listed = {(row["file"], row["figure"]) for row in rows}
    for file in FIGURES:
        found = ranges(file, json.loads((RESULTS / file).read_text()))
        assert found, file
        assert {(file, name) for name in found} <= listed, "run `python -m benchmarks.history`"


def test_a_result_of_an_older_form_has_no_figures():
    assert ranges("audit.json", {"ratios": [{"ratio": 3.0}]}) == {}
    assert ranges("audit.json", {}) == {}


@pytest.mark.parametrize("public", [True, False])
def test_links_of_the_package_are_those_of_the_repository_that_builds_it(public, monkeypatch):
    parts = ["hatchling", "hatchling.metadata", "hatchling.metadata.plugin", "hatchling.metadata.plugin.interface"]
    for name in parts:  # It is there only while a package is built.
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(MetadataHookInterface=object))
    values = {"GITHUB_SERVER_URL": "https://example.org", "GITHUB_REPOSITORY": "a/b"}
    for name, value in values.items():
        monkeypatch.setenv(name, value) if public else monkeypatch.delenv(name, raising=False)
    spec = util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    metadata = {}
    module.CustomMetadataHook().update(metadata)
    assert metadata["urls"].get("Issues") == ("https://example.org/a/b/issues" if public else None)
