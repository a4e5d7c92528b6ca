"""AMD GPUs from the instruction up: the table of the ISA, decoder, assembler and code objects.

In: bytes, text or Python calls of instructions. Out: the other two forms, and code objects that
AMD's loader takes. Nothing of `import weft` imports this package: users ask for a family,
`from weft.amd.rdna3 import *`. Invariant: what an instruction is comes from `tables/`, which
`python -m weft.amd.generate` writes from LLVM's TableGen records and nobody edits.
"""
