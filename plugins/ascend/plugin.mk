# The Huawei backend: any C compiler builds it; its kernels would need CANN.
PLUGINS += $(BUILD)/plugins/ascend.so
$(BUILD)/plugins/ascend.so: plugins/ascend/ascend.c plugins/driver.h
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -DFLHOST_VERSION='"$(VERSION)"' $(PLUGIN_LINK) -o $@ $< $(LINK) -ldl

.PHONY: toolchain-ascend
toolchains: toolchain-ascend
toolchain-ascend:
	@if test -n "$${ASCEND_HOME_PATH:-$$ASCEND_TOOLKIT_HOME}"; then echo "ascend: $${ASCEND_HOME_PATH:-$$ASCEND_TOOLKIT_HOME}"; \
	else echo "ascend: no CANN toolkit (ASCEND_HOME_PATH is not set)"; fi
