# The AMD backend: for each file of kernels one bundle of code objects, for those of ROCM_ARCHS that the compiler knows.
# It is clang alone: kernels need no header and no device library of HIP's (plugins/gpu/kernels/amd.h). Every ROCm from 5
# on loads code objects of version 4. -ffp-contract=off: a multiplication and an addition round twice, as on the CPU.
ROCM_CLANGS := clang-19 amdclang clang-15
ROCM_CLANG ?= $(firstword $(foreach clang,$(ROCM_CLANGS),$(shell command -v $(clang))))
ROCM_ARCHS ?= gfx908 gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1101 gfx1200 gfx1201
GPU_rocm_NAMED := $(filter-out file,$(origin ROCM_CLANG) $(origin ROCM_ARCHS))
ROCM_DEVICE := -nogpuinc -nogpulib -fuse-cuid=none
ifeq ($(shell command -v $(ROCM_CLANG)),)
ROCM_LACK := $(or $(ROCM_CLANG:%=no %),none of $(ROCM_CLANGS)) in PATH
else
rocm_has = $(shell command -v "$$($(ROCM_CLANG) -print-prog-name=$(1))")
ROCM_KNOWN := $(shell $(ROCM_CLANG) $(ROCM_DEVICE) --target=amdgcn-amd-amdhsa --print-supported-cpus 2>&1)
GPU_rocm_ARCHS := $(filter $(ROCM_KNOWN),$(ROCM_ARCHS))
ROCM_LACK := $(if $(GPU_rocm_ARCHS),,$(ROCM_CLANG) knows none of $(ROCM_ARCHS))
ROCM_LACK += $(foreach tool,lld clang-offload-bundler,$(if $(call rocm_has,$(tool)),,$(ROCM_CLANG) has no $(tool)))
endif
ifeq ($(strip $(ROCM_LACK)),)
GPU_rocm_COMPILER := $(ROCM_CLANG)
GPU_rocm_DEFINES := -DGPU_ARCHS='"$(subst $() ,,$(GPU_rocm_ARCHS:%=%,))"'
endif
GPU_rocm_KERNELS = $(ROCM_CLANG) -x hip --cuda-device-only --gpu-bundle-output $(ROCM_DEVICE) -mcode-object-version=4 \
  -std=c++17 -O3 -ffp-contract=off -Wall -Wextra -Werror -I. $(GPU_rocm_ARCHS:%=--offload-arch=%) -o $@.new $< && mv $@.new $@
$(eval $(call gpu_plugin,rocm,hip_driver,rocblas))

.PHONY: toolchain-rocm
toolchains: toolchain-rocm
ROCM_UNKNOWN := $(filter-out $(GPU_rocm_ARCHS),$(ROCM_ARCHS))
toolchain-rocm:
	@if test -n "$(GPU_rocm_COMPILER)"; then \
	  echo "rocm: $(ROCM_CLANG) for $(GPU_rocm_ARCHS)$(if $(ROCM_UNKNOWN), (it does not know $(ROCM_UNKNOWN)))"; \
	else echo "rocm: no kernels: $(strip $(ROCM_LACK)) (ROCM_CLANG=...)"; fi
