/* The functions that a node gives to applets, and the macros that an applet in C needs.
 *
 * Pointers are addresses in the applet's memory. Functions that return data call the
 * exported `alloc` and write the address and the size of the data into two cells. All
 * functions return OK or another of the numbers below.
 */
#ifndef FIELDBROOK_H
#define FIELDBROOK_H

#include <stddef.h>
#include <stdint.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

enum { OK = 0, NOT_FOUND = 2, COPY_FAILED = 5, NO_SUCH_VARIABLE = 8, FAILED = -1 };
enum { NOT_A_DIGEST = 10, SIGNATURE_INVALID = 11, SIGNATURE_MALFORMED = 12, KEY_MALFORMED = 13 };
enum { LEVEL_ERROR = 2, LEVEL_WARNING = 3, LEVEL_INFO = 4, LEVEL_DEBUG = 5 };

/* Memory of this run, of which nothing is freed. The node calls this to allocate memory for data,
 * e.g. a payload. It is in memory.c. */
void *alloc(size_t size);

IMPORT("env", "ws_log") int32_t ws_log(int32_t level, const char *text, size_t size);

/* The payload and the type of the event that the handler was called for. */
IMPORT("env", "ws_get_data") int32_t ws_get_data(int32_t rid, uint8_t **data, size_t *size);
IMPORT("env", "ws_get_event_type")
int32_t ws_get_event_type(int32_t rid, uint8_t **type, size_t *size);

/* The applet's own key-value store. Values that are set are on disk before the device is
 * answered. */
IMPORT("env", "ws_get_db")
int32_t ws_get_db(const char *key, size_t key_size, uint8_t **value, size_t *size);
IMPORT("env", "ws_set_db")
int32_t ws_set_db(const char *key, size_t key_size, const void *value, size_t size);

/* A variable of the project. */
IMPORT("env", "ws_get_env")
int32_t ws_get_env(const char *name, size_t name_size, uint8_t **value, size_t *size);

/* An MQTT message, and a metric as JSON that is stored with the time. Both are sent once the
 * event's writes are on disk, and discarded when the run traps. */
IMPORT("env", "ws_send_mqtt_msg")
int32_t ws_send_mqtt_msg(const char *topic, size_t topic_size, const void *payload, size_t size);
IMPORT("stat", "ws_submit_metrics") int32_t ws_submit_metrics(const char *json, size_t size);

/* Verify a device's signature. OK means that the signature is valid for the key; every other
 * number means that it is not. ECDSA (p256, secp256k1) takes a digest of 32 bytes, Ed25519
 * takes the message. */
IMPORT("fieldbrook", "verify_p256")
int32_t verify_p256(const void *digest, size_t digest_size, const void *signature,
                    size_t signature_size, const void *key, size_t key_size);
IMPORT("fieldbrook", "verify_secp256k1")
int32_t verify_secp256k1(const void *digest, size_t digest_size, const void *signature,
                         size_t signature_size, const void *key, size_t key_size);
IMPORT("fieldbrook", "verify_ed25519")
int32_t verify_ed25519(const void *message, size_t message_size, const void *signature,
                       size_t signature_size, const void *key, size_t key_size);

/* Recover the 64-byte public key or the 20-byte Ethereum address from a 65-byte signature
 * (R, S, V). */
IMPORT("fieldbrook", "recover_secp256k1")
int32_t recover_secp256k1(const void *digest, size_t digest_size, const void *signature,
                          size_t signature_size, uint8_t **key, size_t *key_size);
IMPORT("fieldbrook", "recover_address")
int32_t recover_address(const void *digest, size_t digest_size, const void *signature,
                        size_t signature_size, uint8_t **address, size_t *address_size);

/* Digests of 32 bytes. */
IMPORT("fieldbrook", "sha256")
int32_t sha256(const void *data, size_t data_size, uint8_t **digest, size_t *digest_size);
IMPORT("fieldbrook", "keccak256")
int32_t keccak256(const void *data, size_t data_size, uint8_t **digest, size_t *digest_size);

#endif
