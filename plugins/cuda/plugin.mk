# The NVIDIA backend. Machine code for each of CUDA_ARCHS, which also runs on later minors, and PTX of the oldest and the
# newest for what comes after. -fmad=false: a multiplication and an addition round twice, as on the CPU.
NVCC ?= nvcc
CUDA_ARCHS ?= 80 89 90 100
GPU_cuda_COMPILER := $(shell command -v $(NVCC))
GPU_cuda_NAMED := $(filter-out file,$(origin NVCC))
ifneq ($(GPU_cuda_COMPILER),)
GPU_cuda_TOOLKIT := $(shell $(NVCC) --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]\).*/\10\20/p')
GPU_cuda_DEFINES := -DGPU_TOOLKIT=$(GPU_cuda_TOOLKIT) -DGPU_ARCHS='$(CUDA_ARCHS:%=%,)'
endif
CUDA_PTX = $(firstword $(CUDA_ARCHS)) $(lastword $(CUDA_ARCHS))
GPU_cuda_KERNELS = $(NVCC) -fatbin --threads 0 --compress-mode=size -std=c++17 -O3 -fmad=false -Werror all-warnings -I. \
  $(foreach arch,$(CUDA_ARCHS),-gencode arch=compute_$(arch),code=sm_$(arch)) \
  $(foreach arch,$(CUDA_PTX),-gencode arch=compute_$(arch),code=compute_$(arch)) -o $@.new $< && mv $@.new $@
GPU_cuda_LIBRARIES := cublaslt cublaslt_experts cudnn cudnn_graph cudnn_plans
$(eval $(call gpu_plugin,cuda,cuda_driver,$(GPU_cuda_LIBRARIES)))

.PHONY: toolchain-cuda
toolchains: toolchain-cuda
toolchain-cuda:
	@if test -n "$(GPU_cuda_COMPILER)"; then echo "cuda: $(GPU_cuda_COMPILER)"; \
	else echo "cuda: no kernels: no nvcc in PATH (NVCC=...)"; fi
