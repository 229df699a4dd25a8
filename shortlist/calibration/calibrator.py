"""The base class of calibrators: fits on held-out logits, returns calibrated logits or probabilities, saves, loads."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from shortlist.calibration.held_out import BLOCK, HeldOut, Link, finite_range, log_odds
from shortlist.files import decoding, read_document, replacing
from shortlist.fitted.module import FittedModule
from shortlist.fitted.tensor_json import decode_tensor, encode_tensor
from shortlist.labels import LabelsLike, Numbers, read_scores
from shortlist.tensors import check_number, log_sigmoid, solvable

if TYPE_CHECKING:
    from typing_extensions import Self

_FORMAT, _VERSION = "shortlist calibration", 1


class Calibrator(FittedModule, ABC):
    """A map from logits to calibrated ones, fitted on held-out rows; a module whose buffers hold the fitted values.

    ``calibrated_logits`` returns logits whose ``link`` is the calibrated probability, so set rules, metrics and masks
    take them like those of the model; calling the module returns the probabilities. Labels with logit -inf are absent:
    they stay -inf and get probability 0.

    Args:
        link: how logits become probabilities, ``"softmax"`` (one true label) or ``"sigmoid"`` (any number of them).
    """

    name: ClassVar[str]
    """On the command line."""

    def __init__(self, *, link: Link) -> None:
        super().__init__()
        if link not in ("softmax", "sigmoid"):
            raise ValueError(f'`link` must be "softmax" or "sigmoid"; got {link!r}.')
        self.link: Link = link
        self.reset()

    def reset(self) -> None:
        """Return to the unfitted state."""
        self.num_labels: int | None = None
        self.evidence: dict[str, Any] = {}
        self._held_out = HeldOut(self.link)
        self._clear()

    @property
    def fitted(self) -> bool:
        """Whether `fit` or `finish` has been called."""
        return self.num_labels is not None

    def fit(self, logits: Numbers, labels: LabelsLike) -> Self:
        """Fit on held-out data.

        Args:
            logits: ``(N, n)``, floating, of rows that the model was not trained on: a tensor, a numpy array, a table of
                pandas, polars or pyarrow, or a list of lists.
            labels: the true labels in any form of ``shortlist.targets``; unknown ones are left out.

        Returns:
            The calibrator itself.
        """
        self.reset()
        return self.partial_fit(logits, labels).finish()

    def partial_fit(self, logits: Numbers, labels: LabelsLike) -> Self:
        """Add one batch of held-out data; call `finish` after the last one.

        Batches are kept until then, because the fit passes over them several times.
        """
        if self.fitted:
            self.reset()
        self._held_out.add(logits, labels)
        return self

    def finish(self) -> Self:
        """Fit to all batches seen."""
        held_out = self._held_out
        if not held_out.batches or held_out.num_rows == 0:
            raise ValueError("`labels` must have at least one row with a known label.")
        self.num_labels = held_out.num_labels
        self._settle(held_out)
        before, after = (_mean_loss(held_out, self.link, change) for change in (lambda x: x, self.calibrated_logits))
        self.evidence = {"rows": held_out.num_rows, "labels": self.num_labels, "nll_before": before, "nll_after": after}
        self._held_out = HeldOut(self.link)
        return self

    def calibrated_logits(self, logits: Numbers) -> Tensor:
        """Logits whose link is the calibrated probability, in the shape of ``logits``; float32 for half precision."""
        x = self._read(logits)
        found, limit = self._transform(finite_range(x)), torch.finfo(x.dtype).max / 2
        # A probability of 0 must not become -inf, which marks absent labels.
        return torch.where(x == -torch.inf, x, found.clamp(min=-limit, max=limit))

    def forward(self, logits: Numbers) -> Tensor:
        """Calibrated probabilities in the shape of ``logits``; 0 for absent labels."""
        x = self.calibrated_logits(logits)
        probs = x.softmax(-1) if self.link == "softmax" else x.sigmoid()
        return torch.where(x == -torch.inf, 0.0, probs)

    @torch.no_grad()
    def predict(self, logits: Numbers) -> Tensor:
        """`forward` without gradients, for logits that are checked: none may be NaN or infinite."""
        x = self._read(logits)
        wrong = ~(x < torch.inf).all(-1).reshape(-1)
        if bool(wrong.any()):
            raise ValueError(f"`logits` must not be NaN or infinite; row {int(wrong.nonzero()[0])} violates this.")
        rows = x.reshape(-1, x.shape[-1])
        blocks = [self(block) for block in rows.split(max(1, BLOCK // x.shape[-1]))]
        return torch.cat(blocks).reshape(x.shape)

    def save(self, path: str | Path) -> None:
        """Write options, fitted values and evidence as JSON for `load_calibrator`."""
        self._check_fitted()
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "kind": type(self).__name__,
            "options": self._arguments(),
            "num_labels": self.num_labels,
            "fitted": {name: encode_tensor(buffer) for name, buffer in self.named_buffers()},
            "evidence": self.evidence,
        }
        with replacing(path) as partial:
            partial.write_text(json.dumps(content, indent=1))

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return ", ".join(f"{name}={value!r}" for name, value in self._arguments().items())

    def get_extra_state(self) -> dict[str, Any]:
        """Fitted state other than the buffers."""
        return {"num_labels": self.num_labels, "evidence": self.evidence}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """The inverse of `get_extra_state`."""
        self.num_labels, self.evidence = state["num_labels"], state["evidence"]

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def _read(self, logits: Numbers) -> Tensor:
        self._check_fitted()
        x = read_scores(logits, name="logits")
        if x.shape[-1:] != (self.num_labels,):
            raise ValueError(f"`logits` must have {self.num_labels} labels as before; got shape {tuple(x.shape)}.")
        return solvable(x).contiguous()  # a sigmoid of a table in columns differs in its last bit

    def _check_fitted(self) -> None:
        if not self.fitted:
            raise ValueError(f"{type(self).__name__} must be fitted before it predicts.")

    @abstractmethod
    def _clear(self) -> None:
        """Create the buffers of the unfitted calibrator."""

    @abstractmethod
    def _settle(self, held_out: HeldOut) -> None:
        """Set the buffers."""

    @abstractmethod
    def _transform(self, x: Tensor) -> Tensor:
        """Calibrated logits of ``(*rows, n)``; what becomes of absent labels does not matter."""

    @abstractmethod
    def _check_buffers(self, num_labels: int) -> None:
        """Raise ValueError for buffers from a file that no fit could have set."""


class LabelwiseCalibrator(Calibrator):
    """A calibrator that maps the log odds of each label by an increasing curve, one for all labels or one for each.

    With the link softmax, each label is calibrated against all others, and the probabilities of a row are scaled to sum
    to 1.

    Args:
        per_label: a curve for each label, shrunk toward the common one if the label has few positives.
        prior: for ``per_label``: how many positives the common curve is worth.
        link: as in `Calibrator`.
    """

    def __init__(self, *, per_label: bool, prior: float, link: Link) -> None:
        self.per_label = bool(per_label)
        self.prior = check_number("prior", prior, at_least=0.0)
        super().__init__(link=link)

    def _transform(self, x: Tensor) -> Tensor:
        absent = x == -torch.inf
        odds = self._curve(torch.where(absent, 0.0, log_odds(x, self.link)))
        if self.link == "sigmoid":
            return odds
        return torch.where(absent, -torch.inf, log_sigmoid(odds)).log_softmax(-1)

    @abstractmethod
    def _curve(self, odds: Tensor) -> Tensor:
        """Calibrated log odds of finite log odds ``(*rows, n)``."""


def load_calibrator(path: str | Path) -> Calibrator:
    """Read a calibrator written by ``save``.

    Raises:
        InputError: if the file is damaged, of another kind, or of another version.
    """
    content = read_document(path, kind=_FORMAT, version=_VERSION)
    kinds = {kind.__name__: kind for kind in concrete_calibrators()}
    with decoding(path):
        if content["kind"] not in kinds:
            raise ValueError(f"there is no calibrator {content['kind']!r}")
        calibrator = kinds[content["kind"]](**content["options"])
        if content["fitted"].keys() != dict(calibrator.named_buffers()).keys():
            raise ValueError(f"{sorted(content['fitted'])} do not belong to this kind")
        for name, value in content["fitted"].items():
            buffer, unfitted = decode_tensor(value, name), calibrator.get_buffer(name)
            if (buffer.dtype, buffer.ndim) != (unfitted.dtype, unfitted.ndim) or not buffer.isfinite().all():
                raise ValueError(f"`{name}` must be finite {unfitted.dtype} of {unfitted.ndim} dimensions")
            setattr(calibrator, name, buffer)
        if type(content["num_labels"]) is not int or content["num_labels"] < 1:
            raise ValueError(f"`num_labels` is {content['num_labels']!r}")
        calibrator._check_buffers(content["num_labels"])
        calibrator.num_labels, calibrator.evidence = content["num_labels"], dict(content["evidence"])
    return calibrator


def concrete_calibrators() -> list[type[Calibrator]]:
    """All kinds of calibrators."""
    waiting, found = [Calibrator], []
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if not inspect.isabstract(kind):
            found.append(kind)
    return found


def check_shape(name: str, buffer: Tensor, shape: tuple[int, ...]) -> None:
    """Raise unless a buffer from a file has its shape."""
    if buffer.shape != shape:
        raise ValueError(f"`{name}` must have shape {shape}; got {tuple(buffer.shape)}")


@torch.no_grad()
def _mean_loss(held_out: HeldOut, link: Link, change: Callable[[Tensor], Tensor]) -> float:
    """The mean negative log likelihood of rows (softmax) or of known labels (sigmoid)."""
    total, count = 0.0, 0.0
    for x, labels in held_out.rows():
        x = change(x)
        if link == "softmax":
            total -= float(x.double().log_softmax(-1)[labels.pairs()].sum())
            count += len(x)
        else:
            known = x > -torch.inf
            against = torch.where(known, x, 0.0).double()  # log odds of what is not so
            against[labels.pairs()] *= -1
            total -= float((log_sigmoid(-against) * known).sum())
            count += float(known.sum())
    return total / count if count else 0.0
