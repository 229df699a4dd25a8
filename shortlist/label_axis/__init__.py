"""Where the labels of each row are: in one tensor, in blocks that are recomputed, or spread over processes.

An operator asks an axis for blocks of logits and for sums and maxima over processes, so its mathematics is the same in
every case.
"""
