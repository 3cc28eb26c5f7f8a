# The vendors' template is built so that the tests can load it; it is not installed.
TEMPLATE_PLUGIN := $(BUILD)/tests/plugins/template.so
$(TEMPLATE_PLUGIN): plugins/template/template.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(PLUGIN_LINK) -o $@ $< $(LINK) -lm
