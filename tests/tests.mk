# Tests: each tests/test_*.c is one Check suite, a program of its own; tests/plugins.mk builds the plugins they load.
# With the parts of the command that tests use or test.
CLI_PARTS := $(addprefix $(BUILD)/obj/cli/,run/safetensors.o trials/fill.o trials/collectives.o)
$(BUILD)/tests/test_%: tests/test_%.c $(STATIC) $(TEST_SUPPORT) $(CLI_PARTS) | $(BUILD)/ops.stamp
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CORE_CFLAGS) $(CFLAGS) -o $@ $< $(TEST_SUPPORT) $(CLI_PARTS) $(STATIC) $(LINK) $(CORE_LIBS) $(CHECK_LIBS)

# No suite: `make check-stress` runs it for a while.
$(BUILD)/tests/stress: tests/stress.c $(STATIC) | $(BUILD)/ops.stamp
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -o $@ $< $(STATIC) $(LINK) $(CORE_LIBS)

# The example of ranks, for the test of what starts them.
$(BUILD)/tests/ranks: examples/ranks.c $(STATIC) | $(BUILD)/ops.stamp
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -o $@ $< $(STATIC) $(LINK) $(CORE_LIBS)
$(BUILD)/tests/test_launch: | $(BUILD)/tests/ranks $(BUILD)/tests/plugins/communicators.so $(COMMAND) $(CPU_PLUGIN) $(SHM_PLUGIN) $(BUILD)/tests/plugins/two_vendors.so

# What loads plugins has the command try them first.
$(TESTS): | $(COMMAND)
# They make allocations fail (tests/allocations.h).
ALLOCATIONS := malloc calloc realloc strdup strndup vasprintf
$(BUILD)/tests/test_arena $(BUILD)/tests/test_classes $(BUILD)/tests/test_kept_out $(BUILD)/tests/test_registration $(BUILD)/tests/test_threads: private LINK += $(ALLOCATIONS:%=-Xlinker --wrap=%)
$(BUILD)/tests/test_cpu_memory: private LINK += $(patsubst %,-Xlinker --export-dynamic-symbol=%,malloc calloc realloc aligned_alloc)
$(BUILD)/tests/test_cpu_memory: | $(CPU_PLUGIN)
$(BUILD)/tests/test_pool: private LINK += -Xlinker --wrap=pthread_create
$(BUILD)/tests/test_many: private LINK += -Xlinker --wrap=strcmp -Xlinker --wrap=strncmp -Xlinker --wrap=memcmp
$(BUILD)/tests/test_hostile_settings: private LINK += $(patsubst %,-Xlinker --wrap=%,$(ALLOCATIONS) realpath \
  yaml_parser_initialize yaml_parser_parse yaml_parser_load)
$(BUILD)/tests/test_hostile_settings: | config-files
$(BUILD)/tests/test_bare_machine: | $(COMMAND) $(PLUGINS) $(BUILD)/tests/plugins/two_vendors.so
$(BUILD)/tests/test_bad_calls: | $(CPU_PLUGIN)
$(BUILD)/tests/test_cpu_plugin $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_ops_*.c)): | $(CPU_PLUGIN)
$(BUILD)/tests/test_cli $(BUILD)/tests/test_cli_help $(BUILD)/tests/test_doctor: | $(COMMAND) $(CPU_PLUGIN) $(BUILD)/tests/plugins/two_vendors.so
$(BUILD)/tests/test_cli $(BUILD)/tests/test_doctor $(BUILD)/tests/test_platform_files $(BUILD)/tests/test_verify: | $(PLUGINS)
$(BUILD)/tests/test_bench_kernels: | $(BENCH_FIGURES) $(COMMAND) $(PLUGINS)
$(BUILD)/tests/test_bench_communicators: | $(BENCH_FIGURES) $(COMMAND) $(PLUGINS)
$(BUILD)/tests/test_bench: | $(BENCH) $(BENCH_ARCHIVE) $(BENCH_PLUGINS) $(BENCH_FIGURES) $(PLUGINS)
$(BUILD)/tests/test_shm_communicator $(BUILD)/tests/test_shm_failures: | $(SHM_PLUGIN)
ifneq ($(MPI_PLUGIN),)
COUNTING_MPI := $(BUILD)/tests/counting_mpi.so
$(COUNTING_MPI): tests/plugins/counting_mpi.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(MPI_CFLAGS:-I%=-isystem %) $(CFLAGS) -o $@ $< -shared -Wl,-z,now $(LINK) -Wl,--no-as-needed $(MPI_LIBS)
endif
$(BUILD)/tests/test_mpi: | $(MPI_PLUGIN) $(SHM_PLUGIN) $(COUNTING_MPI)
$(BUILD)/tests/test_save_call: | $(COMMAND) $(CPU_PLUGIN)
$(BUILD)/tests/test_guard $(BUILD)/tests/test_canary $(BUILD)/tests/test_host_fallback: | $(CPU_PLUGIN) $(BUILD)/tests/plugins/device.so
$(BUILD)/tests/test_groups $(BUILD)/tests/test_over_ranks: | $(BUILD)/tests/plugins/communicators.so $(BUILD)/tests/plugins/device.so $(CPU_PLUGIN) $(SHM_PLUGIN)
$(BUILD)/tests/test_first_minute: | $(COMMAND) $(LLM) $(PLUGINS)
$(BUILD)/tests/test_ir: | $(CPU_PLUGIN)
$(BUILD)/tests/test_llm: | $(LLM) $(CPU_PLUGIN) config-files
$(BUILD)/tests/test_setting_pages: | $(BUILD)/setting-pages
-include tests/plugins.mk
-include tests/drivers/ascend/stand_in.mk
include tests/drivers/gpu/drivers.mk
include tests/drivers/nccl/nccl.mk
include tests/drivers/flagcx/flagcx.mk
include tests/drivers/hccl/hccl.mk
$(BUILD)/tests/test_secure: | $(ASCEND_PLUGIN) $(ASCEND_STAND_IN_LIBRARIES) $(STANDINS) $(GPU_TEST_PLUGINS)
include tests/fuzz/fuzz.mk
include tests/faults/faults.mk
include tests/cross/cross.mk
