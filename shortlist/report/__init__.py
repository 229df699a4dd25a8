"""Figures; they need the extra ``report``."""

from shortlist.report.argmaxability_arrangement import draw_arrangement
from shortlist.report.argmaxability_curves import draw_radius_quantiles, draw_share
from shortlist.report.argmaxability_lattice import draw_lattice
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
