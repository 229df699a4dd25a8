"""Figures; they need the extra ``report``."""

from shortlist.report.projections import draw_projections

__all__ = ["draw_projections"]
