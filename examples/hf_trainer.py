"""Hugging Face's Trainer with a loss, metrics, a head and a set rule of shortlist; a tiny random BERT, no downloads."""

from tempfile import TemporaryDirectory

import torch
from transformers import AutoModelForSequenceClassification, BertConfig, Trainer, TrainingArguments
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from shortlist.integrations.transformers import SetRuleCallback, compute_metrics, trainer_loss, use_head
from shortlist.nn import DFTHead
from shortlist.sets import AverageK

LABELS, WORDS = 40, 200
set_verbosity_error()
disable_progress_bar()
torch.manual_seed(0)


def rows(number: int) -> list[dict[str, torch.Tensor]]:
    """Texts of ten words; labels 0, 1 and 2 modulo 40 of the first three."""
    tokens = torch.randint(WORDS, (number, 10))
    hot = torch.zeros(number, LABELS).scatter(1, tokens[:, :3] % LABELS, 1.0)
    return [{"input_ids": ids, "labels": labels} for ids, labels in zip(tokens, hot, strict=True)]


sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
config = BertConfig(vocab_size=WORDS, num_labels=LABELS, **sizes)  # or AutoModel....from_pretrained("bert-base-cased")
model = AutoModelForSequenceClassification.from_config(config)
model = use_head(model, DFTHead(32, LABELS, k=3, slack=32))  # can output every set of up to three labels

with TemporaryDirectory() as folder:
    trainer = Trainer(
        model,
        TrainingArguments(
            folder,
            num_train_epochs=3,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            learning_rate=5e-3,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
            use_cpu=True,
        ),
        train_dataset=rows(1000),
        eval_dataset=rows(200),
        compute_loss_func=trainer_loss("two_way"),
        compute_metrics=compute_metrics(k=3),
        callbacks=[callback := SetRuleCallback(AverageK(3, link="sigmoid"))],  # saves rule.json in the folder
    )
    trainer.train()
    metrics = trainer.evaluate()
    logits = torch.from_numpy(trainer.predict(rows(200)).predictions)

sets = callback.rule.predict(logits)
print(f"recall at 3: {metrics['eval_recall@3']:.2f}; sets of {sets.sizes.float().mean():.1f} labels on average")
