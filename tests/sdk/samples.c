/* The same handlers as samples.rs, for what C can do without a library. */
#include <stddef.h>
#include <stdint.h>

#define ENV(name) __attribute__((import_module("env"), import_name(#name))) int32_t name
#define HANDLER(name) __attribute__((export_name(#name))) int32_t name(int32_t rid)

ENV(ws_log)(int32_t level, const void *text, size_t size);
ENV(ws_get_data)(int32_t rid, uint8_t **data, size_t *size);
ENV(ws_set_data)(int32_t rid, const void *data, size_t size);
ENV(ws_get_db)(const void *key, size_t key_size, uint8_t **value, size_t *size);
ENV(ws_set_db)(const void *key, size_t key_size, const void *value, size_t size);
ENV(ws_get_env)(const void *key, size_t key_size, uint8_t **value, size_t *size);
ENV(ws_set_sql_db)(const void *request, size_t size);
ENV(ws_send_mqtt_msg)(const void *topic, size_t topic_size, const void *data, size_t size);
__attribute__((import_module("stat"), import_name("ws_submit_metrics"))) int32_t
ws_submit_metrics(const void *json, size_t size);

#define TEXT(text) text, sizeof(text) - 1

extern uint8_t __heap_base;
static uint8_t *top = &__heap_base;

__attribute__((export_name("alloc"))) uint8_t *room(size_t size) {
    uint8_t *place = top;
    top += (size + 7) & ~(size_t)7;
    size_t pages = __builtin_wasm_memory_size(0);
    size_t wanted = ((size_t)top + 0xffff) >> 16;
    if (wanted > pages && __builtin_wasm_memory_grow(0, wanted - pages) == (size_t)-1)
        __builtin_trap();
    return place;
}

static size_t payload(int32_t rid, uint8_t **data) {
    size_t size = 0;
    if (ws_get_data(rid, data, &size) != 0)
        __builtin_trap();
    return size;
}

HANDLER(log) {
    uint8_t *data;
    size_t size = payload(rid, &data);
    return ws_log(4, data, size);
}

HANDLER(size) {
    uint8_t *data;
    return (int32_t)payload(rid, &data);
}

HANDLER(keep) {
    uint8_t *data, *read;
    size_t size = payload(rid, &data), again;
    ws_set_db(TEXT("last"), data, size);
    if (ws_get_db(TEXT("last"), &read, &again) != 0 || again != size)
        return 1;
    for (size_t at = 0; at < size; at++)
        if (read[at] != data[at])
            return 1;
    return 0;
}

HANDLER(count) {
    (void)rid;
    uint8_t *value;
    size_t size;
    int32_t known = 0;
    if (ws_get_db(TEXT("count"), &value, &size) == 0)
        known = *(int32_t *)value;
    known++;
    ws_set_db(TEXT("count"), &known, sizeof known);
    return known;
}

HANDLER(missing) {
    (void)rid;
    uint8_t *value;
    size_t size;
    return ws_get_db(TEXT("nothing here"), &value, &size);
}

HANDLER(unknown) {
    uint8_t *data;
    size_t size;
    return ws_get_data(rid + 1, &data, &size);
}

HANDLER(resource) {
    uint8_t *data, *again;
    size_t size = payload(rid, &data);
    for (size_t at = 0; at < size / 2; at++) {
        uint8_t kept = data[at];
        data[at] = data[size - 1 - at];
        data[size - 1 - at] = kept;
    }
    ws_set_data(rid, data, size);
    size_t after = payload(rid, &again);
    for (size_t at = 0; at < size; at++)
        if (after != size || again[at] != data[at])
            return 1;
    return 0;
}

HANDLER(environment) {
    (void)rid;
    uint8_t *value;
    size_t size;
    int32_t code = ws_get_env(TEXT("LIMIT"), &value, &size);
    return code ? code : ws_log(4, value, size);
}

HANDLER(no_environment) {
    (void)rid;
    uint8_t *value;
    size_t size;
    return ws_get_env(TEXT("NOT THERE"), &value, &size);
}

HANDLER(bad_sql) {
    (void)rid;
    return ws_set_sql_db(TEXT("{\"statement\":\"DROP TABLE t\",\"params\":[]}"));
}

HANDLER(publish) {
    uint8_t *data;
    size_t size = payload(rid, &data);
    return ws_send_mqtt_msg(TEXT("out/readings"), data, size);
}

HANDLER(metrics_of_payload) {
    uint8_t *data;
    size_t size = payload(rid, &data);
    return ws_submit_metrics(data, size);
}

HANDLER(aborts) {
    (void)rid;
    ws_set_db(TEXT("not kept"), TEXT("x"));
    ws_log(2, TEXT("on the way"));
    __builtin_trap();
}
