/* device-proof: stores each signed reading of a device once, so that anybody can verify it.
 *
 *   payload       <signature, DER or 64 bytes, as hex> <a space> <the reading>
 *   DEVICE_KEY    the device's public key on P-256, as hex: a variable of the project
 *   stored        proof/<keccak256 of the reading, hex>: the payload as it was received
 *                 last: the keccak256 of the last reading, hex
 *
 * `start` returns 0 for a new proof and 1 for a stored one. It returns an error code of
 * signatures.h if the signature is not the device's, and -1 if the payload or the variable is
 * malformed; then it stores nothing.
 */
#include "../checksum/w3bstream.h"
#include "signatures.h"

enum { KEPT_ALREADY = 1 };
enum { DIGEST_SIZE = 32, DIGEST_HEX = 2 * DIGEST_SIZE };
#define PAGE 65536u
#define TEXT(literal) (literal), (sizeof(literal) - 1)

static const char KEY_NAME[] = "DEVICE_KEY";
static const char LAST[] = "last";
static const char PREFIX[] = "proof/";
enum { PREFIX_SIZE = sizeof PREFIX - 1 };

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

static int digit(uint8_t letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return -1;
}

/* Decodes hex digits up to the end or to a space. Returns the number of bytes, 0 if there is
 * another character. */
static size_t from_hex(const uint8_t *text, size_t size, uint8_t **bytes) {
  size_t digits = 0;
  while (digits < size && digit(text[digits]) >= 0) digits++;
  if (digits % 2 != 0 || (digits < size && text[digits] != ' ')) return 0;
  *bytes = alloc(digits / 2);
  for (size_t i = 0; i < digits / 2; i++)
    (*bytes)[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  return digits / 2;
}

static void to_hex(char *to, const uint8_t *bytes, size_t size) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < size; i++) {
    *to++ = digits[bytes[i] >> 4];
    *to++ = digits[bytes[i] & 15];
  }
}

static int32_t refuse(int32_t code, const char *why, size_t size) {
  ws_log(WS_WARNING, why, size);
  return code;
}

WS_EXPORT("start") int32_t start(int32_t rid) {
  uint8_t *payload, *variable, *signature, *public_key, *digest, *known;
  size_t size, variable_size, digest_size, known_size;

  if (ws_get_data(rid, &payload, &size) != WS_OK) return WS_FAILED;
  if (ws_get_env(KEY_NAME, sizeof KEY_NAME - 1, &variable, &variable_size) != WS_OK)
    return refuse(WS_FAILED, TEXT("the project has no variable DEVICE_KEY"));
  size_t key_size = from_hex(variable, variable_size, &public_key);
  if (key_size == 0 || 2 * key_size != variable_size)
    return refuse(WS_FAILED, TEXT("DEVICE_KEY is not hex"));

  size_t signature_size = from_hex(payload, size, &signature);
  if (signature_size == 0 || 2 * signature_size == size)
    return refuse(WS_FAILED, TEXT("expected a signature in hex, a space and a reading"));
  const uint8_t *reading = payload + 2 * signature_size + 1;
  size_t reading_size = size - 2 * signature_size - 1;

  if (fb_sha256(reading, reading_size, &digest, &digest_size) != FB_OK) return WS_FAILED;
  int32_t code =
      fb_verify_p256(digest, digest_size, signature, signature_size, public_key, key_size);
  if (code != FB_OK) return refuse(code, TEXT("the signature is not the device's"));

  if (fb_keccak256(reading, reading_size, &digest, &digest_size) != FB_OK) return WS_FAILED;
  char name[PREFIX_SIZE + DIGEST_HEX];
  for (size_t i = 0; i < PREFIX_SIZE; i++) name[i] = PREFIX[i];
  to_hex(name + PREFIX_SIZE, digest, DIGEST_SIZE);

  /* A reading can have many valid signatures, so its digest identifies it. */
  if (ws_get_db(name, sizeof name, &known, &known_size) == WS_OK) return KEPT_ALREADY;
  if (ws_set_db(name, sizeof name, payload, size) != WS_OK) return WS_FAILED;
  if (ws_set_db(LAST, sizeof LAST - 1, name + PREFIX_SIZE, DIGEST_HEX) != WS_OK) return WS_FAILED;
  ws_log(WS_INFO, name, sizeof name);
  return WS_OK;
}
