"""Triton kernels, one file per operator; imported only when one is used."""
