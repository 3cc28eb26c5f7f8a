# `make check-aarch64`: the CPU plugin built for another architecture than this machine's, and its tests in an emulator. These
# are the tests that need no library but the C library: of the others the machine would need that architecture's.
CROSS_AARCH64 := aarch64-linux-gnu
CROSS_EMULATOR_AARCH64 = qemu-aarch64 -L /usr/$(CROSS_AARCH64)

CROSS_TESTS := $(BUILD)/tests/cross/kernels $(BUILD)/tests/cross/math
CROSS_KERNELS := tests/cross/kernels.c cli/trials/fill.c cli/trials/state.c core/cases/calls.c core/guard/compare.c $(OPS_SOURCES)
$(BUILD)/tests/cross/kernels: $(CROSS_KERNELS:%.c=$(BUILD)/obj/%.o) | $(CPU_PLUGIN)
$(BUILD)/tests/cross/math: $(BUILD)/obj/tests/cross/math.o $(BUILD)/obj/tests/vector_math/promises.o | $(CPU_MATH)
$(CROSS_TESTS):
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(LINK) -ldl -lm

# The library and the command need libraries of which only this machine's are here. With their headers they compile.
CROSS_HEADERS = -idirafter /usr/include/$(shell cc -print-multiarch)
.PHONY: cross-compiles
cross-compiles:
	@printf '%s\n' $(CORE_SOURCES) $(wildcard cli/*.c cli/*/*.c) | xargs -P $(shell nproc) -n 16 \
	  $(CC) $(filter-out -MMD -MP,$(BASE)) $(CORE_CFLAGS) $(CFLAGS) -fsyntax-only $(CROSS_HEADERS)

.PHONY: check-cross check-aarch64
check-cross: cross-compiles
	$(BUILD_QUIETLY) $(CROSS_TESTS)
	@TEST_WRAPPER='$(EMULATOR)' $(TEST_ENVIRONMENT) tests/run $(CROSS_TESTS)
check-aarch64: ## compile all for aarch64 (build/aarch64), and run what tests the CPU's kernels under qemu
	@missing=$$(for tool in $(CROSS_AARCH64)-gcc $(firstword $(CROSS_EMULATOR_AARCH64)); do \
	  command -v $$tool >/dev/null || echo "no $$tool"; done); \
	if [ -n "$$missing" ]; then echo "skip: check-aarch64:" $$missing "(.ci/deps ci installs it)"; else \
	  $(MAKE) --no-print-directory check-cross BUILD=$(BUILD)/aarch64 CC=$(CROSS_AARCH64)-gcc AR=$(CROSS_AARCH64)-ar \
	    CPU_OPTIMISE=-O2 OBJCOPY=$(CROSS_AARCH64)-objcopy EMULATOR='$(CROSS_EMULATOR_AARCH64)'; fi
