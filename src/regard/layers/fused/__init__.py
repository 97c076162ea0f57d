"""Kernels for a GPU, written in Triton: what is written out elsewhere in torch's own operations, in few passes."""
