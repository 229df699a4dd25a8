"""Triton kernels, for CUDA, ROCm and XPU devices; imported only when one is used.

A module holds the kernels of one operator, and thin functions of tensors that launch them. For tests and benchmarks it
also says how its kernels are compiled without a card::

    def compile_cases(block: int) -> dict[str, tuple[JITFunction, dict[str, str], dict[str, object], int]]:
        return {"forward": (_forward, {"x_ptr": "*fp32", "n": "i32"}, {"BLOCK": block}, num_warps(block))}

By name: the kernel, the types of its arguments at run time, the values of its constants (``tl.constexpr``), and the
number of warps that the launch chooses for rows of ``block`` labels; at the largest block, those of wider rows.
"""
