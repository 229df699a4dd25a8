"""Training of models that answer with sets; needs the extra ``train``."""

from shortlist.train.densenet import DenseNet
from shortlist.train.encoders import MLP, Bag, Plain, SmallCNN, Standardised
from shortlist.train.model import SetModel

__all__ = ["MLP", "Bag", "DenseNet", "Plain", "SetModel", "SmallCNN", "Standardised"]
