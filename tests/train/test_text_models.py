"""Models on text: features fitted on training rows and saved, sparse layers, and models of earlier versions."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from shortlist.data import Texts, hashed_words, tfidf_words
from shortlist.data.encoders.word_features import HashedWords, TfidfWords
from shortlist.errors import InputError
from shortlist.train import FitOptions, ModelPlan, SparseLinear, build_model, fit, load_model, save_model
from shortlist.train.data_source import with_classes
from shortlist.train.inputs import settle
from tests.train.small_data import label_sets, quick, texts


@pytest.mark.parametrize("encoder", ["auto", "linear", "bag"])
@pytest.mark.parametrize("loss", ["cross_entropy", "average_k"])
def test_a_saved_model_scores_texts_as_the_trained_one_does(tmp_path, encoder, loss):
    data = texts()
    fitted = fit(data, quick(encoder=encoder, loss=loss))
    saved = load_model(save_model(fitted, tmp_path / "model"))
    assert saved.plan.words.terms == fitted.plan.words.terms
    rows = fitted.plan.words.rows(data.inputs.texts).batch(torch.arange(len(data)))
    with torch.no_grad():
        assert torch.equal(saved.scores(data), fitted.model(rows))
    unseen = replace(data.subset([0, 1]), inputs=Texts(["nothing known", ""]))
    assert saved.scores(unseen).isfinite().all()


def test_the_vocabulary_is_that_of_the_training_rows_and_one_implementation_serves_all():
    data = texts()
    changed = [
        f"{text} test" if part != "train" else text for text, part in zip(data.inputs.texts, parts(data), strict=True)
    ]
    data = replace(data, inputs=Texts(changed))
    words = fit(data, quick(text_options={"ngrams": 1, "characters": []})).plan.words
    assert "test" not in words.terms
    again = tfidf_words(data).inputs
    assert again.words.terms == words.terms
    assert torch.equal(again.batch(torch.arange(9)).to_dense(), words.rows(changed).batch(torch.arange(9)).to_dense())


def parts(data) -> list[str]:
    return [data.split.names[index] for index in data.split.index.tolist()]


def test_a_vocabulary_of_another_model_is_refused(tmp_path):
    folder = save_model(fit(texts(), quick()), tmp_path / "model")
    words = json.loads((folder / "words.json").read_text())
    words["terms"][0] = "changed"
    (folder / "words.json").write_text(json.dumps(words))
    with pytest.raises(InputError, match=r"`.*words\.json` does not belong to `.*model\.json`"):
        load_model(folder)
    (folder / "words.json").unlink()
    with pytest.raises(InputError, match=r"cannot be built"):
        load_model(folder)


def test_models_of_earlier_versions_hash_words_and_have_a_bag_below_their_hidden_layers():
    content = {"kind": "sparse features", "shape": [64], "num_labels": 7, "loss": "cross_entropy"}
    plan = ModelPlan.from_json({**content, "words": {"num_features": 64, "ngrams": 1}})
    assert plan.words == HashedWords(64, 1)
    shapes = [tuple(layer.weight.shape) for layer in build_model(plan).modules() if isinstance(layer, nn.Linear)]
    assert shapes == [(256, 256), (256, 256), (7, 256)]


def test_the_former_option_words_still_hashes_and_warns():
    with pytest.warns(DeprecationWarning, match=r"`words` is deprecated; use text='hashed'"):
        options = FitOptions(words=32)
    assert options == FitOptions(text="hashed", text_options={"num_features": 32})
    data = texts()
    fitted = fit(data, quick(text="hashed", text_options={"num_features": 32}))
    assert fitted.plan.words == HashedWords(32, 1)
    rows = hashed_words(data, num_features=32).inputs.batch(torch.arange(5)).to_dense()
    assert torch.equal(fitted.plan.words.rows(data.inputs.texts[:5]).batch(torch.arange(5)).to_dense(), rows)
    with pytest.raises(InputError, match=r"`words` must be an integer of at least 1; got -1\."):
        FitOptions(words=-1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"text_options": {"ngrams": 0}}, r"`text_options` of 'tfidf': `ngrams` must .*; got 0\."),
        ({"text_options": {"characters": [3]}}, r"`characters` must be empty or two ascending lengths .*; got \[3\]\."),
        ({"text_options": {"size": 3}}, r"`text_options` of 'tfidf': .*'size'"),
        ({"text": "hashed", "text_options": {"characters": []}}, r"`text_options` of 'hashed': .*'characters'"),
        ({"text_options": {"min_count": 1000}}, r"must have words that occur in several training rows"),
        ({"encoder": "linear", "head": "bottleneck"}, r"`encoder` 'linear' needs a linear head .*; use 'bag'"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(options, sentence):
    with pytest.raises(InputError, match=sentence):
        fit(texts(), quick(**options))


def test_characters_connect_words_that_share_a_stem():
    words = TfidfWords.fit(["oaks", "oak tree", "fern tree"], ngrams=1, characters=(3, 4), min_count=1)
    oaks, oak, fern = words.rows(["oaks", "oak", "fern"]).batch(torch.arange(3)).to_dense()
    assert float(oaks @ oak) > 0.15 > float(oaks @ fern) == 0
    assert torch.allclose(oaks.norm(), torch.tensor(1.0))


def test_a_sparse_linear_layer_is_a_linear_layer():
    torch.manual_seed(0)
    layer = SparseLinear(6, 4)
    nn.init.normal_(layer.columns.vectors.weight)
    rows = torch.tensor([[0.0, 2, 0, 1, 0, 0], [0.0, 0, 0, 0, 0, 0]])
    expected = nn.functional.linear(rows, layer.weight, layer.bias)
    torch.testing.assert_close(layer(hashed_like(rows)), expected)


def hashed_like(rows: torch.Tensor) -> torch.Tensor:
    from shortlist.data.target_rows import csr

    columns = rows.nonzero()
    crow = torch.tensor([0, *rows.ne(0).sum(1).cumsum(0).tolist()])
    return csr(crow, columns[:, 1], rows[rows != 0], rows.shape[1])


def test_one_label_per_row_is_a_class_and_other_rows_stay_sets():
    sets = label_sets()
    assert with_classes(sets) is sets
    lists = replace(texts(), targets=texts().targets.unsqueeze(1))
    assert torch.equal(with_classes(lists).targets, texts().targets)
    classes = texts()
    assert with_classes(classes) is classes
    one_without = lists.targets.clone()
    one_without[3] = -1
    changed = replace(lists, targets=one_without)
    assert with_classes(changed) is changed


def test_a_run_on_text_leaves_only_the_files_of_a_model(tmp_path: Path):
    folder = save_model(fit(texts(), quick()), tmp_path)
    assert {path.name for path in folder.iterdir()} == {"README.md", "model.json", "model.safetensors", "words.json"}


def test_texts_with_thousands_of_labels_train_as_long_as_other_sparse_features(monkeypatch):
    few = settle(FitOptions(), texts())
    monkeypatch.setattr("shortlist.train.inputs.MANY_LABELS", texts().num_labels)
    many = settle(FitOptions(), texts())
    others = FitOptions().settled("sparse features", len(texts().part_rows("train")))
    names = ("epochs", "learning_rate", "batch_size")
    assert [getattr(many, name) for name in names] == [getattr(others, name) for name in names]
    assert many.epochs > few.epochs
