"""Encoders with fixed weights that turn images and texts into features, and word features that need no network."""
