"""``shortlist calibrate``: the rule of the library, and what it holds."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from shortlist.cli import calibrate, main
from shortlist.metrics import MacroF1, MicroF1, SetCoverage
from shortlist.predict import CALIBRATORS, RULES
from shortlist.sets import (
    AdaptiveConformal,
    AverageError,
    AverageK,
    CheapestCover,
    ClassConditional,
    CovariateShift,
    DeepestNode,
    ExpectedF,
    ExpectedUtility,
    GroupConditional,
    LabelShift,
    NoneOfThese,
    OnlineAverageK,
    OnlineConformal,
    PerLabelThreshold,
    PointwiseError,
    RankCalibrated,
    RecallControl,
    RiskControl,
    SelectiveAnswers,
    SetRule,
    TopK,
    false_discovery_rate,
    label_ratios,
    load_rule,
    set_size,
    u80,
)
from shortlist.taxonomy import taxonomy_from_parents
from shortlist.train import load_model
from shortlist.train.data_source import open_training_data
from tests.cli.command import command
from tests.cli.score_files import BLOCK, CLASSES, HOT, LOGITS, PARENTS, ROWS, SCORES

run, refused = command("calibrate")
TREE = taxonomy_from_parents(PARENTS, labels=list("012345"))
RATIOS = [1.0, 2.0, 0.5, 1.0, 0.0, 1.5]
GIVEN = {"groups": ["north", "south"] * (ROWS // 2), "weights": [1 + row % 3 for row in range(ROWS)]}


@pytest.fixture
def row_files(score_files):
    """What is given for each row and each label, as text and as a column of a table."""
    Path("sites.txt").write_text("\n".join(GIVEN["groups"]) + "\n")
    rows = "".join(f"{row},{weight}\n" for row, weight in enumerate(GIVEN["weights"]))
    Path("rows.csv").write_text("row,weight\n" + rows)
    Path("ratios.txt").write_text("\n".join(map(str, RATIOS)) + "\n")


CASES = {
    "top-k": (["--k", "2"], None, TopK(2)),
    "average-k": (["--k", "2.5"], None, AverageK(2.5)),
    "average-k, sigmoid": (
        ["--k", "2.5", "--link", "sigmoid", "--min-size", "1"],
        None,
        AverageK(2.5, link="sigmoid", min_size=1),
    ),
    "average-error": (["--alpha", "0.2"], "y.txt", AverageError(0.2)),
    "pointwise-error": (["--alpha", "0.2"], "y.txt", PointwiseError(0.2)),
    "pointwise-error, raps": (
        ["--alpha", "0.2", "--penalty", "0.1", "--free", "2", "--deterministic"],
        "y.txt",
        PointwiseError(0.2, penalty=0.1, free=2, randomized=False),
    ),
    "class-conditional": (["--alpha", "0.2"], "y.txt", ClassConditional(0.2)),
    "class-conditional, clusters": (
        ["--alpha", "0.2", "--clusters", "2", "--min-count", "3"],
        "y.txt",
        ClassConditional(0.2, clusters=2, min_count=3),
    ),
    "rank-calibrated": (["--alpha", "0.2", "--rank-share", "0.25"], "y.txt", RankCalibrated(0.2, rank_share=0.25)),
    "group-conditional": (["--alpha", "0.2", "--groups", "sites.txt"], "y.txt", GroupConditional(0.2)),
    "covariate-shift": (["--alpha", "0.2", "--weights", "rows.csv:weight"], "y.txt", CovariateShift(0.2)),
    "label-shift": (["--alpha", "0.2", "--ratios", "ratios.txt"], "y.txt", LabelShift(0.2, ratios=RATIOS)),
    "adaptive-conformal": (["--alpha", "0.2", "--step", "0.1"], "y.txt", AdaptiveConformal(0.2, step=0.1)),
    "online-conformal": (["--alpha", "0.2", "--decay", "0.5"], "y.txt", OnlineConformal(0.2, decay=0.5)),
    "online-average-k": (["--k", "2"], None, OnlineAverageK(2)),
    "selective": (
        ["--max-error", "0.4", "--confidence", "margin"],
        "y.txt",
        SelectiveAnswers(0.4, confidence="margin"),
    ),
    "none-of-these, logits": (
        ["--alpha", "0.2", "--familiarity", "max-logit"],
        None,
        NoneOfThese(0.2, score="max-logit"),
    ),
    "deepest-node": (["--alpha", "0.2", "--taxonomy", "tree.csv"], "y.txt", DeepestNode(0.2, TREE)),
    "cheapest-cover": (
        ["--alpha", "0.2", "--taxonomy", "tree.csv", "--name-cost", "0.5"],
        "y.txt",
        CheapestCover(0.2, TREE, name_cost=0.5),
    ),
    "recall-control": (["--alpha", "0.2"], "hot.npy", RecallControl(0.2)),
    "risk-control": (
        ["--risk", "precision", "--alpha", "0.6", "--delta", "0.1"],
        "hot.npy",
        RiskControl(false_discovery_rate, 0.6, 0.1),
    ),
    "risk-control, size": (["--risk", "size", "--alpha", "2.5"], "hot.npy", RiskControl(set_size(), 2.5)),
    "expected-utility": (["--utility", "u80"], None, ExpectedUtility(u80)),
    "expected-f": (["--beta", "2"], None, ExpectedF(2.0)),
    "per-label": ([], "hot.npy", PerLabelThreshold()),
    "per-label, size": (
        ["--objective", "average-size", "--k", "2", "--prior", "3"],
        "hot.npy",
        PerLabelThreshold("average-size", 2, prior=3),
    ),
}


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        (case, kind)
        for case in CASES
        for kind in ("logits", "probabilities")
        if kind != "probabilities" or not case.endswith((", sigmoid", ", logits"))
    ],
)
def test_every_rule_equals_that_of_the_library_fitted_in_one_call(row_files, capsys, case, kind):
    arguments, labels, rule = CASES[case]
    scores = SCORES[kind]
    target = {None: None, "y.txt": CLASSES, "hot.npy": HOT}[labels]
    given = {rule.row_option: GIVEN[rule.row_option]} if rule.row_option else {}
    rule.fit(scores, target, from_logits=kind == "logits", **given)
    files = [f"{kind}.npy", *([labels] if labels else [])]
    name = case.split(",")[0]
    code, out, err = run(capsys, *files, f"--{kind}", "--rule", name, *arguments, "-o", "out/rule.json", "--json")
    assert (code, err) == (0, "")
    saved, told = load_rule("out/rule.json"), json.loads(out)
    assert os.listdir("out") == ["rule.json"]
    assert {**saved.options(), "rows": None} == {**rule.options(), "rows": None}
    assert (saved.link, saved.min_size, saved.from_logits) == (rule.link, rule.min_size, rule.from_logits)
    for (name, mine), (_, theirs) in zip(saved.named_buffers(), rule.named_buffers(), strict=True):
        assert torch.equal(mine, theirs), name
    assert saved.evidence == rule.evidence == told["evidence"]
    check_figures(told["sets"], rule, scores, target, given)


def test_the_ratios_of_classes_are_estimated_from_new_rows(row_files, capsys):
    chosen = torch.cat([torch.arange(ROWS), (CLASSES == 1).nonzero()[:, 0].repeat(5)])
    np.save("new.npy", LOGITS[chosen].numpy())
    line = ("logits.npy", "y.txt", "--logits", "--rule", "label-shift", "--alpha", "0.2")
    code, out, err = run(capsys, *line, "--new", "new.npy", "--json", "-o", "rule.json")
    assert (code, err) == (0, "")
    guesses = LOGITS.argmax(-1)
    confusion = torch.zeros(6, 6).index_put((guesses, CLASSES), torch.tensor(1.0), accumulate=True)
    wanted = label_ratios(confusion, guesses[chosen].bincount(minlength=6))
    assert wanted.argmax() == 1
    assert wanted.max() > 2
    assert json.loads(out)["options"]["ratios"] == load_rule("rule.json").ratios == pytest.approx(wanted.tolist())
    assert "estimated from new.npy" in json.loads(out)["warnings"][0]
    assert "needs either --ratios or --new" in refused(capsys, *line)
    assert "needs either --ratios or --new" in refused(capsys, *line, "--new", "new.npy", "--ratios", "ratios.txt")
    np.save("new.npy", LOGITS[:, :4].numpy())
    assert "`new.npy` must have the 6 labels of `logits.npy`; it has 4" in refused(capsys, *line, "--new", "new.npy")


def check_figures(told: dict, rule: SetRule, scores: torch.Tensor, target: torch.Tensor | None, given: dict) -> None:
    """The metrics are those of sets predicted in one call, except for the few labels that tie with a threshold."""
    sets = rule.predict(scores, generator=torch.Generator().manual_seed(1), **given)
    assert told["average_size"] == pytest.approx(float(sets.sizes.double().mean()), abs=0.03)
    assert sum(told["sizes"].values()) == ROWS
    assert told["empty"] == told["sizes"].get("0", 0)
    if target is None:
        assert not {"coverage", "recall", "error"} & told.keys()
        return
    coverage = float(SetCoverage()(sets, target))
    assert told["coverage" if target.ndim == 1 else "recall"] == pytest.approx(coverage, abs=0.01)
    if target.ndim == 2:
        mask = sets.to_mask().float()
        assert told["micro_f1"] == pytest.approx(float(MicroF1(threshold=0.5)(mask, target)), abs=1e-9)
        assert told["macro_f1"] == pytest.approx(float(MacroF1(6, threshold=0.5)(mask, target)), abs=1e-9)


def test_the_list_of_cases_holds_every_rule():
    assert {case.split(",")[0] for case in CASES} == RULES.keys()


def test_predict_answers_with_the_names_of_the_nodes(score_files, capsys):
    given = ("--rule", "deepest-node", "--alpha", "0.1", "--taxonomy", "tree.csv", "-o", "rule.json")
    code, out, err = run(capsys, "logits.npy", "y.txt", "--logits", *given)
    assert (code, err) == (0, "")
    assert "the node lacks the true label with probability at most 0.1" in out
    wanted = DeepestNode(0.1, TREE).fit(LOGITS, CLASSES, from_logits=True).predict_nodes(LOGITS).to_list()
    for output in (["-o", "sets.jsonl"], []):
        assert main(["predict", "logits.npy", "--logits", "--rule", "rule.json", "--seed", "0", *output]) == 0
        printed = capsys.readouterr().out
        lines = (Path("sets.jsonl").read_text() if output else printed).splitlines()
        found = [json.loads(line)["labels"] for line in lines]
        assert len({tuple(names) for names in found}) > 6
        assert sum(a != b for a, b in zip(found, wanted, strict=True)) <= 1  # one true label ties with the threshold


def test_a_taxonomy_that_does_not_fit_is_one_sentence(score_files, capsys):
    given = ("logits.npy", "y.txt", "--logits", "--rule", "deepest-node", "--alpha", "0.1")
    assert "--rule deepest-node needs --taxonomy" in refused(capsys, *given)
    assert "`none.csv` cannot be read" in refused(capsys, *given, "--taxonomy", "none.csv")
    Path("short.csv").write_text("child,parent\n0,a\n")
    assert "`short.csv`: a label must have a parent; '1' has none" in refused(capsys, *given, "--taxonomy", "short.csv")
    wrong = ("logits.npy", "y.txt", "--logits", "--rule", "average-error", "--alpha", "0.1", "--taxonomy", "tree.csv")
    assert "--taxonomy does not apply to --rule average-error" in refused(capsys, *wrong)


def test_what_is_given_for_rows_must_suit_the_rule_and_the_rows(row_files, capsys):
    given = ("logits.npy", "y.txt", "--logits", "--alpha", "0.2", "--rule")
    assert "`group-conditional` needs --groups" in refused(capsys, *given, "group-conditional")
    assert "--groups does not apply" in refused(capsys, *given, "average-error", "--groups", "sites.txt")
    assert "`rows.csv` has no column 'mass'" in refused(capsys, *given, "covariate-shift", "--weights", "rows.csv:mass")
    for line, sentence in (
        ("inf", "`w.txt` row 1 must be a finite number, at least 0; got 'inf'"),
        ("-1", "at least 0; got '-1'"),
        ("x", "got 'x'"),
    ):
        Path("w.txt").write_text(f"1\n{line}\n")
        assert sentence in refused(capsys, *given, "covariate-shift", "--weights", "w.txt")
    Path("w.txt").write_text("1\n1\n")
    assert "must have one weight per row of scores, 400; it has 2" in refused(
        capsys, *given, "covariate-shift", "--weights", "w.txt"
    )
    Path("w.txt").write_text("0\n" * ROWS)
    assert "must have a positive sum" in refused(capsys, *given, "covariate-shift", "--weights", "w.txt")
    assert "must have one ratio per label, 6; it has 400" in refused(capsys, *given, "label-shift", "--ratios", "w.txt")
    assert "`alpha` must lie strictly between 0 and 1" in refused(
        capsys, "logits.npy", "--logits", "--rule", "none-of-these", "--alpha", "1"
    )


def test_sets_of_groups_and_of_rules_that_abstain_are_those_of_the_library(row_files, capsys):
    line = ("logits.npy", "y.txt", "--logits", "--alpha", "0.2", "--rule", "group-conditional")
    assert run(capsys, *line, "--groups", "sites.txt", "-o", "group.json")[0] == 0
    assert main(["predict", "logits.npy", "--logits", "--rule", "group.json", "--groups", "sites.txt", "--seed=0"]) == 0
    found = [json.loads(line)["labels"] for line in capsys.readouterr().out.splitlines()]
    rule = GroupConditional(0.2).fit(LOGITS, CLASSES, from_logits=True, groups=GIVEN["groups"])
    wanted = rule.predict(LOGITS, groups=GIVEN["groups"]).to_list()
    assert sum(a != b for a, b in zip(found, wanted, strict=True)) <= 2  # a true label of each group ties
    Path("sites.txt").write_text("west\n" * ROWS)
    assert main(["predict", "logits.npy", "--logits", "--rule", "group.json", "--groups", "sites.txt"]) == 2
    assert "row 0 has 'west', which had no calibration row" in capsys.readouterr().err
    assert run(capsys, "logits.npy", "--logits", "--rule=none-of-these", "--alpha=0.2", "-o", "none.json")[0] == 0
    wanted = NoneOfThese(0.2).fit(LOGITS, from_logits=True).predict(LOGITS)
    for output in ("sets.jsonl", "sets.csv", "sets.parquet"):
        assert main(["predict", "logits.npy", "--logits", "--rule", "none.json", "-o", output]) == 0
    told = [json.loads(line) for line in Path("sets.jsonl").read_text().splitlines()]
    assert [row["abstained"] for row in told] == wanted.abstained.tolist()
    assert [row["labels"] for row in told] == wanted.to_list()
    lines = Path("sets.csv").read_text().splitlines()
    assert [line.split(",")[-1] for line in lines] == ["abstained", *(str(row["abstained"]).lower() for row in told)]
    table = pytest.importorskip("pyarrow.parquet").read_table("sets.parquet")
    assert table["abstained"].to_pylist() == wanted.abstained.tolist()


def test_a_table_tells_aim_size_error_and_promise(score_files, capsys):
    arguments = ("both.npz", "both.npz", "--key", "logits", "--labels-key", "y", "--logits")
    code, out, err = run(capsys, *arguments, "--rule", "average-error", "--alpha", "0.2")
    assert (code, err) == (0, "")
    rule = AverageError(0.2).fit(LOGITS, CLASSES, from_logits=True)
    assert out.startswith("average-error on 400 rows of 6 labels\n")
    assert f"average error: 20% wanted, {100 * rule.evidence['achieved']:.3g}% on these rows" in out
    generator = torch.Generator().manual_seed(0)  # One true score ties with the threshold: it is the threshold.
    sizes = [rule.predict(part, generator=generator).sizes for part in LOGITS.split(BLOCK)]
    assert f"{torch.cat(sizes).double().mean():.4g} labels on average" in out
    assert "of rows have their true label inside" in out
    assert "for new rows like these the true label is missing with probability at most 0.2" in out
    assert out.endswith("The rule was not saved; use --output FILE to save it.\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["logits.npy", "y.txt", "--rule", "top-k", "--k", "2"], "size: 2 wanted, 2 on these rows"),
        (["logits.npy", "y.txt", "--rule", "top-k", "--k", "2"], "true label inside"),
        (["logits.npy", "--rule", "average-k", "--k", "2", "--min-size", "1"], "the minimum size of 1 adds labels"),
        (["logits.npy", "y.txt", "--rule", "class-conditional", "--alpha", "0.2"], "in the worst class of these rows"),
        (
            ["logits.npy", "y.txt", "--rule", "class-conditional", "--alpha", "0.001"],
            "6 classes with too few rows share",
        ),
        (
            ["logits.npy", "y.txt", "--rule", "average-error", "--alpha", "0.001"],
            "too few rows for an alpha of 0.001",
        ),
        (["logits.npy", "hot.npy", "--rule", "recall-control", "--alpha", "0.2"], "rows without a true label"),
        (["logits.npy", "hot.npy", "--rule", "per-label"], "F1 over all labels: "),
        (["logits.npy", "--rule", "expected-utility", "--utility", "u65"], "greatest expected utility"),
        (
            ["logits.npy", "hot.npy", "--rule", "risk-control", "--risk=precision", "--alpha=0.001", "--delta=0.1"],
            "no threshold is sure to keep an alpha of 0.001",
        ),
    ],
)
def test_the_table_shows_aims_notes_and_warnings(score_files, capsys, arguments, expected):
    code, out, _ = run(capsys, *arguments, "--logits", "-o", "rule.json")
    assert code == 0
    assert expected in out
    assert out.endswith("Rule: rule.json\n")


def test_a_full_disk_is_reported_and_the_old_rule_stays(score_files, capsys, monkeypatch):
    Path("rule.json").write_text("before")

    def write_text(path, text, *rest, **options):
        path.open("w").close()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write_text)
    code, out, err = run(capsys, "logits.npy", "--logits", "--rule", "top-k", "--k", "2", "-o", "rule.json")
    assert (code, out) == (2, "")
    assert err == "shortlist: `rule.json` cannot be written: No space left on device.\n"
    assert Path("rule.json").read_text() == "before"
    assert not list(Path().glob(".*partial"))


def test_a_model_is_calibrated_on_its_validation_rows_and_predicts_with_the_rule(model_folder, capsys):
    arguments = ["plain", "--data", "plain.csv", "--rule", "average-error", "--alpha", "0.2", "--output", "rule.json"]
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    parts = open_training_data("plain.csv", format=None, reader={"label": "species"}, seed=0)
    val = parts.part("val")
    expected = AverageError(0.2).fit(load_model("plain").scores(val), val.targets, from_logits=True)
    found = load_rule("rule.json")
    assert json.loads(out)["evidence"]["rows"] == len(val)
    torch.testing.assert_close(found.threshold, expected.threshold)
    assert main(["predict", "plain", "--data", "plain.csv", "--rule", "rule.json", "--output", "sets.jsonl"]) == 0
    assert len(Path("sets.jsonl").read_text().splitlines()) == len(parts)


def test_a_model_takes_no_files_of_labels(model_folder, capsys):
    line = ["plain", "labels.txt", "--data", "plain.csv", "--rule", "average-error", "--alpha", "0.2"]
    assert "LABELS is for files of scores, but `plain` is a model." in refused(capsys, *line)


def test_a_size_is_calibrated_on_rows_without_labels_and_an_error_is_not(model_folder, tmp_path, capsys):
    rows = [line.split(",") for line in Path("plain.csv").read_text().splitlines()]
    label = rows[0].index("species")
    unlabelled = tmp_path / "new.csv"
    unlabelled.write_text("".join(",".join(row[:label] + row[label + 1 :]) + "\n" for row in rows))
    line = ["plain", "--data", str(unlabelled), "--output", str(tmp_path / "rule.json")]
    code, out, err = run(capsys, *line, "--rule", "average-k", "--k", "2", "--json")
    assert code == 0
    assert json.loads(out)["evidence"]["rows"] == len(rows) - 1
    assert "the error of the sets is not reported, since no labels were read" in err
    assert "species" in refused(capsys, *line, "--rule", "average-error", "--alpha", "0.2")


def test_a_recalibrated_model_has_a_better_likelihood_and_fits_its_rules_anew(model_folder, tmp_path, capsys):
    shutil.copytree("plain", tmp_path / "model")
    model, line = str(tmp_path / "model"), ("--data", "plain.csv", "--recalibrate")
    code, out, _ = run(capsys, model, *line, "temperature", "--json")
    content = json.loads(out)
    assert (code, content["calibration"]) == (0, "temperature")
    assert content["evidence"]["nll_after"] <= content["evidence"]["nll_before"]
    saved = load_model(model)
    assert (saved.rule, type(saved.calibrator).__name__) == (None, "TemperatureScaling")
    code, out, _ = run(capsys, model, *line, "isotonic", "--per-label")
    assert code == 0
    assert "negative log likelihood" in out
    assert "Rules of the model were removed; fit them again." in out
    assert run(capsys, model, "--data", "plain.csv", "--rule", "average-k", "--k", "2")[0] == 0
    assert load_model(model).rule is not None


def test_recalibration_refuses_what_does_not_belong_to_it(model_folder, capsys):
    assert set(calibrate._CALIBRATORS) == set(CALIBRATORS)
    line = ("plain", "--data", "plain.csv")
    assert "--rule must name a rule, or --recalibrate a kind of calibration." in refused(capsys, *line)
    beta = (*line, "--recalibrate", "beta")
    assert "--rule does not apply to --recalibrate; rules are" in refused(capsys, *beta, "--rule", "top-k")
    assert "--k does not apply to --recalibrate" in refused(capsys, *beta, "--k", "2")
    wrong = ("--recalibrate", "vector", "--per-label")
    assert "--per-label is for isotonic and beta, not for vector." in refused(capsys, *line, *wrong)
    file = ("val.npy", "--logits", "--recalibrate", "beta")
    assert "--recalibrate is for models, but `val.npy` is not a folder" in refused(capsys, *file)
