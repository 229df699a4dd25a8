"""Losses, projections and output layers as modules: thin, they delegate to ``shortlist.functional``."""

from shortlist.nn import (
    heads,
    heads_chunked,
    heads_dft,
    heads_sharded,
    loss,
    losses_one_class,
    losses_sets,
    projections,
)
from shortlist.nn.heads import *
from shortlist.nn.heads_chunked import *
from shortlist.nn.heads_dft import *
from shortlist.nn.heads_sharded import *
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
__all__ += heads_chunked.__all__
__all__ += heads_dft.__all__
__all__ += heads_sharded.__all__
