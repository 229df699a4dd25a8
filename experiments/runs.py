"""One trained model of an experiment: the data of a description, the options of a run, and scores to measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from experiments.data import open_data
from shortlist.data import Dataset
from shortlist.train import FitOptions, fit
from shortlist.train.evaluation import model_scores
from shortlist.train.fit import Fitted
from shortlist.train.inputs import prepare_inputs


class Run(NamedTuple):
    """A trained model and the data that it was trained on."""

    fitted: Fitted
    dataset: Dataset

    def logits(self, part: str) -> Tensor:
        """``(N, n)``: of the rows of a part."""
        rows = prepare_inputs(self.dataset, self.fitted.plan).part(part)
        return model_scores(self.fitted.model, rows, self.dataset.num_labels)


def trained(settings: Mapping[str, Any], root: Path, *, change: Callable[[Dataset], Dataset] | None = None) -> Run:
    """Train what the settings say.

    Args:
        settings: ``data`` as in `experiments.data.open_data`; ``fit``, the options of a run as `FitOptions` takes them;
            ``seed``, of the split, of the run and of whatever ``change`` draws.
        root: where data are.
        change: from the dataset with its parts to the one that is trained on, such as one with label noise.
    """
    seed = int(settings["seed"])
    dataset = open_data(settings["data"], root, seed=seed)
    if change is not None:
        dataset = change(dataset)
    return Run(fit(dataset, FitOptions(**{**settings["fit"], "seed": seed})), dataset)
