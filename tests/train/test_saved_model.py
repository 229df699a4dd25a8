"""A saved model predicts as before, in any process; a damaged or half-written folder is refused."""

import json
import re
import shutil
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors

from shortlist.errors import InputError
from shortlist.sets import AverageK, TopK
from shortlist.train import Fitted, evaluate, export_onnx, fit, load_model, save_model
from shortlist.train.evaluation import model_scores
from shortlist.train.inputs import prepare_inputs
from tests.python_process import run_python
from tests.train.small_data import ENCODERS, KINDS, classes, features, label_sets, quick

HEADS = {
    "one head": {},
    "two heads": {"loss": "average_k"},
    "cosine": {"loss": "ldam"},
    "bottleneck": {"head": "bottleneck", "head_options": {"bottleneck": 2}},
    "dft": {"head": "dft", "head_options": {"k": 2}},
}


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return fit(classes(), quick(epochs=2, loss_options={"weight": torch.ones(7)}))


@pytest.fixture(scope="module")
def other() -> Fitted:
    return fit(classes(), quick(epochs=2, seed=5))


@pytest.fixture
def folder(fitted, tmp_path) -> Path:
    return save_model(fitted, tmp_path / "model", rule=evaluate(fitted, classes()).rule)


def scores_of(run: Fitted) -> torch.Tensor:
    return model_scores(run.model, classes(), 7)


def refused(folder: Path, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence[:-1]}\\.$") as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def rewrite(folder: Path, **changes: Any) -> None:
    document = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**document, **changes}))


def with_parameters(folder: Path, content: bytes) -> None:
    """Parameters whose digest is right."""
    (folder / "model.safetensors").write_bytes(content)
    rewrite(folder, parameters=blake2b(content, digest_size=16).hexdigest())


def test_a_folder_holds_only_json_safetensors_and_a_page(folder, fitted):
    files = ["README.md", "model.json", "model.safetensors", "rule.json"]
    assert sorted(path.name for path in folder.iterdir()) == files
    for path in folder.glob("*.json"):
        assert isinstance(json.loads(path.read_text()), dict)
    tensors = load_file(folder / "model.safetensors")
    assert tensors.keys() == fitted.model.state_dict().keys()
    assert all(torch.equal(tensors[name], value) for name, value in fitted.model.state_dict().items())


def test_loading_does_not_unpickle(folder, monkeypatch):
    def unpickle(*arguments, **options):
        raise AssertionError

    for name in ("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load"):
        monkeypatch.setattr(name, unpickle)
    assert load_model(folder).rule is not None


@pytest.mark.slow
def test_another_process_loads_it_and_predicts_the_same_sets(folder, fitted, tmp_path):
    np.save(tmp_path / "inputs.npy", features(classes()).numpy())
    code = (
        "import sys, numpy, torch; from shortlist.train import load_model; saved = load_model(sys.argv[1]); "
        "logits = saved.model(torch.from_numpy(numpy.load(sys.argv[2]))).detach(); "
        "numpy.savez(sys.argv[3], logits=logits, sets=saved.rule(logits))"
    )
    assert not run_python("-c", code, str(folder), str(tmp_path / "inputs.npy"), str(tmp_path / "out.npz")).stdout
    found = np.load(tmp_path / "out.npz")
    assert np.allclose(found["logits"], scores_of(fitted), atol=1e-6)
    assert np.array_equal(found["sets"], evaluate(fitted, classes()).rule(torch.from_numpy(found["logits"])))


def test_a_new_model_replaces_the_old_one_and_its_rule(folder, other):
    save_model(other, folder)
    saved = load_model(folder)
    assert saved.rule is None
    assert torch.equal(saved.scores(classes()), scores_of(other))
    assert not (folder / "rule.json").exists()


def test_inputs_of_another_kind_or_shape_are_refused(folder):
    saved = load_model(folder)
    for data in (KINDS["images"](), KINDS["text"](), KINDS["sparse features"]()):
        with pytest.raises(ValueError, match=r"^`dataset` must have features of shape \(4,\); got .*\.$"):
            saved.scores(data)
    wide = replace(classes(), inputs=type(classes().inputs)(torch.zeros(240, 5)))
    with pytest.raises(ValueError, match=r"^`dataset` must have features of shape \(4,\); got features \(5,\)\.$"):
        saved.scores(wide)


