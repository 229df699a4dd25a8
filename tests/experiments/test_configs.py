"""The experiment files: what they name exists, no candidate is favored, and the document is made from the results."""

import importlib
import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from experiments.candidates import grid_points, merged
from experiments.data import LOADERS
from shortlist.data.opening import FORMATS
from shortlist.evidence import Lab, Outcome, read_experiments
from shortlist.evidence.document import write_evidence
from shortlist.evidence.reproduction import Folders, is_current, read_results
from shortlist.factory import HEADS, LOSSES
from shortlist.predict import RULES
from shortlist.train import FitOptions
from shortlist.train.evaluation import monitor_names
from tests.experiments.small_data import write_data

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments"
EXPERIMENTS = read_experiments(FOLDER)
RUNNABLE = [name for name, experiment in EXPERIMENTS.items() if not experiment.not_decidable]
OPTIONS = {field.name for field in fields(FitOptions)}
FOUND = {"verdict": "holds"}
"""Instead of the verdict of a recipe without runs."""
PUBLISHED = {
    "lml": ["figure-1", "figure-2", "figure-3", "figure-4", "figure-5", "figure-6", "figure-7", "table-1", "table-2"],
    "sets": [
        *(f"table-{item}" for item in ("4.2", "4.3", "4.4", "4.5", "4.6", "4.8", "5.1", "5.2")),
        *(f"figure-{item}" for item in ("3.2", "4.1", "4.2", "4.3", "4.4", "4.5", "4.6", "5.5", "5.6")),
    ],
    "two-way": ["table-a", "table-b", "table-c"],
    "dft": [*(f"figure-{item}" for item in (1, 2, 3, 4, 5, 6, 7, 8, 15)), "table-2", "table-3", "table-4"],
}


def inside(settings, key: str):
    """Every value of a key, wherever in the settings."""
    if isinstance(settings, dict):
        for name, value in settings.items():
            if name == key:
                yield value
            yield from inside(value, key)
    elif isinstance(settings, list):
        for value in settings:
            yield from inside(value, key)


def tables(settings):
    """Every part of the settings that compares candidates."""
    if isinstance(settings, dict):
        if "candidates" in settings:
            yield settings
        for value in settings.values():
            yield from tables(value)


def study_of(experiment):
    module, function = experiment.study.split(":")
    return getattr(importlib.import_module(f"experiments.{module}"), function)


def test_every_published_item_and_every_claim_has_an_experiment():
    assert {f"{paper}-{item}" for paper, items in PUBLISHED.items() for item in items} <= set(EXPERIMENTS)
    assert {experiment.claim for experiment in EXPERIMENTS.values()} == set(range(1, 11))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_named_after_its_paper_and_item_and_its_study_takes_three_arguments(name):
    experiment = EXPERIMENTS[name]
    kind, _, number = name.removeprefix(f"{experiment.publication}-").partition("-")
    assert re.search(rf"\b{kind}s? (.* )?{re.escape(number)}\b", experiment.item)
    if name in RUNNABLE:
        assert len(inspect.signature(study_of(experiment)).parameters) == 3


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", RUNNABLE)
def test_settings_name_known_data_separate_seeds_and_equal_budgets(name, scale):
    chosen = EXPERIMENTS[name].scales.get(scale) or EXPERIMENTS[name].scales["small"]
    assert all(not Path(file).is_absolute() and ".." not in Path(file).parts for file in chosen.files)
    for data in inside(chosen.settings, "data"):
        if isinstance(data, dict) and "loader" in data:
            assert data["loader"] in LOADERS
        elif isinstance(data, dict) and "open" in data:
            assert data.get("format") in {None, *FORMATS}
            opened = Path(data["open"])
            assert any(Path(file) in (opened, *opened.parents) or opened in Path(file).parents for file in chosen.files)
    for seeds in inside(chosen.settings, "seeds"):
        assert len(set(seeds)) == len(seeds)
        assert scale == "paper" or len(seeds) >= 3
        assert not any(set(seeds) & set(tuning) for tuning in inside(chosen.settings, "tuning_seeds"))
    for table in tables(dict(chosen.settings)):
        shared = table.get("recipes", {}).get("tuned", {}).get("grid", {})
        grids = {each: {**shared, **candidate.get("grid", {})} for each, candidate in table["candidates"].items()}
        points = {each: grid_points(grid) for each, grid in grids.items()}
        assert len({len(grid) for grid in points.values()}) == 1
        for each, grid in points.items():
            for point in grid:
                fit = merged(table.get("fit", {}), table["candidates"][each].get("fit", {}), point)
                if set(fit) <= OPTIONS:  # Scene graphs have a network and options of their own.
                    assert FitOptions(**fit).loss in LOSSES


@pytest.mark.parametrize("name", ["sets-table-5.1", "sets-table-5.2", "sets-figure-5.5", "sets-figure-5.6"])
def test_sets_of_k_labels_on_average_choose_epoch_and_options_and_are_reported(name):
    settings = EXPERIMENTS[name].scales["small"].settings
    assert settings["figure"] in ("average", "tail")
    assert settings["fit"]["keep"] == "best"
    for condition in settings["conditions"].values():
        fit = {**settings["fit"], **(condition or {}).get("fit", {})}
        monitors = monitor_names(one_class=True, num_labels=100, k=fit["k"])
        assert fit.get("monitor", monitors[0]) == f"average{fit['k']:g}_accuracy"


