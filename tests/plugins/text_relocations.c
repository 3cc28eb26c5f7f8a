/* good.c with an address in its code that the dynamic linker has to fill in. */
#include "tests/plugins/good.c"

__asm__(".text\n.balign 8\n.8byte register_builtins\n");
