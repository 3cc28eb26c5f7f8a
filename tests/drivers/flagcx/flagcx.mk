# Stand-ins for FlagCX, as it is found under FLAGCX_PATH: in lib, as it is; in build/lib of others, as 0.12 was, and
# without a function.
FLAGCX_STANDINS := $(TD)/flagcx/lib/libflagcx.so $(TD)/flagcx_old/build/lib/libflagcx.so $(TD)/flagcx_lacks/build/lib/libflagcx.so
$(TD)/flagcx_old/build/lib/libflagcx.so: STANDIN_IS := -DFLAGCX_OLD
$(TD)/flagcx_lacks/build/lib/libflagcx.so: STANDIN_IS := -DFLAGCX_LACKS
$(FLAGCX_STANDINS): tests/drivers/flagcx/flagcx.c $(NCCL_STANDIN_SHARED) $(NCCL_STANDIN_HEADERS) plugins/flagcx/flagcx_functions.h
	$(standin_library)
$(BUILD)/tests/test_flagcx $(BUILD)/tests/test_rank_limits: | $(FLAGCX_STANDINS) $(FLAGCX_PLUGIN) $(TD)/libnccl.so.2 $(NCCL_PLUGINS) $(TD)/standin_cuda.so $(TD)/plugins/cuda.so
