# The Huawei backend: any C compiler builds it, CANN is looked for at run time.
ASCEND_PLUGIN := $(BUILD)/plugins/ascend.so
ASCEND_PLUGIN_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard plugins/ascend/*.c))
PLUGINS += $(ASCEND_PLUGIN)
$(eval $(call listed_ops,ascend,$(ASCEND_PLUGIN_OBJECTS)))
$(ASCEND_PLUGIN): $(ASCEND_PLUGIN_OBJECTS) $(BUILD)/obj/plugins/ascend/listed_ops.o
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_LINK) -o $@ $(filter %.o,$^) $(LINK) -ldl -lm

.PHONY: toolchain-ascend
toolchains: toolchain-ascend
toolchain-ascend:
	@echo "ascend: complete, no toolkit is needed; CANN is looked for when it runs"
