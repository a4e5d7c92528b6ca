"""From a linear program to the text of a target; decides nothing.

In: a list of UOps in order of execution. Out: text. `base` says what a renderer is and what a
lowered kernel is; `cstyle` prints what is like C (`c`, and by `groups` `cuda`, `opencl`,
`metal`), `wgsl` WebGPU's language, `llvm_base` LLVM IR (`llvmir` for CPUs, `llvm_groups` and
`nvptx` for GPUs), `python` the listing of the PYTHON device. Invariant: what a renderer does not
name in `code_for_op` is decomposed before it gets there.
"""

from weft.renderer.base import ProgramSpec, Renderer, Target

__all__ = ["ProgramSpec", "Renderer", "Target"]
