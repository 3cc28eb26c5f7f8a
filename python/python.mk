# The Python package: python/README.md says what lies where.
PYTHON ?= /usr/bin/python3
PYTHON_TREE := $(BUILD)/python

include python/extension/extension.mk
include python/tests/peer.mk
