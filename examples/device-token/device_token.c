/* device-token: rewards a device with one token for each signed reading.
 *
 * Handlers:
 *   report     payload: <signature, DER or 64 bytes, as hex> <a space> <the reading>. Verifies
 *              the signature and sends a transaction that mints a token for the owner
 *   credited   payload: a Transfer event of the contract, from a monitor. Counts the tokens
 *   settled    payload: the outcome of a transaction. Logs it
 *
 * Variables of the project:
 *   DEVICE_KEY   the device's public key on P-256, hex
 *   TOKEN        the address of the contract
 *   OWNER        the address that gets the tokens
 *   CHAIN_ID     the id of the chain
 *
 * Stored:
 *   tx/<keccak256 of the reading, hex>   the transaction's hash
 *   credited                             the number of tokens that the chain has credited
 *
 * `report` returns 0, or 1 for a reading that is already rewarded. It returns an error code of
 * signatures.h if the signature is not the device's, and -1 if a variable is missing or the chain
 * refuses.
 */
#include "../checksum/w3bstream.h"
#include "../device-proof/signatures.h"

enum { REWARDED_ALREADY = 1 };
enum { DIGEST_SIZE = 32, ADDRESS_HEX = 40, CHAIN_DIGITS = 9 };
#define PAGE 65536u
#define TEXT(literal) (literal), (sizeof(literal) - 1)

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

static char *put(char *to, const char *text, size_t size) {
  for (size_t i = 0; i < size; i++) *to++ = text[i];
  return to;
}

static char *put_hex(char *to, const uint8_t *bytes, size_t size) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < size; i++) {
    *to++ = digits[bytes[i] >> 4];
    *to++ = digits[bytes[i] & 15];
  }
  return to;
}

static int32_t refuse(int32_t code, const char *why, size_t size) {
  ws_log(WS_WARNING, why, size);
  return code;
}

/* Returns the 40 hex digits of an address in a variable, which may begin with 0x. */
static const char *address(const char *name, size_t name_size) {
  uint8_t *text;
  size_t size;
  if (ws_get_env(name, name_size, &text, &size) != WS_OK) return 0;
  if (size == ADDRESS_HEX + 2 && text[0] == '0' && text[1] == 'x') text += 2, size -= 2;
  if (size != ADDRESS_HEX) return 0;
  for (size_t i = 0; i < size; i++)
    if (digit(text[i]) < 0) return 0;
  return (const char *)text;
}

/* Parses a text of decimal digits; -1 if it contains another character. */
static int64_t number(const uint8_t *text, size_t size, size_t digits) {
  int64_t value = 0;
  if (size == 0 || size > digits) return -1;
  for (size_t i = 0; i < size; i++) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = 10 * value + (text[i] - '0');
  }
  return value;
}

/* Writes the transaction's request, whose data is the call `mint(owner, 1, reading)`. */
static size_t request(char *to, const char *token, const char *owner, const uint8_t *reading) {
  static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
  char *start = to;
  to = put(to, TEXT("{\"value\":\"0\",\"to\":\"0x"));
  to = put(to, token, ADDRESS_HEX);
  to = put(to, TEXT("\",\"data\":\"0x1e458bee"));
  to = put(to, zeros, 64 - ADDRESS_HEX);
  to = put(to, owner, ADDRESS_HEX);
  to = put(to, zeros, 63);
  to = put(to, "1", 1);
  to = put_hex(to, reading, DIGEST_SIZE);
  to = put(to, TEXT("\"}"));
  return (size_t)(to - start);
}

