"""Hugging Face on tiny random models, offline: the loss of Trainer is ours, and saved models give identical sets."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard, RepoUrl
from transformers import (
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    EvalPrediction,
    Trainer,
    TrainingArguments,
)

from shortlist.data import Dataset, ImageArray, Texts, split_at_random
from shortlist.data.encoders.backbones import load_backbone
from shortlist.functional import bce, cross_entropy, lml_nll, two_way
from shortlist.integrations.transformers import (
    HubModel,
    RuleHubMixin,
    SetRuleCallback,
    compute_metrics,
    trainer_loss,
    use_head,
)
from shortlist.nn import LMLNLL, CosineHead, DFTHead
from shortlist.sets import AverageError, AverageK, load_rule
from shortlist.targets import to_multi_hot
from shortlist.train import FitOptions, evaluate, fit, load_model, save_model
from shortlist.train.card.facts import measured
from shortlist.train.fit import make_run
from tests.integrations.tiny_transformers import WORDS, bert_config, bert_folder, vit_config, vit_folder
from tests.train.small_data import classes as small_classes
from tests.train.small_data import quick

LABELS = 5


class Rows(torch.utils.data.Dataset):
    """Rows of tokens or pixels with labels, as ``Trainer`` takes them."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.rows[row]


def token_rows(number: int, labels: torch.Tensor) -> Rows:
    tokens = torch.randint(4, len(WORDS), (number, 6), generator=torch.Generator().manual_seed(0))
    return Rows([{"input_ids": ids, "labels": label} for ids, label in zip(tokens, labels, strict=True)])


def classes(number: int) -> torch.Tensor:
    return torch.randint(LABELS, (number,), generator=torch.Generator().manual_seed(1))


def hot(number: int) -> torch.Tensor:
    return (torch.rand(number, LABELS, generator=torch.Generator().manual_seed(2)) < 0.4).float()


def bert(num_labels: int = LABELS) -> Any:
    torch.manual_seed(3)
    return AutoModelForSequenceClassification.from_config(bert_config(num_labels))


def vit(num_labels: int = LABELS) -> Any:
    torch.manual_seed(3)
    return AutoModelForImageClassification.from_config(vit_config(num_labels))


def arguments(folder: Any, **options: Any) -> TrainingArguments:
    quiet: dict[str, Any] = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no", "use_cpu": True}
    return TrainingArguments(output_dir=str(folder), num_train_epochs=1, **{**quiet, **options})


def trained(folder: Any, rows: Rows, loss: Any, collator: Any = None, **options: Any) -> Any:
    """One epoch of plain gradient descent, whose steps are the gradients."""
    model = bert()
    steps = (torch.optim.SGD(model.parameters(), lr=1.0), None)
    trainer = Trainer(
        model,
        arguments(folder, max_grad_norm=0.0, **options),
        train_dataset=rows,
        data_collator=collator,
        compute_loss_func=loss,
        optimizers=steps,
    )
    trainer.train()
    return model


@pytest.mark.parametrize(
    ("name", "options", "direct", "labels"),
    [
        ("cross_entropy", {}, cross_entropy, classes(7)),
        ("bce", {}, bce, hot(7)),
        ("lml_nll", {"k": 2}, lambda x, y: lml_nll(x, y, 2), hot(7)),
        ("two_way", {}, two_way, hot(7)),
    ],
)
def test_the_loss_of_a_batch_is_the_direct_computation(name, options, direct, labels):
    rows = token_rows(7, labels)
    outputs = bert()(input_ids=torch.stack([row["input_ids"] for row in rows.rows]))
    expected = direct(outputs.logits, labels)
    assert trainer_loss(name, **options)(outputs, labels) == expected
    assert trainer_loss(name, **options)(outputs, labels, num_items_in_batch=labels.numel()) == expected


