# Collectives between GPUs by FlagCX: what NCCL's plugin is made of, but for the library, which is not linked.
FLAGCX_PLUGIN := $(BUILD)/plugins/flagcx.so
PLUGINS += $(FLAGCX_PLUGIN)
$(FLAGCX_PLUGIN): $(patsubst %,$(BUILD)/obj/plugins/%.o,flagcx/flagcx flagcx/library nccl/plugin nccl/membership \
  nccl/collectives nccl/limit nccl/watchdog gpu/driver cuda/cuda_driver) $(RANKS_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_LINK) -o $@ $^ $(LINK) -ldl
