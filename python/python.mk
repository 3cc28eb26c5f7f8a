# The Python package: python/README.md says what lies where.
PYTHON ?= /usr/bin/python3
PYTHON_TREE := $(BUILD)/python

include python/extension/extension.mk
include python/packaging/wheel.mk
include python/tests/tests.mk
include python/tests/vllm.mk
include python/tests/peer.mk
include bench/python/bench.mk
