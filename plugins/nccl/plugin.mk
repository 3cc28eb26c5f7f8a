# Collectives between GPUs by NCCL and by RCCL: the same source, and what plugins/gpu knows of the drivers. Neither
# library is linked.
NCCL_OBJECTS := $(patsubst %,$(BUILD)/obj/plugins/nccl/%.o,plugin library membership collectives limit watchdog) $(RANKS_OBJECTS) $(BUILD)/obj/plugins/gpu/driver.o
NCCL_PLUGINS := $(BUILD)/plugins/nccl.so $(BUILD)/plugins/rccl.so
PLUGINS += $(NCCL_PLUGINS)
$(BUILD)/plugins/nccl.so: $(NCCL_OBJECTS) $(BUILD)/obj/plugins/nccl/nccl.o $(BUILD)/obj/plugins/cuda/cuda_driver.o
$(BUILD)/plugins/rccl.so: $(NCCL_OBJECTS) $(BUILD)/obj/plugins/nccl/rccl.o $(BUILD)/obj/plugins/rocm/hip_driver.o
$(NCCL_PLUGINS):
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_LINK) -o $@ $^ $(LINK) -ldl
