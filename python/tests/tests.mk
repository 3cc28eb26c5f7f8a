# The package's tests, on the wheel as it is installed elsewhere: `make check-python`. python/tests/run starts them.
VENV_PYTHON := $(BUILD)/venv-python
VENV_TORCH := $(BUILD)/venv-torch
# An interpreter whose environment has torch; nothing is installed into it. That of `make check-vllm`, where it was made. TORCH=no: without.
TORCH_PYTHON ?= $(firstword $(wildcard $(BUILD)/venv-vllm/bin/python))
TORCH ?= yes
INSTALL_WHEEL = -m pip install -q --disable-pip-version-check --force-reinstall --no-deps --no-index

$(VENV_PYTHON)/made: python/requirements/jax.txt python/requirements/test.txt
	$(call make_venv,$(VENV_PYTHON),$<)
$(VENV_PYTHON)/installed: $(VENV_PYTHON)/made $(DIST)/wheel.made
	@'$(VENV_PYTHON)/bin/python' $(INSTALL_WHEEL) '$(WHEEL)'
	@touch $@

# The bad calls that tests/test_bad_calls.c makes of every op.
BAD_CALLS := build/tests/bad_calls.jsonl
$(BAD_CALLS): $(BUILD)/tests/test_bad_calls
	@mkdir -p $(@D)
	@'$<' --print '$@' >/dev/null

# Without torch all of them; with torch those that it makes a difference to.
.PHONY: check-python
check-python: ## install the wheel into environments with and without torch, and run the Python tests
	$(INSTALL_DEPS) build python
	$(BUILD_QUIETLY) all
	@$(MAKE) -s --no-print-directory $(VENV_PYTHON)/installed $(DIST)/dispatch.made $(BAD_CALLS)
	@wheel=$$(echo '$(abspath $(DIST))'/flhost-$(VERSION)-*.whl); \
	  torch=$$(python/tests/torch-environment '$(TORCH)' '$(VENV_TORCH)' '$(TORCH_PYTHON)' '$(PYTHON)' "$$wheel") || exit 1; \
	  case $$torch in skip:*) echo "$$torch"; torch= ;; esac; \
	  FLHOST_TORCH_ELSEWHERE=$${torch:+yes} FLHOST_WHEEL="$$wheel" CC='$(CC)' python/tests/run python '$(abspath $(VENV_PYTHON))/bin/python' python/tests -- \
	  $${torch:+python-with-torch "$$torch" python/tests --ignore-glob='*/test_packaging_*' --ignore-glob='*/test_vllm_*'}

# The interpreter leaks what it holds to its end, and is no concern of ours: python/tests/own-leaks looks for what our files asked for.
.PHONY: check-python-asan
check-python-asan: ## the Python tests with the address and undefined-behaviour sanitizers
	$(INSTALL_DEPS) build python
	@$(MAKE) --no-print-directory build-python BUILD=$(BUILD)/asan CPU_VARIANTS='$(CPU_WATCHED)' CFLAGS='-O1 -g1 -fno-omit-frame-pointer' \
	  SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined'
	@$(MAKE) -s --no-print-directory $(VENV_PYTHON)/made $(BAD_CALLS)
	@rm -rf '$(BUILD)/asan/leaks' && mkdir -p '$(BUILD)/asan/leaks'
	@PYTHONPATH='$(abspath $(BUILD))/asan/python' PYTHONMALLOC=malloc \
	  ASAN_OPTIONS=detect_leaks=1:log_path='$(abspath $(BUILD))/asan/leaks/report' LSAN_OPTIONS=exitcode=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  TEST_WRAPPER="env LD_PRELOAD=$$($(CC) -print-file-name=libasan.so)" \
	  python/tests/run python-asan '$(abspath $(VENV_PYTHON))/bin/python' python/tests --ignore-glob='*/test_packaging_*'
	@python/tests/own-leaks '$(BUILD)/asan/leaks'

.PHONY: build-python
build-python:
	$(BUILD_QUIETLY) python
