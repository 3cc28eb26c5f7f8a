# What a call costs from Python: bench/python/run.py, with the interpreter of an environment that has torch.
BENCH_PYTHON_DIR := $(BUILD)/bench/python
BENCH_PYTHON_PLUGIN := $(BENCH_PYTHON_DIR)/idle.so
BENCH_PYTHON_BORROW := $(BENCH_PYTHON_DIR)/borrow.abi3.so
BENCH_PYTHON_NOP := $(BENCH_PYTHON_DIR)/torch_nop.so
BENCH_PYTHON_TIMED := $(BENCH_PYTHON_DIR)/timed/timed_calls.so
BENCH_INTERPRETER ?= $(PYTHON)

$(BENCH_PYTHON_PLUGIN): bench/python/idle.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(PLUGIN_LINK) -o $@ $< $(LINK)
$(BENCH_PYTHON_BORROW): bench/python/borrow.c python/extension/dlpack_1.h
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -isystem $(PYTHON_INCLUDE) -shared -o $@ $< $(LINK)
$(BENCH_PYTHON_NOP): bench/python/torch_nop.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -shared -o $@ $< $(LINK)
# No version script as other plugins have: it shows fl_invoke, too.
$(BENCH_PYTHON_TIMED): bench/python/timed_calls.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -shared -Wl,--build-id -o $@ $< $(LINK) -ldl

.PHONY: bench-python
bench-python: python $(BENCH_PYTHON_PLUGIN) $(BENCH_PYTHON_BORROW) $(BENCH_PYTHON_NOP) ## time calls from Python (BENCH_INTERPRETER=python of an environment with torch; PEER=checkout of vllm-plugin-FL)
	@PYTHONPATH='$(PYTHON_TREE):$(BENCH_PYTHON_DIR)' $(BENCH_INTERPRETER) bench/python/run.py --plugin $(BENCH_PYTHON_PLUGIN) --nop $(BENCH_PYTHON_NOP) \
	  --json $(BENCH_PYTHON_DIR)/results.json $(if $(PEER),--peer '$(PEER)')

.PHONY: bench-decode-step
bench-decode-step: $(BENCH_PYTHON_NOP) ## time a decode step of vLLM's with flhost and without (BENCH_INTERPRETER=python of an environment with both; DECODE=options)
	@$(BENCH_INTERPRETER) bench/python/decode_step.py --nop $(abspath $(BENCH_PYTHON_NOP)) --json $(BENCH_PYTHON_DIR)/decode_step.json $(DECODE)

.PHONY: bench-throughput
bench-throughput: ## tokens a second of vLLM with flhost and without, a billion parameters (BENCH_INTERPRETER=python of an environment with both)
	@mkdir -p $(BENCH_PYTHON_DIR)
	@$(BENCH_INTERPRETER) bench/python/throughput.py --json $(BENCH_PYTHON_DIR)/throughput.json $(THROUGHPUT)

.PHONY: bench-llm
bench-llm: $(LLM) $(CPU_PLUGIN) config-files $(BENCH_PYTHON_TIMED) ## examples/llm beside transformers and plain vLLM, a billion parameters (BENCH_INTERPRETER=python of an environment with them; BENCH_LLM=options)
	@$(BENCH_INTERPRETER) bench/python/llm.py --llm $(LLM) --plugin $(CPU_PLUGIN) --timed $(BENCH_PYTHON_TIMED) --json $(BENCH_PYTHON_DIR)/llm.json $(BENCH_LLM)
