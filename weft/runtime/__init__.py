"""The devices: one a file `ops_<device>.py`, found by its name and imported by nobody.

In: text of a renderer, memory, launches. Out: what they do on a machine. Start reading in
`ops_python`, the smallest one that computes:

    ops_python, interpreter, steps   programs run one UOp at a time: the oracle of the fuzzers
    ops_cpu, llvm, llvm_parallel     the host's processor, through LLVM in process
    pool*, python_pool               kernels on all cores
    memory                           the host's memory, reused
    ops_cuda, cuda_*, nvptx          NVIDIA's GPUs, through the driver and nothing else
    ops_disk, ops_null               files as memory; nothing at all, for measuring weft itself

What a device must offer is written down in `weft/contracts.py`. Invariant: names of devices and
vendors stand here and in `renderer`, nowhere else.
"""
