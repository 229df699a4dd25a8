"""Figures and HTML pages; they require the extra ``report``."""

from shortlist.report.argmaxability import draw_arrangement, draw_lattice, draw_radius_quantiles, draw_share
from shortlist.report.dataset import draw_dataset
from shortlist.report.projections import draw_projections

__all__ = [
    "draw_arrangement",
    "draw_dataset",
    "draw_lattice",
    "draw_projections",
    "draw_radius_quantiles",
    "draw_share",
]
