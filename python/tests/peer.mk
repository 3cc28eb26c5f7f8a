# The dispatch tests of vllm-plugin-FL against the drop-in: `make check-peer PEER=folder`, with a checkout that its user brings.
# They need torch: PEER_PYTHON is an interpreter that has it, numpy, PyYAML and pytest.
PEER_PYTHON ?= $(firstword $(wildcard $(BUILD)/venv-vllm/bin/python) $(PYTHON))
DROPIN_PATH := $(abspath $(PYTHON_TREE)):$(abspath python/vllm_fl_dispatch):$(abspath python/tests)

# In a directory of its own: the peer's tests write, and its vllm_fl must not be found before ours.
.PHONY: check-peer
check-peer: ## the dispatch tests of vllm-plugin-FL against the drop-in; PEER=its checkout
	@test -d '$(PEER)/tests/unit_tests/dispatch' || { echo "check-peer: PEER=$(PEER): no tests/unit_tests/dispatch there; give it a checkout of vllm-plugin-FL" >&2; exit 2; }
	$(BUILD_QUIETLY) python
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && cd "$$scratch" && \
	  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='$(DROPIN_PATH)' '$(abspath $(PEER_PYTHON))' -m pytest -q --no-header -p peer_plugin \
	  -p no:cacheprovider -c /dev/null --rootdir '$(abspath $(PEER))' '$(abspath $(PEER))/tests/unit_tests/dispatch'

# What a call through its manager costs, beside the peer's own where PEER names a checkout.
.PHONY: bench-peer
bench-peer: ## what a call through vllm_fl.dispatch costs, beside the peer's own (PEER=its checkout)
	$(BUILD_QUIETLY) python
	@PYTHONPATH='$(DROPIN_PATH)' '$(abspath $(PEER_PYTHON))' bench/python/drop_in.py $(if $(PEER),'$(abspath $(PEER))')
