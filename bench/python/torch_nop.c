/*
 * What an op of torch's costs whose kernel does nothing: registered as flhost's are, by torch's stable C interface. It
 * releases its arguments, as each kernel must. Loaded by ctypes from bench/python/run.py, into a process with torch.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t word;
typedef int32_t (*delete_tensor_function)(void *tensor);

static delete_tensor_function delete_tensor;

/* (Tensor, Tensor, Tensor) -> () */
static void nothing(word *stack, uint64_t n_arguments, uint64_t n_results) {
  (void)n_results;
  for (uint64_t i = 0; i < n_arguments; i++)
    delete_tensor((void *)(uintptr_t)stack[i]);
}

static void find(void *library, const char *name, void *place) {
  void *found = dlsym(library, name);
  memcpy(place, &found, sizeof found);
}

/* Gives `name`, of the form above and defined in flhost_bench, its kernel; 0: done. */
__attribute__((visibility("default"))) int torch_nop_register(const char *name);
int torch_nop_register(const char *name) {
  static void *registered;
  void *torch = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  int32_t (*init)(const char *, const char *, const char *, uint32_t, void **);
  int32_t (*implement)(void *, const char *, void (*)(word *, uint64_t, uint64_t), uint64_t);
  if (!torch)
    return 1;
  find(torch, "aoti_torch_library_init_impl", &init);
  find(torch, "torch_library_impl", &implement);
  find(torch, "aoti_torch_delete_tensor_object", &delete_tensor);
  if (!init || !implement || !delete_tensor)
    return 1;
  return init("flhost_bench", "CompositeExplicitAutograd", "torch_nop.c", 0, &registered) ||
         implement(registered, name, nothing, (UINT64_C(2) << 56) | (UINT64_C(10) << 48));
}
