"""Fitted values: modules that hold them as buffers, and their form in files."""

from shortlist.fitted.module import FittedModule
from shortlist.fitted.tensor_json import decode_tensor, encode_tensor

__all__ = ["FittedModule", "decode_tensor", "encode_tensor"]
