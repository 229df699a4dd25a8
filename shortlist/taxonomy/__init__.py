"""Trees and DAGs of labels: genus and family of a species, superclasses, synsets."""

from shortlist.taxonomy.reading import (
    taxonomy_from_csv,
    taxonomy_from_groups,
    taxonomy_from_networkx,
    taxonomy_from_parents,
)
from shortlist.taxonomy.taxonomy import Taxonomy

__all__ = [
    "Taxonomy",
    "taxonomy_from_csv",
    "taxonomy_from_groups",
    "taxonomy_from_networkx",
    "taxonomy_from_parents",
]
