# The AMD backend: code objects for each of ROCM_ARCHS. -ffp-contract=off: a multiplication and an addition round twice,
# as on the CPU.
HIPCC ?= hipcc
ROCM_ARCHS ?= gfx90a gfx908 gfx1030
GPU_rocm_COMPILER := $(shell command -v $(HIPCC))
ifneq ($(GPU_rocm_COMPILER),)
GPU_rocm_DEFINES := -DGPU_ARCHS='"$(subst $() ,,$(ROCM_ARCHS:%=%,))"'
endif
GPU_rocm_KERNELS = $(HIPCC) --genco -x hip -std=c++17 -O3 -ffp-contract=off -Wall -Wextra -Werror -I. \
  $(ROCM_ARCHS:%=--offload-arch=%) -o $@.new $< && mv $@.new $@
$(eval $(call gpu_plugin,rocm,hip_driver,rocblas))

.PHONY: toolchain-rocm
toolchains: toolchain-rocm
toolchain-rocm:
	@if test -n "$(GPU_rocm_COMPILER)"; then echo "rocm: $(GPU_rocm_COMPILER)"; \
	else echo "rocm: no hipcc in PATH (HIPCC=...): the plugin gets the platform, no kernels"; fi
