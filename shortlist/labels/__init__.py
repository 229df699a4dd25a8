"""Parse targets once per call into `Labels`, which every loss, metric and set rule uses."""

from shortlist.labels.arrays import LabelsLike, Numbers, read_numbers, read_scores, read_target
from shortlist.labels.labels import Labels
from shortlist.labels.reading import TargetForm, list_labels, read_labels, stored_entries, target_form

__all__ = [
    "Labels",
    "LabelsLike",
    "Numbers",
    "TargetForm",
    "list_labels",
    "read_labels",
    "read_numbers",
    "read_scores",
    "read_target",
    "stored_entries",
    "target_form",
]
