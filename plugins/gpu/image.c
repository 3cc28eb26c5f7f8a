/*
 * One file of kernels as the compiler left it, embedded. Compiled once for each: GPU_MODULE_NAME is its name and
 * GPU_IMAGE the file, in quotes; without GPU_IMAGE the module has no code for any device.
 */
#include "plugins/gpu/launch.h"

#define PASTE(a, b)  a##b
#define MODULE(name) PASTE(gpu_module_, name)
#define TEXT_OF(a)   #a
#define TEXT(a)      TEXT_OF(a)

#ifdef GPU_IMAGE
__asm__(".section .rodata\n"
        ".balign 64\n"
        "gpu_image:\n"
        ".incbin " TEXT(GPU_IMAGE) "\n"
                                   ".byte 0\n"
                                   ".previous\n");
extern const char gpu_image[];
#define IMAGE gpu_image
#else
#define IMAGE NULL
#endif

gpu_module MODULE(GPU_MODULE_NAME) = {.name = TEXT(GPU_MODULE_NAME), .image = IMAGE};