def test_the_loss_of_images_is_the_direct_computation_and_reloaded_they_have_the_same_sets(tmp_path):
    pixels = torch.rand(7, 3, 16, 16, generator=torch.Generator().manual_seed(4))
    for name, direct, labels in (("cross_entropy", cross_entropy, classes(7)), ("two_way", two_way, hot(7))):
        model = vit().eval()
        outputs = model(pixel_values=pixels)
        assert trainer_loss(name)(outputs, labels, num_items_in_batch=labels.numel()) == direct(outputs.logits, labels)
    rule = AverageK(2, link="sigmoid").fit(outputs.logits.detach(), hot(7), from_logits=True)
    model.save_pretrained(tmp_path)
    rule.save(tmp_path / "rule.json")
    again = AutoModelForImageClassification.from_pretrained(tmp_path)(pixel_values=pixels)
    assert load_rule(tmp_path / "rule.json").predict(again.logits) == rule.predict(outputs.logits)


@pytest.mark.parametrize(("name", "labels"), [("cross_entropy", classes(6)), ("bce", hot(6))])
def test_accumulated_gradients_are_those_of_the_whole_batch(tmp_path, name, labels):
    rows, loss = token_rows(6, labels), trainer_loss(name)
    whole = trained(tmp_path, rows, loss, per_device_train_batch_size=6)
    # Two parts of unequal size, 4 and 2 rows.
    parts = trained(tmp_path, rows, loss, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    before = bert().state_dict()
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[key], value, atol=1e-6, rtol=1e-4)
    assert not torch.equal(before["classifier.weight"], whole.state_dict()["classifier.weight"])


def padded(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """As collators often do: lists as wide as the longest of the batch."""
    lists = torch.nn.utils.rnn.pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-1)
    return {"input_ids": torch.stack([row["input_ids"] for row in rows]), "labels": lists}


def as_multi_hot(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    batch = padded(rows)
    return {**batch, "labels": to_multi_hot(batch["labels"], LABELS)}


def test_lists_of_different_widths_accumulate_as_multi_hots_and_are_refused_otherwise(tmp_path):
    lists: Any = [torch.tensor(labels) for labels in ([0], [1, 2, 3], [4], [2], [0, 3], [1])]
    rows, parts = token_rows(6, lists), {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}
    whole = trained(tmp_path, rows, trainer_loss("bce"), collator=padded, per_device_train_batch_size=6)
    accumulated = trained(tmp_path, rows, trainer_loss("bce"), collator=as_multi_hot, **parts)
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(accumulated.state_dict()[key], value, atol=1e-6, rtol=1e-4)
    # Their number of rows is lost: the widths 3 and 1 would count as three rows and one.
    with pytest.raises(ValueError, match=r"^`labels` must be index lists of one width .* `targets\.to_multi_hot`\.$"):
        trained(tmp_path, rows, trainer_loss("bce"), collator=padded, **parts)


def test_losses_that_trainer_cannot_serve_are_refused():
    for name in ("average_k", "role"):
        with pytest.raises((ValueError, TypeError), match=r"."):
            trainer_loss(name)
    with pytest.raises(ValueError, match=r"^`options` must be empty for a loss that is built already; got \['k'\]\.$"):
        trainer_loss(LMLNLL(2), k=3)
    with pytest.raises(ValueError, match=r"^`loss` must be one of .*; got 'zzz'\.$"):
        trainer_loss("zzz")


def test_metrics_are_those_of_a_run():
    logits = np.array([[3.0, 2.0, 0.0], [0.0, 2.0, 3.0]], dtype=np.float32)
    one = compute_metrics(2)(EvalPrediction(logits, np.array([0, 1])))
    assert one == {"top1_accuracy": 0.5, "top2_accuracy": 1.0, "average2_accuracy": 1.0}
    several = compute_metrics(1)(EvalPrediction((logits,), np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])))
    assert several["precision@1"] == 1
    assert several["recall@1"] == 0.75


