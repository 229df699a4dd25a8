"""Parse targets once per call into `Labels`, which every loss, metric and set rule uses."""

from shortlist.labels.labels import Labels
from shortlist.labels.reading import TargetForm, list_labels, read_labels, stored_entries, target_form

__all__ = ["Labels", "TargetForm", "list_labels", "read_labels", "stored_entries", "target_form"]
