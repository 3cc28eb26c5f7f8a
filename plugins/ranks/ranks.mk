# What communicators over a vendor's library share (plugins/ranks).
RANKS_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard plugins/ranks/*.c))
