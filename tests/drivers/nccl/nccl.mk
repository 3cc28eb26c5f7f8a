# Stand-ins for NCCL and RCCL, of one source; and NCCL as it was at first.
NCCL_STANDIN_SHARED := $(patsubst %,tests/drivers/nccl/%.c,calls composed elements world)
NCCL_STANDIN_HEADERS := $(wildcard tests/drivers/nccl/*.h) plugins/nccl/nccl_functions.h
# standin_library: makes $@ of its prerequisites that are no headers, with the flags in STANDIN_IS.
define standin_library
	@mkdir -p $(@D)
	$(CC) $(filter-out -MMD -MP,$(BASE)) $(CFLAGS) $(STANDIN_IS) -shared -Wl,-z,defs,-z,now,-Bsymbolic,-soname,$(@F) -o $@ $(filter %.c,$^) $(LINK) -ldl
endef
NCCL_STANDINS := $(TD)/libnccl.so.2 $(TD)/librccl.so.1 $(TD)/libnccl_old.so
$(TD)/librccl.so.1: STANDIN_IS := -DSTANDIN_HIP
$(TD)/libnccl_old.so: STANDIN_IS := -DNCCL_OLD
$(NCCL_STANDINS): tests/drivers/nccl/nccl.c $(NCCL_STANDIN_SHARED) $(NCCL_STANDIN_HEADERS)
	$(standin_library)
$(BUILD)/tests/test_nccl $(BUILD)/tests/test_rank_limits: | $(NCCL_STANDINS) $(NCCL_PLUGINS) $(TD)/standin_cuda.so $(TD)/standin_hip6.so $(TD)/plugins/cuda.so $(TD)/plugins/rocm.so
