/* The node's host functions, and the macros that an applet in C needs.
 *
 * Pointers are addresses in the applet's memory. Functions that return data call the
 * applet's exported `alloc` and write the address and the length of the data to two cells.
 * All functions return WS_OK or another of the numbers below.
 */
#ifndef W3BSTREAM_H
#define W3BSTREAM_H

#include <stddef.h>
#include <stdint.h>

#define WS_IMPORT(name) __attribute__((import_module("env"), import_name(name)))
#define WS_EXPORT(name) __attribute__((export_name(name)))

enum { WS_OK = 0, WS_NOT_FOUND = 2, WS_COPY_TO_APPLET_FAILED = 5, WS_ENV_NOT_FOUND = 8, WS_FAILED = -1 };
enum { WS_ERROR = 2, WS_WARNING = 3, WS_INFO = 4, WS_DEBUG = 5 };

WS_IMPORT("ws_log") int32_t ws_log(int32_t level, const char *text, size_t size);

/* The payload of the event that the handler was called for. */
WS_IMPORT("ws_get_data") int32_t ws_get_data(int32_t rid, uint8_t **data, size_t *size);

/* The applet's own key-value store. */
WS_IMPORT("ws_get_db")
int32_t ws_get_db(const char *key, size_t key_size, uint8_t **value, size_t *size);
WS_IMPORT("ws_set_db")
int32_t ws_set_db(const char *key, size_t key_size, const void *value, size_t size);

/* A variable of the project's environment. */
WS_IMPORT("ws_get_env")
int32_t ws_get_env(const char *key, size_t key_size, uint8_t **value, size_t *size);

/* Send a transaction, {"to", "value", "data"} as JSON, after the commit of the event. Returns
 * its hash as text. */
WS_IMPORT("ws_send_tx")
int32_t ws_send_tx(int32_t chain, const char *request, size_t request_size, uint8_t **hash,
                   size_t *size);

#endif
