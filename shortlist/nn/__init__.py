"""Losses, projections and output layers as thin modules that delegate to ``shortlist.functional``."""

from shortlist.nn import (
    heads,
    heads_dft,
    heads_large,
    label_clusters,
    loss,
    losses_one_class,
    losses_sets,
    projections,
)
from shortlist.nn.heads import *
from shortlist.nn.heads_dft import *
from shortlist.nn.heads_large import *
from shortlist.nn.label_clusters import *
from shortlist.nn.loss import *
from shortlist.nn.losses_one_class import *
from shortlist.nn.losses_sets import *
from shortlist.nn.projections import *

__all__: list[str] = []
__all__ += loss.__all__
__all__ += losses_one_class.__all__
__all__ += losses_sets.__all__
__all__ += projections.__all__
__all__ += heads.__all__
__all__ += heads_dft.__all__
__all__ += heads_large.__all__
__all__ += label_clusters.__all__
