/* Memory: `alloc` for data from the node, and those functions of <string.h> that compilers expect
 * also where there is no C library. */
#include "fieldbrook.h"

#include <string.h>

#define PAGE 65536u

extern uint8_t __heap_base;
static uintptr_t heap;

/* The node calls this to allocate memory for data, e.g. a payload. Nothing is freed, because
 * an instance lives for one event. */
EXPORT("alloc") void *alloc(size_t size) {
  if (heap == 0) heap = (uintptr_t)&__heap_base;
  uint64_t start = (heap + 7u) & ~(uintptr_t)7u;
  uint64_t end = start + size;
  uint64_t have = (uint64_t)__builtin_wasm_memory_size(0) * PAGE;
  if (end > have) {
    uint64_t pages = (end - have + PAGE - 1) / PAGE;
    if (pages > PAGE || __builtin_wasm_memory_grow(0, (size_t)pages) == (size_t)-1) __builtin_trap();
  }
  heap = (uintptr_t)end;
  return (void *)(uintptr_t)start;
}

/* applet.toml has -fno-builtin, without which the compiler makes calls of memcpy from these loops. */
void *memcpy(void *to, const void *from, size_t size) {
  for (size_t i = 0; i < size; i++) ((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
  return to;
}

void *memmove(void *to, const void *from, size_t size) {
  if ((uintptr_t)to <= (uintptr_t)from) return memcpy(to, from, size);
  for (size_t i = size; i-- > 0;) ((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
  return to;
}

void *memset(void *to, int value, size_t size) {
  for (size_t i = 0; i < size; i++) ((uint8_t *)to)[i] = (uint8_t)value;
  return to;
}

int memcmp(const void *left, const void *right, size_t size) {
  const uint8_t *a = left, *b = right;
  for (size_t i = 0; i < size; i++)
    if (a[i] != b[i]) return a[i] - b[i];
  return 0;
}

size_t strlen(const char *text) {
  size_t size = 0;
  while (text[size] != '\0') size++;
  return size;
}
