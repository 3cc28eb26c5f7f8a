# The AMD backend: any C compiler builds it; its kernels would need hipcc.
PLUGINS += $(BUILD)/plugins/rocm.so
$(BUILD)/plugins/rocm.so: plugins/rocm/rocm.c plugins/driver.h
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -DFLHOST_VERSION='"$(VERSION)"' $(PLUGIN_LINK) -o $@ $< $(LINK) -ldl

.PHONY: toolchain-rocm
toolchains: toolchain-rocm
toolchain-rocm:
	@if command -v "$${HIPCC:-hipcc}" > /dev/null; then echo "rocm: $$(command -v "$${HIPCC:-hipcc}")"; \
	else echo "rocm: no hipcc in PATH (HIPCC=...)"; fi
