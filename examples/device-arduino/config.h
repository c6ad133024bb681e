// What differs from device to device. The token is that of `fieldbrook publisher token`.
#pragma once

#ifndef WIFI_NAME
#define WIFI_NAME "your network"
#define WIFI_PASSWORD "its password"
#endif
#ifndef NODE_URL
#define NODE_URL "http://192.168.1.10:8888"
#define NODE_PROJECT "room"
#define NODE_TOKEN "the token of the publisher"
#endif
#ifndef READING_EVERY_MS
#define READING_EVERY_MS 1000
#endif

// For https://: the text of the authority's ca.pem, between R"( and )". nullptr for http://.
#define NODE_CA nullptr
