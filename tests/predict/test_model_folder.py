"""What a model's folder offers from Python: rules by name, texts, an audit, and one ONNX file."""

import shutil

import numpy as np
import pytest
import torch

from shortlist.data import Dataset, Groups, Texts
from shortlist.errors import InputError
from shortlist.predict import (
    OnnxModel,
    calibrate_model,
    find_rule,
    iterate_sets,
    open_model,
    read_rule,
    recalibrate_model,
)
from shortlist.sets import AverageK, load_rule
from shortlist.train import FitOptions, evaluate, export_onnx, fit, load_model, save_model

KINDS = ("fox", "hare", "owl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of texts, trained for an epoch, and a table of new rows."""
    names = [KINDS[row % 3] for row in range(90)]
    split = Groups.of([("train", "train", "val", "test")[row % 4] for row in range(90)], order=("train", "val", "test"))
    texts = Texts([f"the {name} is a {name} of {row % 5}" for row, name in enumerate(names)])
    data = Dataset(texts, torch.arange(90) % 3, KINDS, split=split)
    options = FitOptions(k=1, epochs=1, learning_rate=0.1, encoder_options={"hidden": [8]})
    fitted = fit(data, options)
    path = save_model(fitted, tmp_path_factory.mktemp("owls") / "model", rule=evaluate(fitted, data).rule)
    rows = "\n".join(f"the {name} is here,{name}" for name in names)
    (path.parent / "new.csv").write_text(f"text,label\n{rows}\na zebra,zebra\n")
    return path


def test_a_rule_is_added_and_the_former_one_stays_by_name(folder):
    data = str(folder.parent / "new.csv")
    rule = calibrate_model(folder, data, "average_error", alpha=0.2)
    assert (load_rule(find_rule(folder)).options(), rule.evidence["rows"]) == (rule.options(), 90)
    assert isinstance(load_rule(find_rule(folder, "average-k")), AverageK)
    assert load_model(folder).rule is not None
    with pytest.raises(InputError, match=r"has no rule 'top-k': `shortlist calibrate .* --rule top-k` adds it"):
        find_rule(folder, "top_k")
    with pytest.raises(InputError, match=r"^`mine` is neither a file nor a rule of `.*`, which has average-k, "):
        find_rule(folder, "mine")
    with pytest.raises(InputError, match="row 90 has the label 'zebra', which"):
        calibrate_model(folder, data, "average_error", alpha=0.2, strict=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::UserWarning:onnx.*")
def test_one_onnx_file_answers_texts_as_the_model_does(folder, tmp_path):
    saved = load_model(folder)
    exported = OnnxModel(export_onnx(saved, tmp_path / "model.onnx"))
    texts = ["the owl is a owl of 2", "the fox", ""]
    found = open_model(folder, texts=texts)
    logits = torch.cat([block.scores for block in found.scores.blocks()])
    assert exported.label_names == KINDS
    assert np.allclose(exported.run(texts)["logits"], logits, atol=1e-5)
    rule = read_rule(find_rule(folder), found.scores)
    sets = [[KINDS[label] for label, _ in one] for _, some in iterate_sets(found.scores, rule) for one in some]
    assert exported.predict(texts[:2]) == sets[:2]
    (tmp_path / "no.onnx").write_bytes(b"no model")
    with pytest.raises(InputError, match="is not a model that `shortlist export` wrote"):
        OnnxModel(tmp_path / "no.onnx")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::UserWarning:onnx.*")
def test_a_calibrated_model_gives_calibrated_scores_everywhere_and_rules_are_fitted_on_them(folder, tmp_path):
    data, copy = str(folder.parent / "new.csv"), tmp_path / "model"
    shutil.copytree(folder, copy)
    texts = ["the owl is a owl of 2", "the fox", ""]

    def scores(**options):
        return torch.cat([block.scores for block in open_model(copy, texts=texts, **options).scores.blocks()])

    raw = scores()
    # Calibrating twice is calibrating once: the second fit sees the scores of the network.
    for kind in ("temperature", "isotonic"):
        calibrator = recalibrate_model(copy, data, kind)
        torch.testing.assert_close(scores(), calibrator.calibrated_logits(raw))
        assert torch.equal(scores(calibrated=False), raw)
        assert load_model(copy).rule is None
        assert not (copy / "rule.json").exists()
    rule = calibrate_model(copy, data, "average_error", alpha=0.2)
    assert set(rule.evidence) >= {"wanted", "achieved"}
    saved = load_model(copy)
    exported = OnnxModel(export_onnx(saved, tmp_path / "model.onnx")).run(texts)
    np.testing.assert_allclose(exported["logits"], scores(), atol=1e-5)
    assert np.array_equal(exported["sets"], rule(torch.from_numpy(exported["logits"])).numpy())
    again = load_model(save_model(saved, tmp_path / "again", rule=saved.rule))
    assert again.calibrator is not None
    (copy / "calibration.json").write_text("{}")
    with pytest.raises(InputError, match="is not a shortlist calibration"):
        load_model(copy)