def test_a_dft_layer_is_paired_with_a_bottleneck_as_wide_as_its_slack():
    design = EXPERIMENTS["dft-section-5"].scales["small"].settings
    narrow, dft = (design["candidates"][name]["at"] for name in ("bottleneck", "DFT"))
    pairs = [
        (narrow[each]["head_options.bottleneck"], dft[each]["head_options.slack"]) for each in design["conditions"]
    ]
    candidates = yaml.safe_load((ROOT / "examples" / "pubmed.yaml").read_text())["candidates"]
    for loss in ("BCE", "two-way"):
        options = [candidates[f"{loss} {head}"]["head_options"] for head in ("bottleneck", "DFT")]
        pairs.append((options[0]["bottleneck"], options[1]["slack"]))
        assert "k" not in options[1]  # The default is the largest training set.
    assert all(width == slack for width, slack in pairs)


def test_everything_at_small_scale_fits_in_three_hours_on_two_cores():
    minutes = [experiment.scales["small"].minutes for experiment in EXPERIMENTS.values() if experiment.scales]
    assert all(minutes)
    assert sum(minutes) <= 180


def test_the_document_is_made_from_the_stored_results(tmp_path):
    folders = Folders(FOLDER, ROOT, FOLDER / "results", tmp_path)
    # Links to pictures are relative to the document, so a copy is written next to it.
    written = write_evidence(folders, ROOT / "docs" / "evidence.tmp")
    try:
        assert written.read_text() == (ROOT / "docs" / "evidence.md").read_text()
    finally:
        written.unlink()


def test_every_statement_that_does_not_hold_everywhere_says_why_with_figures_of_the_page():
    page = (ROOT / "docs" / "evidence.md").read_text()
    reasons = {why for experiment in EXPERIMENTS.values() for why in experiment.mechanisms.values()}
    for why in reasons:
        page = page.replace(why, "")
    results = read_results(FOLDER / "results")
    for name, experiment in EXPERIMENTS.items():
        claims = results[name, "small"]["outcome"]["claims"] if (name, "small") in results else []
        negative = [
            claim["text"]
            for claim in claims
            if {(claim[by] or FOUND)["verdict"] for by in ("paper", "finding")} != {"holds"}
        ]
        assert list(experiment.mechanisms) == negative, name
    for why in reasons:
        for figure in re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?", re.sub(r"-[\d.]+\d", "", why)):
            assert figure in page, why


def test_no_result_is_older_than_its_design_or_lacks_a_picture():
    results = read_results(FOLDER / "results")
    for (name, scale), content in results.items():
        assert is_current(content, EXPERIMENTS[name]), (
            f"delete the result of {name} at {scale} scale: its design changed"
        )
        for figure in content["outcome"]["figures"]:
            assert (FOLDER / "results" / scale / name / figure["file"]).is_file()


def test_every_figure_of_the_page_on_choosing_is_quoted_from_a_result():
    text = (ROOT / "docs" / "choosing.md").read_text()
    quoted = re.findall(r"`([a-z-]+-[\d.]+)`: ([^|;]+?)(?= \||;|\.(?:\s|$))", text)
    assert len(quoted) > 10
    for name, figure in quoted:
        assert figure in (FOLDER / "results" / "small" / f"{name}.json").read_text(), f"{name}: {figure}"


def test_the_page_on_choosing_names_every_loss_head_and_rule_with_figures_of_examples():
    text = (ROOT / "docs" / "choosing.md").read_text()
    assert [name for name in (*LOSSES, *HEADS, *RULES) if f"`{name}`" not in text] == []
    rules = text.partition("\n## Rule")[2].partition("\n## ")[0]
    shown = (ROOT / "docs" / "rules.md").read_text()
    figures = re.findall(r"\d+\.\d+", re.sub(r"`(sets-[a-z]+-\S+)`: [^|;]+", "", rules))
    assert len(figures) > 10
    assert [figure for figure in figures if figure not in shown] == []


def shrunk(settings):
    """Two seeds, one epoch, two points of every grid."""
    if isinstance(settings, dict):
        small = {key: shrunk(value) for key, value in settings.items()}
        for key, size in (("seeds", 2), ("tuning_seeds", 1)):
            if key in small:
                small[key] = small[key][:size]
        if "epochs" in small:
            small["epochs"] = 1
        if "grid" in small:
            small["grid"] = {key: values[: 1 + (at == 0)] for at, (key, values) in enumerate(small["grid"].items())}
        return small
    return [shrunk(value) for value in settings] if isinstance(settings, list) else settings


@pytest.fixture(scope="module")
def data_root(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNABLE)
def test_every_experiment_runs_on_other_data_of_the_same_shape(name, data_root, tmp_path_factory):
    experiment = EXPERIMENTS[name]
    lab = Lab(data_root, tmp_path_factory.mktemp("figures"), data_root / "kept")
    settings = {**shrunk(dict(experiment.scales["small"].settings)), "claims": experiment.claims}
    outcome = study_of(experiment)(settings, experiment.published, lab)
    assert isinstance(outcome, Outcome)
    assert all((lab.figures / figure.file).is_file() for figure in outcome.figures)
