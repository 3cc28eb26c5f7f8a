# Tests: each tests/test_*.c is one Check suite, a program of its own; tests/plugins.mk builds the plugins they load.
$(BUILD)/tests/test_%: tests/test_%.c $(STATIC) $(TEST_SUPPORT) | $(BUILD)/ops.stamp
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CORE_CFLAGS) $(CFLAGS) -o $@ $< $(TEST_SUPPORT) $(CLI_PARTS) $(STATIC) $(LINK) $(CORE_LIBS) $(CHECK_LIBS)

# Suites that use or test parts of the command, too.
CLI_SUITES := $(addprefix $(BUILD)/tests/test_,safetensors compare cpu_plugin run)
$(CLI_SUITES): CLI_PARTS := $(addprefix $(BUILD)/obj/cli/,safetensors.o compare.o)
$(CLI_SUITES): $(addprefix $(BUILD)/obj/cli/,safetensors.o compare.o)
$(BUILD)/tests/test_gpu_kernels: CLI_PARTS := $(addprefix $(BUILD)/obj/cli/,safetensors.o compare.o fill.o)
$(BUILD)/tests/test_gpu_kernels: $(addprefix $(BUILD)/obj/cli/,safetensors.o compare.o fill.o)
$(BUILD)/tests/test_cpu_plugin $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_ops_*.c)): | $(CPU_PLUGIN)
$(BUILD)/tests/test_cli $(BUILD)/tests/test_doctor: | $(COMMAND) $(CPU_PLUGIN) $(BUILD)/tests/plugins/two_vendors.so
$(BUILD)/tests/test_bench: | $(BENCH) $(BENCH_PLUGINS) $(BENCH_FIGURES) $(PLUGINS)
$(BUILD)/tests/test_ir: | $(CPU_PLUGIN)
-include tests/plugins.mk
include tests/drivers/gpu/drivers.mk