@pytest.mark.parametrize("calibration", [None, token_rows(30, classes(30))], ids=["evaluated rows", "rows of its own"])
def test_a_rule_is_fitted_after_training_and_saved_beside_the_model(tmp_path, calibration):
    held_out = token_rows(40, classes(40))
    callback = SetRuleCallback(AverageError(0.2), calibration)
    evaluated = {"eval_strategy": "epoch"} if calibration is None else {}
    trainer = Trainer(
        bert(),
        arguments(tmp_path, **evaluated),
        train_dataset=token_rows(8, classes(8)),
        eval_dataset=held_out if calibration is None else None,
        compute_loss_func=trainer_loss("cross_entropy"),
        compute_metrics=compute_metrics(2),
        callbacks=[callback],
    )
    trainer.train()
    rows = held_out if calibration is None else calibration
    model: Any = trainer.model
    with torch.no_grad():
        logits = model.eval()(input_ids=torch.stack([row["input_ids"] for row in rows.rows])).logits
    expected = AverageError(0.2).fit(logits, torch.stack([row["labels"] for row in rows.rows]), from_logits=True)
    saved = load_rule(tmp_path / "rule.json")
    torch.testing.assert_close(saved.threshold, expected.threshold)
    trainer.save_model()
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    with torch.no_grad():
        repeated = again(input_ids=torch.stack([row["input_ids"] for row in rows.rows])).logits
    torch.testing.assert_close(repeated, logits)


def test_a_rule_without_rows_says_so(tmp_path):
    trainer = Trainer(
        bert(),
        arguments(tmp_path),
        train_dataset=token_rows(4, classes(4)),
        compute_loss_func=trainer_loss("cross_entropy"),
        callbacks=[SetRuleCallback(AverageK(2))],
    )
    with pytest.raises(ValueError, match=r"^`dataset` must be given if nothing was evaluated during training\.$"):
        trainer.train()


@pytest.mark.parametrize("make", [bert, vit])
def test_heads_are_swapped(make):
    model = use_head(make(3), DFTHead(16, 50, k=2, slack=4))
    assert isinstance(model.classifier, DFTHead)
    assert model.config.num_labels == model.num_labels == 50
    inputs = {"input_ids": torch.tensor([[4, 5]])} if make is bert else {"pixel_values": torch.zeros(1, 3, 16, 16)}
    assert model(**inputs).logits.shape == (1, 50)
    with pytest.raises(ValueError, match=r"^`head` must take 16 features, as `classifier` does; it takes 8\.$"):
        use_head(make(), CosineHead(8, 50))


def text_data() -> Dataset:
    texts = [
        f"{article} {color} {flower}" for article in ("a", "the") for color in WORDS[4:7] for flower in WORDS[7:10]
    ]
    labels = torch.tensor([WORDS.index(text.split()[2]) - 7 for text in texts])
    return split_at_random(Dataset(Texts(texts * 4), labels.repeat(4), ("rose", "daisy", "violet")), seed=0)


