# The CPU backend. The optimised kernels are written for the vectoriser, so they get -O3; functions are aligned so that what
# a call costs does not change with the kernels that lie before it.
CPU_PLUGIN := $(BUILD)/plugins/cpu.so
CPU_PLUGIN_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(foreach folder,cpu cpu/reference cpu/flagos,$(sort $(wildcard plugins/$(folder)/*.c))))
PLUGINS += $(CPU_PLUGIN)
$(CPU_PLUGIN_OBJECTS): $(BUILD)/obj/plugins/cpu/%.o: plugins/cpu/%.c $(BUILD)/harden.stamp
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(if $(findstring plugins/cpu/flagos/,$<),-O3 -falign-functions=64 -fno-math-errno -fno-trapping-math) $(CPU_FLAGS) -DFLHOST_VERSION='"$(VERSION)"' -c -o $@ $<
$(eval $(call listed_ops,cpu,$(CPU_PLUGIN_OBJECTS)))
$(CPU_PLUGIN): $(CPU_PLUGIN_OBJECTS) $(BUILD)/obj/plugins/cpu/listed_ops.o
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_LINK) -o $@ $^ $(LINK) -lm

# Products are sums of many terms in any order: with fused multiply-add they are faster and no less exact.
$(BUILD)/obj/plugins/cpu/flagos/matmul.o: CPU_FLAGS := -ffp-contract=fast
