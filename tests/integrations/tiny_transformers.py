"""Tiny transformers with random parameters, in memory and in folders; nothing is downloaded."""

from pathlib import Path
from typing import Any

import torch

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "white", "blue", "rose", "daisy", "violet", "a", "the"]
SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def bert_config(num_labels: int = 2) -> Any:
    from transformers import BertConfig

    return BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, num_labels=num_labels, **SIZES)


def vit_config(num_labels: int = 2) -> Any:
    from transformers import ViTConfig

    return ViTConfig(image_size=16, patch_size=8, num_labels=num_labels, **SIZES)


def tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    found = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    found.pre_tokenizer = Whitespace()
    found.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", WORDS.index("[CLS]")), ("[SEP]", WORDS.index("[SEP]"))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=found, pad_token="[PAD]", unk_token="[UNK]")


def bert_folder(folder: Path) -> Path:
    """A folder as ``from_pretrained`` reads it: configuration, parameters, tokenizer."""
    from transformers import AutoModel

    torch.manual_seed(0)
    AutoModel.from_config(bert_config()).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def vit_folder(folder: Path) -> Path:
    from transformers import AutoModel, ViTImageProcessor

    torch.manual_seed(0)
    AutoModel.from_config(vit_config()).save_pretrained(folder)
    ViTImageProcessor(image_mean=[0.4] * 3, image_std=[0.2] * 3).save_pretrained(folder)
    return folder
