# Backends: one .so each, built against include/flhost/plugin.h alone. A directory's own plugin.mk adds to PLUGINS.
PLUGIN_LINK := -shared -Wl,--build-id,-z,defs,-Bsymbolic,--version-script=plugins/plugin.map

# listed_ops NAME,OBJECTS: NAME/listed_ops.o, the FL_PLUGIN_OPS of what OBJECTS register.
define listed_ops
$(BUILD)/obj/plugins/$(1)/list: plugins/list_ops.c $(2)
	@mkdir -p $$(@D)
	$$(CC) $$(BASE) $$(CFLAGS) -MF $$@.d -o $$@ $$(filter %.c %.o,$$^) $$(LINK) -ldl -lm
$(BUILD)/obj/plugins/$(1)/listed_ops.c: $(BUILD)/obj/plugins/$(1)/list
	$$(EMULATOR) $$< > $$@.new && mv $$@.new $$@
$(BUILD)/obj/plugins/$(1)/listed_ops.o: $(BUILD)/obj/plugins/$(1)/listed_ops.c
	$$(CC) $$(BASE) $$(CFLAGS) -c -o $$@ $$<
endef

include plugins/gpu/gpu.mk plugins/ranks/ranks.mk
include $(wildcard plugins/*/plugin.mk)
