# Stand-ins for NCCL and RCCL, of one source; and NCCL as it was at first.
NCCL_STANDIN_SOURCES := $(wildcard tests/drivers/nccl/*.c)
NCCL_STANDINS := $(TD)/libnccl.so.2 $(TD)/librccl.so.1 $(TD)/libnccl_old.so
$(TD)/librccl.so.1: NCCL_IS := -DSTANDIN_HIP
$(TD)/libnccl_old.so: NCCL_IS := -DNCCL_OLD
$(NCCL_STANDINS): $(NCCL_STANDIN_SOURCES) tests/drivers/nccl/world.h plugins/nccl/nccl_functions.h
	@mkdir -p $(@D)
	$(CC) $(filter-out -MMD -MP,$(BASE)) $(CFLAGS) $(NCCL_IS) -shared -Wl,-z,defs,-z,now,-Bsymbolic,-soname,$(@F) -o $@ $(NCCL_STANDIN_SOURCES) $(LINK) -ldl
$(BUILD)/tests/test_nccl: | $(NCCL_STANDINS) $(NCCL_PLUGINS) $(TD)/standin_cuda.so $(TD)/standin_hip6.so $(TD)/plugins/cuda.so $(TD)/plugins/rocm.so
