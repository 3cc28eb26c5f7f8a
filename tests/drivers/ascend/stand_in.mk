# The ACL stand-in: one file under the names of the vendor's libraries, in a directory of its own that only tests know.
ASCEND_STAND_IN := $(BUILD)/tests/drivers/ascend
ASCEND_STAND_IN_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/drivers/ascend/*.c)) \
  $(filter-out %/plugins/cpu/plugin.o,$(CPU_PLUGIN_OBJECTS))
ASCEND_STAND_IN_LIBRARIES := $(patsubst %,$(ASCEND_STAND_IN)/lib64/lib%.so,ascendcl nnopbase opapi)

$(ASCEND_STAND_IN)/stand_in.so: $(ASCEND_STAND_IN_OBJECTS)
	@mkdir -p $(@D)
	$(CC) -shared -Wl,-soname,libascendcl.so -Wl,-z,defs,-z,now,-Bsymbolic -o $@ $^ $(LINK) -lm
$(ASCEND_STAND_IN_LIBRARIES): $(ASCEND_STAND_IN)/stand_in.so
	@mkdir -p $(@D)
	ln -sf ../stand_in.so $@
$(patsubst %.c,$(BUILD)/%,$(wildcard tests/test_ascend*.c)): | $(ASCEND_STAND_IN_LIBRARIES) $(ASCEND_PLUGIN) $(CPU_PLUGIN) $(TP)/lib/libfake_driver.so
$(BUILD)/tests/test_ascend_command: | $(COMMAND) config-files $(BUILD)/tests/plugins/two_vendors.so
