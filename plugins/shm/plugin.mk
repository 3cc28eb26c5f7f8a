# Collectives of the ranks of one machine, through shared memory: the C library and Linux are all it needs. What adds up
# elements is written for the vectoriser.
SHM_PLUGIN := $(BUILD)/plugins/shm.so
SHM_PLUGIN_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(sort $(wildcard plugins/shm/*.c)))
PLUGINS += $(SHM_PLUGIN)
$(BUILD)/obj/plugins/shm/reduce.o: plugins/shm/reduce.c plugins/shm/plugin.mk $(BUILD)/harden.stamp
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(if $(SANITIZE),-O1,-O3) -fno-math-errno -fno-trapping-math -c -o $@ $<
$(SHM_PLUGIN): $(SHM_PLUGIN_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_LINK) -o $@ $^ $(LINK)
