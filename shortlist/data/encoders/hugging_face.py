"""Transformers of Hugging Face as encoders: tokens of texts, and networks for text and images, saved with the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor, nn

from shortlist.data.inputs import Features
from shortlist.errors import InputError, reason
from shortlist.extras import require
from shortlist.tensors import check_size

PREFIX = "hf:"
_MAX_TOKENS = 256
_PADDING = -1


class TokenRows(Features):
    """Tokens of texts, ``(N, width)`` int32, padded with -1."""

    kind = "tokens"


@dataclass(frozen=True)
class Tokens:
    """The tokenizer of a transformer, with its whole vocabulary: a saved model needs nothing else to read texts.

    Args:
        tokenizer: the JSON document of the library ``tokenizers``.
        width: longer texts are cut to this many tokens.
    """

    tokenizer: str
    width: int = _MAX_TOKENS

    @classmethod
    def of(cls, name: str, *, max_tokens: int = _MAX_TOKENS) -> Tokens:
        """Read the tokenizer of ``hf:NAME``."""
        check_size("max_tokens", max_tokens, error=InputError)
        library = require("transformers", extra="hf")
        with _asked(name):
            found = library.AutoTokenizer.from_pretrained(name.removeprefix(PREFIX), trust_remote_code=False)
            return cls(found.backend_tokenizer.to_str(), max_tokens)

    def rows(self, texts: Sequence[str]) -> Features:
        """Return the tokens of texts, special ones included."""
        encoded = [each.ids for each in self._reader.encode_batch(list(texts))]
        ids = np.full((len(encoded), self.width), _PADDING, dtype=np.int32)
        for row, tokens in zip(ids, encoded, strict=True):
            row[: len(tokens)] = tokens
        return TokenRows(ids)

    @cached_property
    def _reader(self) -> Any:
        reader = require("tokenizers", extra="hf").Tokenizer.from_str(self.tokenizer)
        reader.enable_truncation(self.width)
        reader.no_padding()
        return reader

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"features": "tokens", "tokenizer": self.tokenizer, "width": self.width}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is derived from the document."""
        return {"tokenizer": self.tokenizer, "width": self.width}


class TextTransformer(nn.Module):
    """The mean of the last hidden states over the tokens of each text.

    Args:
        network: a transformer of Hugging Face.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.out_features = network, _size(network)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens ``(B, width)``, padded with -1, to ``(B, out_features)``."""
        present = tokens != _PADDING
        longest = max(int(present.sum(1).max()), 1) if len(tokens) else 1
        tokens, present = tokens[:, :longest].long().clamp(min=0), present[:, :longest]
        hidden = self.network(input_ids=tokens, attention_mask=present.long()).last_hidden_state
        weights = present.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


class ImageTransformer(nn.Module):
    """The pooled features of images: the network's own if it pools, else the mean over patches.

    Args:
        network: a network for images of Hugging Face.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.out_features = network, _size(network)

    def forward(self, pixels: Tensor) -> Tensor:
        """Map normalized images ``(B, 3, H, W)`` to ``(B, out_features)``."""
        found = self.network(pixel_values=pixels)
        if getattr(found, "pooler_output", None) is not None:
            return found.pooler_output.flatten(1)
        hidden = found.last_hidden_state
        return hidden.mean(1) if hidden.ndim == 3 else hidden.flatten(2).mean(2)


def read_config(name: str) -> dict[str, Any]:
    """The configuration of ``hf:NAME`` as plain values, from which the network can be rebuilt without its name."""
    library = require("transformers", extra="hf")
    with _asked(name):
        found = library.AutoConfig.from_pretrained(name.removeprefix(PREFIX), trust_remote_code=False)
        content = json.loads(found.to_json_string(use_diff=True))
    return {key: value for key, value in content.items() if not key.startswith("_") and key != "auto_map"}


def load_network(name: str, *, weights: str | None, config: Mapping[str, Any]) -> nn.Module:
    """Load the network of ``hf:NAME``.

    Args:
        name: a folder, or a name on the Hub, which is downloaded unless it is cached. Code that comes with a model is
            never run.
        weights: ``DEFAULT`` for the trained ones, None for random initialization, which needs no files.
        config: of `read_config`.
    """
    library = require("transformers", extra="hf")
    if weights not in (None, "DEFAULT"):
        raise InputError(f"`weights` of '{name}' must be DEFAULT or None; got {weights!r}.")
    with _asked(name):
        if weights is not None:
            return library.AutoModel.from_pretrained(
                name.removeprefix(PREFIX), trust_remote_code=False, use_safetensors=True
            )
        content = {key: value for key, value in config.items() if key != "model_type"}
        return library.AutoModel.from_config(library.AutoConfig.for_model(config["model_type"], **content))


def image_statistics(name: str) -> dict[str, Any]:
    """The mean and deviation of the images that a network was trained on, where its files say so."""
    library = require("transformers.image_processing_base", extra="hf")
    try:
        found, _ = library.ImageProcessingMixin.get_image_processor_dict(name.removeprefix(PREFIX))
    except (OSError, ValueError):
        return {}  # The files do not say.
    statistics = {"mean": found.get("image_mean"), "deviation": found.get("image_std")}
    return {key: tuple(value) for key, value in statistics.items() if value is not None}


def _size(network: nn.Module) -> int:
    config: Any = network.config
    sizes = getattr(config, "hidden_sizes", None)
    return int(sizes[-1] if sizes else config.hidden_size)


@contextmanager
def _asked(name: str) -> Iterator[None]:
    """Errors of the library about a name become one sentence."""
    try:
        yield
    except (ImportError, InputError):
        raise
    except Exception as error:
        raise InputError(f"`encoder` '{name}' cannot be built: {reason(error)}.") from error
