"""Open Images: labels of images that people verified or machines proposed, from CSV files of millions of lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.groups import Groups
from shortlist.data.images import ImageFiles, PathList
from shortlist.data.open_images_csv import (
    HUMAN_NO,
    HUMAN_YES,
    MACHINE_YES,
    ImageLabels,
    Numbers,
    read_descriptions,
    read_image_labels,
)
from shortlist.data.source_files import need_file
from shortlist.data.target_rows import sparse_targets

PARTS = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}
DESCRIPTIONS = (
    "oidv7-class-descriptions.csv",
    "oidv6-class-descriptions.csv",
    "class-descriptions.csv",
    "oidv7-class-descriptions-boxable.csv",
    "class-descriptions-boxable.csv",
)
LARGEST_DENSE = 2**31
