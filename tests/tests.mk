# Tests: each tests/test_*.c is one Check suite, a program of its own; tests/plugins.mk builds the plugins they load.
$(BUILD)/tests/test_%: tests/test_%.c $(STATIC) $(TEST_SUPPORT) | $(BUILD)/ops.stamp
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CORE_CFLAGS) $(CFLAGS) -o $@ $< $(TEST_SUPPORT) $(STATIC) $(LINK) $(CORE_LIBS) $(CHECK_LIBS)
-include tests/plugins.mk
