# Tests in a live vLLM: `make check-vllm`, and what takes longer, `make check-vllm-all`. VENV=folder: an environment that has vLLM; nothing
# is installed into it. Else build/venv-vllm is made, by python/requirements/vllm*.txt; check-vllm-all makes one for each version (7 GB).
VLLM ?= 0.32.0
VLLM_ALL ?= $(VLLM)$(if $(VENV),, 0.28.0 0.33.0)
VENV_VLLM := $(BUILD)/venv-vllm$(if $(filter-out 0.32.0,$(VLLM)),-$(VLLM))

.PHONY: check-vllm
check-vllm: ## run tiny models in vLLM through flhost: tokens, and counters from inside its workers
	$(INSTALL_DEPS) build python
	$(BUILD_QUIETLY) all
	@$(MAKE) -s --no-print-directory $(DIST)/wheel.made
	@said=$(if $(VENV),,$$(python/tests/vllm-environment '$(VENV_VLLM)' '$(PYTHON)' '$(VLLM)')) || exit 1; \
	  if [ -n "$$said" ]; then echo "$$said"; exit 0; fi; \
	  wheel=$$(echo $(DIST)/flhost-$(VERSION)-*.whl); \
	  environment=$$(python/tests/torch-environment yes '$(VENV_VLLM)-tests' '$(or $(VENV),$(VENV_VLLM))/bin/python' '$(PYTHON)' "$$wheel") || exit 1; \
	  FLHOST_VLLM='$(VLLM_TESTS)' CC='$(CC)' TEST_TIMEOUT=7200 python/tests/run vllm-$(VLLM) "$$environment" python/tests/test_vllm_*.py

.PHONY: check-vllm-all
check-vllm-all: ## the same with every model, several ranks and bfloat16, in each version of vLLM (VLLM_ALL)
	@for version in $(VLLM_ALL); do $(MAKE) --no-print-directory check-vllm VLLM=$$version VLLM_TESTS=all || exit 1; done
