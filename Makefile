# make demo   build and install the package in .venv, run the demo, write demo.png; 7 to 9 minutes the first time
#   (make says what to install if the build needs it)
# make test   run everything that CI runs, fastest first, in the virtual environment build/venv
# make test-torch  run the tests of forebay.torch, training frameworks and forebay.queue, after `make test`;
#   downloads 5.5 GB
# make soak   run the tests of `make test` with 20 times the repetitions
# make bench  run the criterion benches of each stage
# make digests  write the digests of batches in many configurations to build/digests.json, after `make wheel`;
#   benches/README.md has the comparison of two of them
# make bench-device  measure features on a GPU, the copies to it and the scaling over cores, in at most eight minutes;
#   on the CPU where torch finds no CUDA device; after `make wheel`, with torch installed in build/venv
# make bench-peers  run other loaders on the same files, for comparison
# make tables  write the stub's signatures and the table in docs/parameters.md from the tables of parameters,
#   after `make wheel`
# make docs   build the site of docs/ in build/docs, and check it; warnings are errors
# make clean  remove everything that the other targets wrote

PYTHON  ?= python3
PROFILE ?= ci
REPEAT  ?= 20
# Processes of the Python tests.
JOBS    ?= 2

VENV   := build/venv
BIN    := $(VENV)/bin
WHEELS := build/wheels

# Tests, lints, docs and the wheel under test share a profile and a target folder, so that dependencies are built once.
CARGO_PROFILE := --locked --profile $(PROFILE)

# Tests and demo run without downloads.
OFFLINE := HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_HOME=$(CURDIR)/build/huggingface MPLBACKEND=agg

.PHONY: demo test test-torch soak bench bench-device digests bench-peers tables docs clean rust models wheel venv package lint \
	pytest examples tools

# Says what to install if a tool of the build is missing.
tools:
	@have() { command -v "$$1" > /dev/null 2>&1; }; \
	missing=; for tool in cc $(PYTHON) cargo; do have "$$tool" || missing="$$missing $$tool"; done; \
	! have $(PYTHON) || $(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || missing="$$missing $(PYTHON)-venv"; \
	test -z "$$missing" || { \
	  echo "forebay is built from source, and these are not installed or not in PATH:$$missing"; \
	  echo "  C compiler and Python, on Debian or Ubuntu:  sudo apt-get install --yes build-essential curl python3-venv"; \
	  echo "  Rust, for this user:  curl -sSf https://sh.rustup.rs | sh -s -- -y && . ~/.cargo/env"; \
	  exit 1; } >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "forebay needs Python 3.11 or newer, $(PYTHON) is " \
	  + sys.version.split()[0] + "; name another one: make PYTHON=python3.12 ...")'

demo: tools
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r examples/requirements.txt
	rm -rf build/demo-wheel
	.venv/bin/maturin build --quiet --release --locked --out build/demo-wheel
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps build/demo-wheel/*.whl
	$(OFFLINE) .venv/bin/python examples/demo.py --picture demo.png

# Recursive calls keep this order under `make -j`. The downloads of the environment take place beside the first builds.
test: tools
	@echo "forebay.torch, training frameworks and forebay.queue are tested by make test-torch, which fetches 5.5 GB"
	$(MAKE) venv & $(MAKE) rust; rust=$$?; wait $$! && exit $$rust
	$(MAKE) models
	$(MAKE) package
	$(MAKE) lint
	$(MAKE) examples
	$(MAKE) pytest

rust:
	cargo fmt --check
	cargo clippy $(CARGO_PROFILE) --all-targets -- -D warnings
	cargo clippy $(CARGO_PROFILE) --all-targets --features python -- -D warnings
	cargo test $(CARGO_PROFILE) --no-fail-fast
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_PROFILE) --no-deps
	cargo update --quiet --workspace --locked --manifest-path fuzz/Cargo.toml

# Checks every interleaving of the free list, the shuffle buffer and the waits of the pipeline's threads.
# The target folder is separate, because the cfg applies to all crates.
models:
	cargo fmt --check --manifest-path tests/loom/Cargo.toml
	RUSTFLAGS="--cfg loom" cargo test --locked --release --manifest-path tests/loom/Cargo.toml --target-dir target/loom

wheel:
	$(MAKE) venv
	$(MAKE) package

# Most modules of the 11 000 are never imported, so none is compiled before it is.
venv:
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r tests/python/requirements.txt

package:
	rm -rf $(WHEELS)
	$(BIN)/maturin build --quiet $(CARGO_PROFILE) --out $(WHEELS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(WHEELS)/*.whl

lint:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest forebay._core
	$(BIN)/python -m pytest -q tests/python/project/test_width.py

examples:
	rm -f build/demo.png
	$(OFFLINE) $(BIN)/python examples/demo.py --picture build/demo.png
	$(BIN)/python examples/train_folder.py
	$(BIN)/python examples/kaldi_folder.py
	$(BIN)/python examples/lhotse_shar.py
	$(OFFLINE) $(BIN)/python examples/train_loop.py --steps 8
	$(OFFLINE) $(BIN)/python examples/resume.py --kills 2 --batches 30
	$(OFFLINE) $(BIN)/python examples/train_jax.py --steps 20 --reach 0.5

# Run it after `make wheel`; it uses the same environment. Tests that need a GPU are skipped without one. It is not
# part of `make test`, because PyPI has torch for Linux with CUDA only: 5.4 GB, all but 1 GB (triton) of it linked by
# `import torch`.
test-torch:
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/python/requirements-torch.txt
	$(OFFLINE) $(BIN)/python -m pytest tests/python/frameworks tests/python/project/test_docs.py \
		tests/python/queue
	$(OFFLINE) $(BIN)/python examples/train_torch.py
	$(OFFLINE) $(BIN)/python examples/train_birdset.py
	$(OFFLINE) $(BIN)/python examples/finetune_waveform.py
	$(OFFLINE) $(BIN)/python examples/train_ctc.py
	$(OFFLINE) $(BIN)/python examples/train_enhancement.py
	$(OFFLINE) $(BIN)/python examples/train_sed.py
	$(OFFLINE) $(BIN)/python examples/train_gpt.py
	$(OFFLINE) $(BIN)/python examples/sft.py
	$(OFFLINE) $(BIN)/python examples/train_queue.py --steps 100

# Each file of tests in one of the processes.
pytest:
	$(OFFLINE) $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

soak: wheel
	FOREBAY_SOAK=$(REPEAT) PROPTEST_CASES=10000 cargo test $(CARGO_PROFILE) -- --include-ignored
	FOREBAY_SOAK=$(REPEAT) $(OFFLINE) $(BIN)/python -m pytest -o timeout=3600

bench:
	cargo bench --locked

bench-device:
	$(BIN)/python benches/device.py

digests:
	$(OFFLINE) $(BIN)/python benches/digests.py --out build/digests.json > /dev/null

# Needs several GB of packages and an idle machine; see benches/README.md.
bench-peers:
	$(PYTHON) benches/peers/run.py

tables:
	$(BIN)/python docs/tables.py

docs:
	test -x build/docs-venv/bin/python || $(PYTHON) -m venv build/docs-venv
	build/docs-venv/bin/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build --strict
	build/docs-venv/bin/python docs/check_site.py build/docs

clean:
	cargo clean
	rm -rf .venv build demo.png .pytest_cache .mypy_cache .ruff_cache
