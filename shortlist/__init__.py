"""Models that answer with a set of labels."""

from shortlist import functional, nn, targets

__version__ = "0.1.0"

__all__ = ["__version__", "functional", "nn", "targets"]
