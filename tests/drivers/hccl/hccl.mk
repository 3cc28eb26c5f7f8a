# Stand-ins for HCCL: as it is, without what came later, without a function that is needed; and a library without any,
# as where the functions are in libhcomm.so.
HCCL_STANDINS := $(TD)/hccl/libhccl.so $(TD)/hccl/libhccl_bare.so $(TD)/hccl/libhccl_lacks.so
$(HCCL_STANDINS): STANDIN_IS := -DSTANDIN_ACL
$(TD)/hccl/libhccl_bare.so: STANDIN_IS += -DHCCL_BARE
$(TD)/hccl/libhccl_lacks.so: STANDIN_IS += -DHCCL_LACKS
$(HCCL_STANDINS): tests/drivers/hccl/hccl.c $(NCCL_STANDIN_SHARED) $(NCCL_STANDIN_HEADERS) plugins/hccl/hccl_functions.h
	$(standin_library)
$(TD)/hccl/libhccl_empty.so: tests/drivers/hccl/empty.c
	$(standin_library)
$(BUILD)/tests/test_hccl: | $(HCCL_STANDINS) $(TD)/hccl/libhccl_empty.so $(HCCL_PLUGIN) $(ASCEND_STAND_IN_LIBRARIES) $(ASCEND_PLUGIN)
$(BUILD)/tests/test_communicator_command: | $(COMMAND) $(CPU_PLUGIN) $(BUILD)/tests/plugins/two_vendors.so $(FLAGCX_STANDINS) $(FLAGCX_PLUGIN) $(HCCL_STANDINS) $(HCCL_PLUGIN) $(TD)/standin_cuda.so $(ASCEND_STAND_IN_LIBRARIES)
