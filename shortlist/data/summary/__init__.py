"""What a dataset contains: counts, label frequencies, groups and duplicates."""

from shortlist.data.summary.duplicates import Duplicates, find_duplicates
from shortlist.data.summary.statistics import (
    Changed,
    DatasetSummary,
    EqualRows,
    GroupStructure,
    Names,
    Part,
    Shots,
    Training,
    Unknown,
    summarise,
)
from shortlist.data.summary.tally import Tally

__all__ = [
    "Changed",
    "DatasetSummary",
    "Duplicates",
    "EqualRows",
    "GroupStructure",
    "Names",
    "Part",
    "Shots",
    "Tally",
    "Training",
    "Unknown",
    "find_duplicates",
    "summarise",
]
