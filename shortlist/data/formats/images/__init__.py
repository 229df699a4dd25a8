"""Readers of image data sets: labels are there before the images are."""
