# Backends: one .so each, built against include/flhost/plugin.h alone. A directory's own plugin.mk adds to PLUGINS.
PLUGIN_LINK := -shared -Wl,--build-id,-z,defs,-z,now,-Bsymbolic
include plugins/gpu/gpu.mk
include $(wildcard plugins/*/plugin.mk)
