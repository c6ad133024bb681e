// Stands in for the network of the ESP32: it is always there.
#pragma once

#define WL_CONNECTED 3

struct WiFiNetwork {
  void begin(const char *, const char *) {}
  int status() { return WL_CONNECTED; }
};
static WiFiNetwork WiFi;