def image_data() -> Dataset:
    pixels = torch.randint(256, (60, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60) % 3
    pixels[:, 0] = (labels * 100).to(torch.uint8).view(-1, 1, 1)
    return split_at_random(
        Dataset(ImageArray(pixels.permute(0, 2, 3, 1).numpy()), labels, ("none", "some", "much")), seed=0
    )


CASES = [("text", text_data, bert_folder, "linear"), ("images", image_data, vit_folder, "dft")]


@pytest.mark.parametrize(("kind", "data", "folder", "head"), CASES, ids=["BERT", "ViT"])
def test_fit_trains_a_transformer_that_is_saved_whole(tmp_path, kind, data, folder, head):
    dataset, source = data(), folder(tmp_path / "source")
    options = FitOptions(encoder=f"hf:{source}", head=head, k=1, epochs=2, learning_rate=1e-2)
    fitted = fit(dataset, options)
    rule, test = evaluate(fitted, dataset).rule, dataset.part("test")
    save_model(fitted, tmp_path / "model", rule=rule)
    trained = HubModel(fitted, rule)
    trained.save_pretrained(tmp_path / "hub")
    expected = trained.predict_sets(test)
    shutil.rmtree(source)
    saved = load_model(tmp_path / "model")
    logits = saved.scores(test)
    hub = HubModel.from_pretrained(tmp_path / "hub")
    assert hub.predict_sets(test) == expected
    assert (tmp_path / "hub" / "rule.json").read_bytes() == (tmp_path / "model" / "rule.json").read_bytes()
    assert saved.rule is not None
    assert saved.rule.predict(logits, names=dataset.label_names) == hub.predict_sets(test)
    hub.save_pretrained(tmp_path / "again")
    assert HubModel.from_pretrained(tmp_path / "again").predict_sets(test) == hub.predict_sets(test)
    # What is published says nothing about folders of this machine.
    for name in ("model", "hub", "again"):
        assert not [file for file in (tmp_path / name).iterdir() if str(tmp_path).encode() in file.read_bytes()]
    page = (tmp_path / "again" / "README.md").read_text()
    assert page == (tmp_path / "hub" / "README.md").read_text()
    assert "| encoder, head | hf:source, " in page
    if kind == "text":
        # Padding to a longer neighbor changes nothing, and neither does cutting at the limit.
        alone = torch.cat([saved.scores(test.subset([row])) for row in range(len(test))])
        torch.testing.assert_close(alone, logits, atol=1e-5, rtol=1e-4)


def test_training_starts_at_the_weights_of_the_folder_and_at_random_without(tmp_path):
    source = bert_folder(tmp_path)
    for weights, same in (("DEFAULT", True), (None, False)):
        options = FitOptions(encoder=f"hf:{source}", k=1, encoder_options={"weights": weights, "max_tokens": 8})
        torch.manual_seed(9)
        module, plan = make_run(text_data(), options)
        assert plan.shape == (8,)
        expected = AutoModel.from_pretrained(source).get_input_embeddings().weight
        found: Any = module.model.encoder.network
        assert torch.equal(found.get_input_embeddings().weight, expected) is same


def test_images_are_normalized_as_the_folder_says(tmp_path):
    backbone = load_backbone(f"hf:{vit_folder(tmp_path)}", argument="encoder", weights="DEFAULT")
    assert backbone.resolution == 16
    torch.testing.assert_close(backbone.mean.flatten(), torch.full((3,), 0.4))
    torch.testing.assert_close(backbone.scale.flatten(), torch.full((3,), 0.2))


def test_a_name_that_leads_nowhere_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"^`encoder` 'hf:.*nowhere' cannot be built: .*\.$"):
        fit(text_data(), FitOptions(encoder=f"hf:{tmp_path / 'nowhere'}", k=1))


class Plants(torch.nn.Module, RuleHubMixin):
    """A model of a user, with plain values as arguments."""

    def __init__(self, features: int, labels: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(features, labels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_a_model_of_ones_own_takes_its_rule_along(tmp_path, capsys):
    model = Plants(4, 6)
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    model.use_rule(AverageK(2).fit(model(x).detach(), from_logits=True)).save_pretrained(tmp_path)
    again = Plants.from_pretrained(tmp_path)
    assert again.rule.predict(again(x)) == model.rule.predict(model(x))
    assert not any("rule" in key for key in model.state_dict())
    card = ModelCard.load(tmp_path / "README.md")
    assert "AverageK (k=2, link=softmax). It was fitted on 50 rows" in card.text
    assert "model_hub_mixin" in card.data.tags
    model.use_rule(None).save_pretrained(tmp_path)
    assert "The model has no set rule." in (tmp_path / "README.md").read_text()
    (tmp_path / "README.md").write_text("my own page")
    model.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "my own page"
    assert Plants.from_pretrained(tmp_path).rule is None
    assert capsys.readouterr().out == ""
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model\.safetensors` does not exist\.$"):
        Plants.from_pretrained(tmp_path)


def test_the_card_that_is_pushed_has_the_figures_of_the_folder(tmp_path, monkeypatch):
    data = small_classes()
    fitted = fit(data, quick())
    found = evaluate(fitted, data)
    folder = save_model(fitted, tmp_path / "model", rule=found.rule, measured=measured(fitted.model, data, found))
    pushed = {}

    def upload(self, *, folder_path, **options):
        pushed.update({path.name: path.read_text() for path in Path(folder_path).glob("*.md")})

    monkeypatch.setattr("huggingface_hub.HfApi.upload_folder", upload)
    monkeypatch.setattr(
        "huggingface_hub.HfApi.create_repo", lambda self, repo_id, **options: RepoUrl(f"hf://{repo_id}")
    )
    HubModel.from_pretrained(folder).push_to_hub("me/plants")
    assert len(ModelCard(pushed["README.md"]).data.eval_results) == 4
    assert pushed["README.md"].splitlines()[:12] == (folder / "README.md").read_text().splitlines()[:12]