WS_EXPORT("report") int32_t report(int32_t rid) {
  uint8_t *payload, *variable, *signature, *public_key, *digest, *known, *hash;
  size_t size, variable_size, digest_size, known_size, hash_size;

  if (ws_get_data(rid, &payload, &size) != WS_OK) return WS_FAILED;
  if (ws_get_env(TEXT("DEVICE_KEY"), &variable, &variable_size) != WS_OK)
    return refuse(WS_FAILED, TEXT("the project has no variable DEVICE_KEY"));
  size_t key_size = from_hex(variable, variable_size, &public_key);
  if (key_size == 0 || 2 * key_size != variable_size)
    return refuse(WS_FAILED, TEXT("DEVICE_KEY is not hex"));
  const char *token = address(TEXT("TOKEN")), *owner = address(TEXT("OWNER"));
  if (!token || !owner) return refuse(WS_FAILED, TEXT("TOKEN or OWNER is not an address"));
  int64_t chain = -1;
  if (ws_get_env(TEXT("CHAIN_ID"), &variable, &variable_size) == WS_OK)
    chain = number(variable, variable_size, CHAIN_DIGITS);
  if (chain < 0) return refuse(WS_FAILED, TEXT("CHAIN_ID is not a number"));

  size_t signature_size = from_hex(payload, size, &signature);
  if (signature_size == 0 || 2 * signature_size == size)
    return refuse(WS_FAILED, TEXT("expected a signature in hex, a space and a reading"));
  const uint8_t *reading = payload + 2 * signature_size + 1;
  size_t reading_size = size - 2 * signature_size - 1;
  if (fb_sha256(reading, reading_size, &digest, &digest_size) != FB_OK) return WS_FAILED;
  int32_t code =
      fb_verify_p256(digest, digest_size, signature, signature_size, public_key, key_size);
  if (code != FB_OK) return refuse(code, TEXT("the signature is not the device's"));

  /* A reading can have many valid signatures, so its digest identifies it. The contract uses
   * the same digest and mints once for each reading. */
  if (fb_keccak256(reading, reading_size, &digest, &digest_size) != FB_OK) return WS_FAILED;
  char name[3 + 2 * DIGEST_SIZE];
  put_hex(put(name, "tx/", 3), digest, DIGEST_SIZE);
  if (ws_get_db(name, sizeof name, &known, &known_size) == WS_OK) return REWARDED_ALREADY;

  char text[512];
  size_t length = request(text, token, owner, digest);
  if (ws_send_tx((int32_t)chain, text, length, &hash, &hash_size) != WS_OK) return WS_FAILED;
  return ws_set_db(name, sizeof name, hash, hash_size) == WS_OK ? WS_OK : WS_FAILED;
}

/* Returns the number after `"value":"` in a monitor's event, -1 if there is none. */
static int64_t credited_value(const uint8_t *text, size_t size) {
  static const char mark[] = "\"value\":\"";
  for (size_t at = 0; at + sizeof mark - 1 < size; at++) {
    size_t same = 0;
    while (same < sizeof mark - 1 && text[at + same] == (uint8_t)mark[same]) same++;
    if (same < sizeof mark - 1) continue;
    size_t end = at + same;
    while (end < size && text[end] != '"') end++;
    return number(text + at + same, end - at - same, 18);
  }
  return -1;
}

WS_EXPORT("credited") int32_t credited(int32_t rid) {
  uint8_t *payload, *before;
  size_t size, before_size;
  if (ws_get_data(rid, &payload, &size) != WS_OK) return WS_FAILED;
  int64_t value = credited_value(payload, size), total = 0;
  if (value < 0) return refuse(WS_FAILED, TEXT("expected a Transfer event with its arguments"));
  if (ws_get_db(TEXT("credited"), &before, &before_size) == WS_OK)
    total = number(before, before_size, 18);
  total += value;
  char digits[20];
  size_t start = sizeof digits;
  do digits[--start] = (char)('0' + total % 10);
  while ((total /= 10) > 0);
  ws_log(WS_INFO, TEXT("the chain has credited a token"));
  return ws_set_db(TEXT("credited"), digits + start, sizeof digits - start);
}

WS_EXPORT("settled") int32_t settled(int32_t rid) {
  uint8_t *payload;
  size_t size;
  if (ws_get_data(rid, &payload, &size) != WS_OK) return WS_FAILED;
  return ws_log(WS_INFO, (const char *)payload, size);
}
