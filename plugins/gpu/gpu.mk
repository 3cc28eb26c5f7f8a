# What the CUDA and the ROCm backend share (plugins/gpu): host code that any C compiler builds, and kernels in
# plugins/gpu/kernels, each file of which is compiled for one vendor's devices and embedded. Without the vendor's
# compiler its plugin has the platform and no kernels, and says so.
GPU_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out plugins/gpu/%_driver.c plugins/gpu/cublaslt%.c plugins/gpu/cudnn%.c plugins/gpu/rocblas.c plugins/gpu/image.c,$(wildcard plugins/gpu/*.c plugins/gpu/ops/*.c))) \
  $(BUILD)/obj/plugins/quantile.o
# What the vendors' compilers make is the same for every variant of the build.
GPU_IMAGES := build/kernels
GPU_KERNELS := $(basename $(notdir $(wildcard plugins/gpu/kernels/*.cu)))
GPU_COMPILE = @mkdir -p $(@D); $(CC) $(BASE) $(CFLAGS) -DFLHOST_VERSION='"$(VERSION)"' -c -o $@

# gpu_plugin NAME,DRIVER,MATH: build/plugins/NAME.so; MATH are the objects of the vendor's own libraries. GPU_NAME_COMPILER, where there is one, and GPU_NAME_KERNELS, the command
# that makes $@ of $<, are the plugin's own; GPU_NAME_DEFINES say to DRIVER what was compiled. When the command or the
# compiler's version, GPU_NAME_TOOLKIT, changes, the images are made anew, and with them this variant's objects. A
# compiler that is merely not in PATH, as under sudo, unmakes nothing; one that the caller names (GPU_NAME_NAMED) does.
define gpu_plugin
PLUGINS += $(BUILD)/plugins/$(1).so
GPU_$(1)_OBJECTS := $(BUILD)/obj/plugins/$(1)/$(1).o $(BUILD)/obj/plugins/$(1)/$(2).o $(3:%=$(BUILD)/obj/plugins/gpu/%.o)
GPU_$(1)_IMAGES := $(GPU_KERNELS:%=$(BUILD)/obj/plugins/$(1)/%.image.o)
$(call listed_ops,$(1),$(GPU_OBJECTS) $$(GPU_$(1)_OBJECTS) $$(GPU_$(1)_IMAGES))
$(BUILD)/plugins/$(1).so: $(GPU_OBJECTS) $$(GPU_$(1)_OBJECTS) $$(GPU_$(1)_IMAGES) $(BUILD)/obj/plugins/$(1)/listed_ops.o
	@mkdir -p $$(@D)
	$$(CC) $$(PLUGIN_LINK) -o $$@ $$(filter %.o,$$^) $$(LINK) -ldl -lm
GPU_$(1)_STAMP := $(if $(GPU_$(1)_COMPILER)$(GPU_$(1)_NAMED),$(BUILD)/obj/plugins/$(1)/kernels.stamp)
$(BUILD)/obj/plugins/$(1)/kernels.stamp $(GPU_IMAGES)/$(1).stamp: .FORCE
	@mkdir -p $$(@D)
	@echo '$$(GPU_$(1)_COMPILER) $$(GPU_$(1)_TOOLKIT) $$(GPU_$(1)_KERNELS)' >$$@.new
	@cmp -s $$@.new $$@ && rm $$@.new || mv $$@.new $$@
$(BUILD)/obj/plugins/$(1)/$(2).o: plugins/gpu/$(2).c $(BUILD)/harden.stamp $$(GPU_$(1)_STAMP)
	$$(GPU_COMPILE) $$(GPU_$(1)_DEFINES) $$<
ifneq ($$(GPU_$(1)_COMPILER),)
$(BUILD)/obj/plugins/$(1)/%.image.o: plugins/gpu/image.c $(BUILD)/harden.stamp $$(GPU_IMAGES)/$(1)/% $$(GPU_$(1)_STAMP)
	$$(GPU_COMPILE) -DGPU_MODULE_NAME=$$* -DGPU_IMAGE='"$$(GPU_IMAGES)/$(1)/$$*"' $$<
$(GPU_KERNELS:%=$(GPU_IMAGES)/$(1)/%): $$(GPU_IMAGES)/$(1)/%: plugins/gpu/kernels/%.cu $(wildcard plugins/gpu/kernels/*.h plugins/gpu/kernels/arguments/*.h) $(GPU_IMAGES)/$(1).stamp
	@mkdir -p $$(@D)
	$$(GPU_$(1)_KERNELS)
else
$(BUILD)/obj/plugins/$(1)/%.image.o: plugins/gpu/image.c $(BUILD)/harden.stamp $$(GPU_$(1)_STAMP)
	$$(GPU_COMPILE) -DGPU_MODULE_NAME=$$* $$<
endif
endef
