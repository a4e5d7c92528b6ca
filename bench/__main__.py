"""`python -m bench`: weft and its peers on this machine; what needs PyTorch says so without it."""

from __future__ import annotations

import importlib.util

from bench import matmul


def main() -> None:
    """The benchmarks that need NumPy only, then those against PyTorch."""
    matmul.main([])
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: bench/kernels.py and bench/methods.py were left out")
        return
    from bench import kernels

    kernels.main()


if __name__ == "__main__":
    main()
