"""Models that answer with a set of labels."""

__version__ = "0.1.0"
