# Collectives between Ascend NPUs by HCCL, which is not linked, and what plugins/ascend knows of the runtime.
HCCL_PLUGIN := $(BUILD)/plugins/hccl.so
PLUGINS += $(HCCL_PLUGIN)
$(HCCL_PLUGIN): $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard plugins/hccl/*.c) plugins/ascend/acl.c plugins/ascend/runtime.c plugins/ascend/locks.c) $(RANKS_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_LINK) -o $@ $^ $(LINK) -ldl
