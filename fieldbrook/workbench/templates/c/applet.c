/* {{name}}: counts its events under the key `count`, and logs each. */
#include "fieldbrook.h"

#include <string.h>

static const char COUNT[] = "count";
enum { COUNT_SIZE = sizeof COUNT - 1 };
enum { DIGITS = 20 }; /* digits of the largest 64-bit number */

static uint64_t parse(const uint8_t *text, size_t size) {
  uint64_t number = 0;
  for (size_t i = 0; i < size && text[i] >= '0' && text[i] <= '9'; i++)
    number = number * 10 + (uint64_t)(text[i] - '0');
  return number;
}

/* A text that is put together; what is too long for it is left out. */
struct text {
  size_t size;
  char chars[200];
};

static void add_char(struct text *to, char more) {
  if (to->size < sizeof to->chars) to->chars[to->size++] = more;
}

static void add(struct text *to, const char *more) {
  while (*more != 0) add_char(to, *more++);
}

static void add_number(struct text *to, uint64_t number) {
  char digits[DIGITS];
  size_t count = 0;
  do {
    digits[count++] = (char)('0' + number % 10);
    number /= 10;
  } while (number != 0);
  while (count > 0) add_char(to, digits[--count]);
}

/* Ends the run with a reason in the log. The node then discards the run's writes, answers -1, and
 * keeps the event as a dead letter. */
static _Noreturn void fail(const char *reason) {
  ws_log(LEVEL_ERROR, reason, strlen(reason));
  __builtin_trap();
}

/* The handler: called once for each event; `rid` is the event's id. */
EXPORT("start") int32_t start(int32_t rid) {
  uint8_t *payload, *known;
  size_t size, known_size;
  if (ws_get_data(rid, &payload, &size) != OK) fail("the payload cannot be read");

  uint64_t count = 1;
  int32_t code = ws_get_db(COUNT, COUNT_SIZE, &known, &known_size);
  if (code == OK)
    count += parse(known, known_size);
  else if (code != NOT_FOUND)
    fail("the count cannot be read");
  struct text stored = {0}, line = {0};
  add_number(&stored, count);
  if (ws_set_db(COUNT, COUNT_SIZE, stored.chars, stored.size) != OK)
    fail("the count cannot be stored");

  add(&line, "count=");
  add_number(&line, count);
  add(&line, " bytes=");
  add_number(&line, size);
  ws_log(LEVEL_INFO, line.chars, line.size);
  return OK;
}
