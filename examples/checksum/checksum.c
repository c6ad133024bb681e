/* checksum: adds up the bytes of the payloads, and shows two kinds of failure.
 *
 *   start   adds the payload's bytes to the total under the key `total` (decimal text)
 *   fail    changes the total, then traps: the node undoes the change
 *   spin    never returns: the node stops it at the deadline
 *
 * No C library: the module needs nothing but the node.
 */
#include "w3bstream.h"

static const char TOTAL[] = "total";
#define TOTAL_SIZE (sizeof TOTAL - 1)
#define DIGITS 20 /* digits of the largest 64-bit number */
#define PAGE 65536u

extern uint8_t __heap_base;
static uintptr_t heap;

/* The node calls this to allocate memory for data that it passes. Nothing is freed, because an
 * instance lives for one event. */
WS_EXPORT("alloc") void *alloc(size_t size) {
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

static int32_t save_total(uint64_t total) {
  char text[DIGITS];
  const char *end = append_number(text, total);
  return ws_set_db(TOTAL, TOTAL_SIZE, text, (size_t)(end - text));
}

WS_EXPORT("start") int32_t start(int32_t rid) {
  uint8_t *data, *text;
  size_t size, text_size;
  if (ws_get_data(rid, &data, &size) != WS_OK) return WS_FAILED;

  uint64_t sum = 0;
  for (size_t i = 0; i < size; i++) sum += data[i];

  uint64_t total = sum;
  if (ws_get_db(TOTAL, TOTAL_SIZE, &text, &text_size) == WS_OK) total += parse(text, text_size);
  if (save_total(total) != WS_OK) return WS_FAILED;

  char line[64];
  char *end = append_number(append_text(line, "sum="), sum);
  end = append_number(append_text(end, " total="), total);
  ws_log(WS_INFO, line, (size_t)(end - line));
  return WS_OK;
}

WS_EXPORT("fail") int32_t fail(int32_t rid) {
  (void)rid;
  save_total(0);
  static const char line[] = "the total is 0 now, but not for long";
  ws_log(WS_WARNING, line, sizeof line - 1);
  __builtin_trap();
}

WS_EXPORT("spin") int32_t spin(int32_t rid) {
  volatile int32_t turning = rid;
  for (;;) turning = turning + 1;
}
