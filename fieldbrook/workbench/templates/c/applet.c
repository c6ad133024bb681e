/* {{name}}: counts its events under the key `count`, and logs each. */
#include "fieldbrook.h"

static const char COUNT[] = "count";
enum { COUNT_SIZE = sizeof COUNT - 1 };
enum { DIGITS = 20 }; /* digits of the largest 64-bit number */
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

static uint64_t parse(const uint8_t *text, size_t size) {
  uint64_t number = 0;
  for (size_t i = 0; i < size && text[i] >= '0' && text[i] <= '9'; i++)
    number = number * 10 + (uint64_t)(text[i] - '0');
  return number;
}

static char *append_text(char *to, const char *text) {
  while (*text != '\0') *to++ = *text++;
  return to;
}

static char *append_number(char *to, uint64_t number) {
  char digits[DIGITS];
  size_t count = 0;
  do {
    digits[count++] = (char)('0' + number % 10);
    number /= 10;
  } while (number != 0);
  while (count > 0) *to++ = digits[--count];
  return to;
}

/* The handler: called once for each event; `rid` is the event's id. */
EXPORT("start") int32_t start(int32_t rid) {
  uint8_t *payload, *known;
  size_t size, known_size;
  if (ws_get_data(rid, &payload, &size) != OK) return FAILED;

  uint64_t count = 1;
  if (ws_get_db(COUNT, COUNT_SIZE, &known, &known_size) == OK) count += parse(known, known_size);
  char text[DIGITS];
  size_t digits = (size_t)(append_number(text, count) - text);
  if (ws_set_db(COUNT, COUNT_SIZE, text, digits) != OK) return FAILED;

  char line[64];
  char *end = append_number(append_text(line, "count="), count);
  end = append_number(append_text(end, " bytes="), size);
  ws_log(LEVEL_INFO, line, (size_t)(end - line));
  return OK;
}
