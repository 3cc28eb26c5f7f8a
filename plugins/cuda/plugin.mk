# The NVIDIA backend: any C compiler builds it; its kernels would need nvcc.
PLUGINS += $(BUILD)/plugins/cuda.so
$(BUILD)/plugins/cuda.so: plugins/cuda/cuda.c plugins/driver.h
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -DFLHOST_VERSION='"$(VERSION)"' $(PLUGIN_LINK) -o $@ $< $(LINK) -ldl

.PHONY: toolchain-cuda
toolchains: toolchain-cuda
toolchain-cuda:
	@if command -v "$${NVCC:-nvcc}" > /dev/null; then echo "cuda: $$(command -v "$${NVCC:-nvcc}")"; \
	else echo "cuda: no nvcc in PATH (NVCC=...)"; fi
