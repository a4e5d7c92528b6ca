"""Export: a captured function as standalone C, as WebAssembly, as a web page.

In: a function over tensors, and inputs to call it with. Out: files that run without weft.
Start reading in `capture`: it runs the function and keeps what it did; `build` schedules that anew
for the machine it is exported to and makes a `plan` of it, plain data that the writers print.
Sits over the JIT and the compiler; nobody but the command line imports it.
"""

from weft.export.export import c, wasm, web

__all__ = ["c", "wasm", "web"]