def test_parameters_that_do_not_fit_the_plan_are_refused_even_with_the_right_digest(folder, fitted):
    state = fitted.model.state_dict()
    few = dict(list(state.items())[1:])
    wide = {name: torch.zeros(3, *value.shape) for name, value in state.items()}
    for content in (to_safetensors(few), to_safetensors(wide), b"no safetensors", b""):
        with_parameters(folder, content)
        refused(folder, f"`{re.escape(str(folder))}` cannot be built: [A-Z].*[^.:].")


def test_a_rule_for_other_labels_is_refused(folder):
    TopK(1).fit(torch.rand(5, 3), torch.zeros(5, dtype=torch.int64), from_logits=False).save(folder / "rule.json")
    refused(folder, "`.*rule.json` is for 3 labels; the model has 7.")


class Full:
    """A disk on which the n-th write fails halfway."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def __call__(self, write):
        def limited(path: Path, content, *arguments, **options) -> int:
            self.left -= 1
            if self.left < 0:
                write(path, content[: len(content) // 2], *arguments, **options)
                raise OSError(28, "No space left on device")
            return write(path, content, *arguments, **options)

        return limited


@pytest.mark.parametrize("writes", range(5))
@pytest.mark.parametrize(("with_rule", "before"), [(True, True), (False, True), (True, False)])
def test_a_full_disk_leaves_the_old_model_or_none_but_no_mixture(
    fitted, other, tmp_path, monkeypatch, writes, with_rule, before
):
    folder = tmp_path / "model"
    if before:
        save_model(fitted, folder, rule=evaluate(fitted, classes()).rule)
    rule = evaluate(other, classes()).rule if with_rule else None
    disk = Full(writes)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", disk(Path.write_bytes))
        # On some releases of Python one calls the other; only the outer one counts here.
        patch.setattr(Path, "write_text", disk(Path.write_text))
        try:
            save_model(other, folder, rule=rule)
            done = True
        except OSError as error:
            assert error.errno == 28  # noqa: PT017
            done = False
    assert done == (writes >= (4 if with_rule else 3))
    assert not list(folder.glob(".*"))
    try:
        saved = load_model(folder)
    except ValueError as error:
        assert not done
        assert re.fullmatch(r"`.*` .*\.", str(error))  # noqa: PT017
        assert writes > 0 or not before
        return
    expected, kept = (other, with_rule) if done else (fitted, True)
    assert done or before
    assert torch.equal(saved.scores(classes()), scores_of(expected))
    assert (saved.rule is not None) == kept
    if kept:
        wanted = evaluate(expected, classes()).rule(scores_of(expected))
        assert torch.equal(saved.rule(scores_of(expected)), wanted)


ONNX = {
    "features": (lambda: fit(classes(), quick(epochs=2)), lambda: features(classes())),
    "two heads": (lambda: fit(classes(), quick(loss="average_k", k=2.5)), lambda: features(classes())),
    "sets": (lambda: fit(label_sets(), quick(head="dft", head_options={"k": 2})), lambda: features(label_sets())),
    "images": (
        lambda: fit(KINDS["images"](), quick(encoder="cnn", encoder_options={"width": 2})),
        lambda: features(KINDS["images"]()),
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::UserWarning:onnx.*")
@pytest.mark.parametrize(("name", "with_rule"), [(name, True) for name in ONNX] + [("features", False)])
def test_an_exported_model_computes_the_same_logits_and_sets(tmp_path, name, with_rule):
    train, inputs = ONNX[name]
    run = train()
    rule = None
    if with_rule:
        rule = AverageK(run.options.k, link="softmax").fit(
            model_scores(run.model, KINDS["images"]() if name == "images" else classes(), 7), from_logits=True
        )
    saved = load_model(save_model(run, tmp_path / "model", rule=rule))
    path = export_onnx(saved, tmp_path / "out" / "model.onnx")
    session = onnxruntime.InferenceSession(path)
    assert [entry.name for entry in session.get_outputs()] == ["logits", "sets"][: 1 + with_rule]
    assert [entry.name for entry in path.parent.iterdir()] == ["model.onnx"]
    for rows in (slice(0, 1), slice(3, 40), slice(None)):
        batch = inputs()[rows]
        with torch.no_grad():
            logits = saved.model(batch)
        found = session.run(None, {"inputs": batch.numpy()})
        assert np.allclose(found[0], logits, atol=1e-5)
        if saved.rule is not None:
            clear = (logits.softmax(-1) - saved.rule.threshold).abs() > 1e-5
            assert clear.double().mean() > 0.99
            assert np.array_equal(found[1][clear], saved.rule(logits)[clear])


@pytest.mark.parametrize("options", HEADS.values(), ids=list(HEADS))
def test_a_saved_model_computes_the_same_scores(tmp_path, options):
    data = classes()
    fitted = fit(data, quick(**options))
    saved = load_model(save_model(fitted, tmp_path / "model"))
    assert torch.equal(saved.scores(data), scores_of(fitted))
    assert (saved.plan, saved.label_names, saved.rule) == (fitted.plan, data.label_names, None)
    assert not saved.model.training


@pytest.mark.parametrize("kind", ["sparse features", "text", "images"])
def test_other_inputs_are_scored_as_before(tmp_path, kind):
    data = KINDS[kind]()
    fitted = fit(data, quick(encoder_options=ENCODERS[kind]))
    saved = load_model(save_model(fitted, tmp_path))
    wanted = model_scores(fitted.model, prepare_inputs(data, fitted.plan), 7)
    assert torch.equal(saved.scores(data), wanted)
    assert torch.allclose(saved.scores(data, batch_size=7), wanted, atol=1e-5)
    assert saved.scores(data.subset([])).shape == (0, 7)


def test_the_rule_and_the_training_are_saved(folder, fitted):
    saved = load_model(folder)
    assert isinstance(saved.rule, AverageK)
    assert torch.equal(saved.rule(saved.scores(classes().part("test"))).sum(-1), evaluate(fitted, classes()).sizes)
    assert saved.about["options"] == fitted.options.to_json()
    assert saved.about["history"] == fitted.history
    assert (saved.about["monitor"], saved.about["best_epoch"]) == (fitted.monitor, fitted.best_epoch)


def test_a_comparison_names_one_of_its_models(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "bce-0")
    (tmp_path / "comparison.json").touch()
    with pytest.raises(ValueError, match=rf"^`{tmp_path}` is a comparison: name one of its models, such as `.*-0`\.$"):
        load_model(tmp_path)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "rule.json"])
@pytest.mark.parametrize("share", [None, 0.9])
def test_a_missing_or_truncated_file_is_refused(folder, name, share):
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if share is not None:
        path.write_bytes(content[: int(share * len(content))])
    refused(folder, f"`{re.escape(str(path))}` .*.")


def test_parameters_that_were_changed_or_belong_to_another_model_are_refused(folder, other, tmp_path):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    save_model(other, tmp_path / "other")
    for damaged in (content, (tmp_path / "other" / "model.safetensors").read_bytes()):
        path.write_bytes(damaged)
        refused(folder, "`.*model.safetensors` does not belong to `.*model.json`.")


PLAN = {"kind": "features", "shape": [4], "num_labels": 7, "loss": "lml_nll"}


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": None},
        {"plan": {}},
        {"plan": {**PLAN, "zzz": 1}},
        {"plan": {**PLAN, "shape": 4}},
        {"plan": {**PLAN, "num_labels": "many"}},
        {"plan": {**PLAN, "encoder": "zzz"}},
        {"plan": {**PLAN, "head_options": 3}},
        {"label_names": None},
        {"label_names": ["a", "b"]},
    ],
    ids=str,
)
def test_a_document_that_describes_no_model_is_refused(folder, changes):
    rewrite(folder, **changes)
    refused(folder, f"`{re.escape(str(folder))}` (cannot be built: .*|must have a name for each of 7 labels; .*).")
    rewrite(folder, version=99)
    refused(folder, "`.*model.json` has version 99; this release reads 1.")


def test_a_model_saved_under_a_former_name_of_its_loss_loads_without_a_warning(folder, fitted):
    rewrite(folder, plan={**fitted.plan.to_json(), "loss": "lml"})
    assert load_model(folder).plan.loss == "lml_nll"
