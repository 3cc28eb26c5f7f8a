# Stand-ins for the GPUs' drivers, and the GPU plugins as tests load them: with images for the stand-ins, which know the
# kernels by name, so that the tests need no vendor's compiler. Kernels are compiled for the CPU once for each width of a
# warp. The thread sanitizer does not follow the coroutines that they run in; others look at one of the two widths, and `override`
# says so where the command line has the sanitizer.
TD := $(BUILD)/tests/drivers
GPU_EMULATION := $(patsubst plugins/gpu/kernels/%.cu,%.kernel.o,$(wildcard plugins/gpu/kernels/*.cu)) probe.kernel.o grid.o coroutine.o

$(GPU_EMULATION:%=$(TD)/warp32/%): override SANITIZE := $(filter-out -fsanitize=thread,$(SANITIZE))
$(GPU_EMULATION:%=$(TD)/warp64/%): override SANITIZE :=
EMULATE = $(CXX) -x c++ -std=c++17 -fno-exceptions -fPIC -fvisibility=hidden -ffp-contract=off -Wall -Wextra -Werror -Wno-unknown-pragmas -I. -Iinclude -MMD -MP \
  $(SANITIZE) $(SANITIZE_KERNELS) $(patsubst -g,-g1,$(CFLAGS)) -include tests/drivers/gpu/emulated.h -c -o $@ $<
define emulation
$(TD)/warp$(1)/%.kernel.o: plugins/gpu/kernels/%.cu
	@mkdir -p $$(@D)
	$$(EMULATE) -DGRID_WARP=$(1)
$(TD)/warp$(1)/probe.kernel.o: tests/drivers/gpu/probe.cu
	@mkdir -p $$(@D)
	$$(EMULATE) -DGRID_WARP=$(1)
$(TD)/warp$(1)/%.o: tests/drivers/gpu/%.c
	@mkdir -p $$(@D)
	$$(CC) $$(BASE) $$(CFLAGS) -DGRID_WARP=$(1) -c -o $$@ $$<
endef
$(eval $(call emulation,32))
$(eval $(call emulation,64))

# standin NAME,SOURCE,WARP,FLAGS: a driver, and in the same file the vendor's libraries that go with it.
LIBRARIES_cuda := cublaslt cudnn
LIBRARIES_hip := rocblas
STANDIN_SOURCES := $(patsubst %,tests/drivers/gpu/%.c,product standin streams events graphs pools)
define standin
STANDINS += $(TD)/$(1)
$(TD)/$(1): tests/drivers/gpu/$(2).c $(LIBRARIES_$(2):%=tests/drivers/gpu/%.c) $(STANDIN_SOURCES) $(GPU_EMULATION:%=$(TD)/warp$(3)/%)
	@mkdir -p $$(@D)
	$$(CC) $$(BASE) $$(CFLAGS) -DSTANDIN_$(2) $(4) -shared -Wl,-z,defs,-z,now,-Bsymbolic -o $$@ $$(filter %.c %.o,$$^) $$(LINK) -lm
endef
$(eval $(call standin,standin_cuda.so,cuda,32))
$(eval $(call standin,standin_cuda_old.so,cuda,32,-DWITHOUT_ERROR_NAME))
$(eval $(call standin,standin_cuda_lean.so,cuda,32,-DSTANDIN_LEAN))
$(eval $(call standin,standin_hip_lean.so,hip,64,-DSTANDIN_LEAN))
$(eval $(call standin,standin_hip5.so,hip,64))
$(eval $(call standin,standin_hip6.so,hip,64,-DHIP_R0600))
$(eval $(call standin,standin_hip32.so,hip,32,-DHIP_R0600 -DHIP_WAVE32))

# The plugins' own objects, but for what says which kernels there are.
$(TD)/%.image.o: plugins/gpu/image.c tests/drivers/gpu/image
	@mkdir -p $(@D)
	$(GPU_COMPILE) -DGPU_MODULE_NAME=$* -DGPU_IMAGE='"tests/drivers/gpu/image"' $<
$(TD)/cuda_driver.o: GPU_TEST_DEFINES := -DGPU_TOOLKIT=13000 -DGPU_ARCHS='80,90,'
$(TD)/hip_driver.o: GPU_TEST_DEFINES := -DGPU_ARCHS='"gfx90a,gfx942,gfx1100,gfx1200,"'
$(TD)/cuda_driver.o $(TD)/hip_driver.o: $(TD)/%.o: plugins/gpu/%.c
	$(GPU_COMPILE) $(GPU_TEST_DEFINES) $<
GPU_TEST_PLUGINS := $(TD)/plugins/cuda.so $(TD)/plugins/rocm.so
GPU_TEST_OBJECTS := $(GPU_OBJECTS) $(GPU_KERNELS:%=$(TD)/%.image.o)
$(TD)/plugins/cuda.so: $(GPU_TEST_OBJECTS) $(TD)/cuda_driver.o $(BUILD)/obj/plugins/cuda/cuda.o $(GPU_cuda_LIBRARIES:%=$(BUILD)/obj/plugins/gpu/%.o)
$(TD)/plugins/rocm.so: $(GPU_TEST_OBJECTS) $(TD)/hip_driver.o $(BUILD)/obj/plugins/rocm/rocm.o $(BUILD)/obj/plugins/gpu/rocblas.o
# As they are without the vendors' compilers.
GPU_TEST_PLUGINS += $(TD)/plugins/cuda_bare.so $(TD)/plugins/rocm_bare.so
$(TD)/bare/cuda_driver.o $(TD)/bare/hip_driver.o: $(TD)/bare/%.o: plugins/gpu/%.c
	$(GPU_COMPILE) $<
$(TD)/bare/%.image.o: plugins/gpu/image.c
	$(GPU_COMPILE) -DGPU_MODULE_NAME=$* $<
GPU_BARE_OBJECTS := $(GPU_OBJECTS) $(GPU_KERNELS:%=$(TD)/bare/%.image.o)
$(TD)/plugins/cuda_bare.so: $(GPU_BARE_OBJECTS) $(TD)/bare/cuda_driver.o $(BUILD)/obj/plugins/cuda/cuda.o $(GPU_cuda_LIBRARIES:%=$(BUILD)/obj/plugins/gpu/%.o)
$(TD)/plugins/rocm_bare.so: $(GPU_BARE_OBJECTS) $(TD)/bare/hip_driver.o $(BUILD)/obj/plugins/rocm/rocm.o $(BUILD)/obj/plugins/gpu/rocblas.o
$(GPU_TEST_PLUGINS):
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_LINK) -o $@ $(filter %.o,$^) $(LINK) -ldl -lm

GPU_SUITES := $(patsubst %,$(BUILD)/tests/test_gpu_%,kernels sequences paged_attention plugin host work graphs grid math cudnn experts batches quantisation engine command)
$(GPU_SUITES): | $(STANDINS) $(GPU_TEST_PLUGINS) $(CPU_PLUGIN)
$(BUILD)/tests/test_gpu_command: | $(COMMAND)
$(BUILD)/tests/test_gpu_images: | $(BUILD)/plugins/rocm.so $(STANDINS)
$(BUILD)/tests/test_gpu_devices: | $(PLUGINS) $(COMMAND)
$(BUILD)/tests/test_bench_gpu: | $(COMMAND) $(PLUGINS) $(STANDINS)
