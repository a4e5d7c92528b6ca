# Every target sets up what it needs in .venv, which is made anew when pyproject.toml changes.
# No compiler is needed: LLVM comes inside llvmlite.

PYTHON ?= python3
# Not handed to the programs below: PYTHON=1 in the environment would ask weft for its PYTHON device.
unexport PYTHON

VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 1); [ $$n -gt 8 ] && n=8; echo $$n)
# random programs, expressions and sequences of actions of `make test-all`, each kind
FUZZ ?= 2000

# the tests of the viewer need one
HAS_BROWSER := command -v chromium >/dev/null && command -v chromedriver >/dev/null

.PHONY: demo fusion test test-bare test-devices test-all test-amd test-cuda test-browser screenshots lint bench docs clean

# Trains a convnet on handwritten digits, saves it, loads it in a new process, draws some of them.
demo: $(VENV)/.installed
	$(BIN)/python examples/digits.py --out build

# Fuses a small network into a few kernels and shows them.
fusion: $(VENV)/.installed
	$(BIN)/python examples/fusion.py

# devices whose drivers may be here; what a share of the tests under them is
DEVICES ?= CL WEBGPU
DEVICE_TESTS := test/methods/test_table.py test/test_gradient.py test/engine/jit test/nn/test_layers.py test/test_tiny.py
DEVICE_SHARE ?= 150

# In CI once more as on a machine with nothing optional, so that `make test` passes there too.
test: lint
	$(BIN)/python -m pytest -n $(WORKERS)
	$(MAKE) test-devices
	@if [ -n "$$CI" ]; then $(MAKE) test-bare; fi

# Ops, gradients, nn and jit under each device whose driver is installed: one test in DEVICE_SHARE.
test-devices: $(VENV)/.test-installed
	@for device in $(DEVICES); do \
		if why=$$(DEVICE=$$device $(BIN)/python -c 'import weft; weft.Device.default' 2>&1 | tail -n 1) && \
			DEVICE=$$device $(BIN)/python -c 'import weft; weft.Device.default' 2>/dev/null; then \
			echo "tests under DEVICE=$$device"; \
			DEVICE=$$device SHARE=$(DEVICE_SHARE) $(BIN)/python -m pytest -n $(WORKERS) \
				-p test.share $(DEVICE_TESTS) || exit 1; \
		else echo "no tests under $$device: $$why"; fi; \
	done

# With imports of everything blocked that weft does not need: all tests are collected, a share runs.
test-bare: $(VENV)/.test-installed
	$(BIN)/python -m pytest -n $(WORKERS) -p test.bare

# The same tests with every graph verified and every access proven, then more of the fuzzers.
test-all: test
	SPEC=2 $(BIN)/python -m pytest -n $(WORKERS)
	$(BIN)/python -m test.export.whole --large
	$(BIN)/python -m test.export.mutations 10000
	@if $(HAS_BROWSER); then $(BIN)/python -m test.export.examples; fi
	$(BIN)/python -m test.fuzz programs --count $(FUZZ) --seed 100000
	$(BIN)/python -m test.fuzz programs --count $(FUZZ) --seed 200000 --noopt
	$(BIN)/python -m test.fuzz floats --count $(FUZZ) --seed 100000
	$(BIN)/python -m test.fuzz expressions --count $(FUZZ) --seed 100000
	$(BIN)/python -m test.fuzz actions --count $(FUZZ) --seed 100000
	$(BIN)/python -m test.fuzz actions --count $(FUZZ) --seed 200000 --device CPU
	$(BIN)/python -m test.fuzz programs --count $(FUZZ) --seed 300000 --target sm_90
	$(BIN)/python -m test.amd.vectors
	$(BIN)/python -m test.amd.fuzz
	$(MAKE) test-amd
	CORPUS_SHARE=1 $(BIN)/python -m pytest -n $(WORKERS) test/renderer/test_opencl.py test/renderer/test_wgsl.py
	$(BIN)/python -m test.renderer.oclgrind
	$(MAKE) test-devices DEVICE_SHARE=1
	$(BIN)/python -m test.runtime.arm
	$(BIN)/python -m test.runtime.triples

# Methods, gradients and layers on AMD's GPUs in the emulator; every instruction compiled and by
# definition; damaged code objects.
AMD_ARCHS ?= gfx1100 gfx1201 gfx950
test-amd: $(VENV)/.test-installed
	for arch in $(AMD_ARCHS); do DEVICE=AMD AMD_ARCH=$$arch $(BIN)/python -m pytest -n $(WORKERS) \
		test/test_tiny.py test/test_gradient.py test/methods/test_table.py \
		test/methods/test_gradients.py test/nn/test_layers.py test/nn/test_optim.py || exit 1; done
	$(BIN)/python -m test.runtime.amd.rows 32
	$(BIN)/python -m test.runtime.amd.rows 64
	$(BIN)/python -m test.runtime.amd.mutations 100000

# All tests on an NVIDIA GPU, random programs there, and the corpus under NVIDIA's checkers, which
# come with the CUDA toolkit. The result belongs into docs/cuda.md.
SANITIZER ?= compute-sanitizer --error-exitcode 1 --launch-timeout 300
test-cuda: export DEVICE := CUDA
test-cuda: $(VENV)/.test-installed
	$(BIN)/python -m pytest -n $(WORKERS)
	$(BIN)/python -m test.fuzz programs --count $(FUZZ) --seed 300000
	$(BIN)/python -m test.fuzz floats --count 500 --seed 300000
	$(BIN)/python -m test.fuzz actions --count 500 --seed 300000 --device CUDA
	$(BIN)/python -m test.fuzz jit --count 500 --seed 300000
	$(BIN)/python -m test.renderer.gpu
	$(SANITIZER) --tool memcheck $(BIN)/python -m test.renderer.gpu
	$(SANITIZER) --tool racecheck $(BIN)/python -m test.renderer.gpu

# The viewer in a real browser. The ordinary tests run these too, where there is one.
test-browser: $(VENV)/.test-installed
	@$(HAS_BROWSER) || { echo "the packages chromium and chromium-driver are needed"; exit 1; }
	$(BIN)/python -m pytest test/viz

# The pictures of the viewer in the documentation, taken anew; look at them before they are kept.
screenshots: $(VENV)/.test-installed
	VIZ_PICTURES=build/viz $(BIN)/python -m pytest test/viz/test_browser.py \
		-k resnet

lint: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy weft

bench: $(VENV)/.test-installed
	$(BIN)/python -m bench

# The documentation as a site, in build/site.
docs: $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/mkdocs build --quiet

clean:
	rm -rf $(VENV) build weft.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

# PyTorch is a reference of the tests. In CI it is required; elsewhere it is used if it is there.
# What drives a browser is only of use with one.
$(VENV)/.test-installed: pyproject.toml $(VENV)/.created
	@extras=test; \
		if $(HAS_BROWSER); then extras=$$extras,browser; fi; \
		if [ -n "$$CI" ]; then extras=$$extras,torch,onnx,llm; fi; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$$extras]"
	@if [ -n "$$CI" ] && ! $(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cuda-test]"; then \
		echo "NVIDIA's assembler is not to be had: budgets of kernels will not be tested"; \
	fi
	@if ! $(BIN)/python -c 'import torch' 2>/dev/null; then \
		echo "PyTorch is not installed: tests against it will be skipped" \
			"($(BIN)/pip install -e '.[torch]')"; \
	fi
	@touch $@ $(VENV)/.installed
