"""One reader for each real format."""

from shortlist.data.formats.arff import read_arff
from shortlist.data.formats.arrays import read_arrays
from shortlist.data.formats.bioasq import read_bioasq
from shortlist.data.formats.extreme_text import read_extreme_text, stream_extreme_text
from shortlist.data.formats.images.cifar import read_cifar
from shortlist.data.formats.images.coco import read_coco
from shortlist.data.formats.images.image_folder import read_image_folder
from shortlist.data.formats.images.nus_wide import read_nus_wide
from shortlist.data.formats.images.open_images import read_open_images
from shortlist.data.formats.images.pascal_voc import read_voc
from shortlist.data.formats.images.visual_genome import read_visual_genome
from shortlist.data.formats.mimic import read_mimic
from shortlist.data.formats.tables import read_table

__all__ = [
    "read_arff",
    "read_arrays",
    "read_bioasq",
    "read_cifar",
    "read_coco",
    "read_extreme_text",
    "read_image_folder",
    "read_mimic",
    "read_nus_wide",
    "read_open_images",
    "read_table",
    "read_visual_genome",
    "read_voc",
    "stream_extreme_text",
]
