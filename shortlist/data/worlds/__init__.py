"""Synthetic worlds: data with known probabilities, hence with known optimal predictions."""

from shortlist.data.worlds.ambiguous import AmbiguousWorld
from shortlist.data.worlds.bayes import BayesRisk
from shortlist.data.worlds.multi_label import MultiLabelWorld
from shortlist.data.worlds.scene_graph import SceneGraphWorld

__all__ = ["AmbiguousWorld", "BayesRisk", "MultiLabelWorld", "SceneGraphWorld"]
