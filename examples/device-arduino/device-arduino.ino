// A sensor on an ESP32: a reading each second, sent to a node over HTTP. See README.md.
#include <Arduino.h>
#include <WiFi.h>

#include "config.h"
#include "fieldbrook_device.h"

static void answered(const FieldbrookEvent &event, int status, const String &body) {
  Serial.printf("event %s: %s %s\n", event.id, status == 201 ? "committed" : "refused", body.c_str());
}

static FieldbrookDevice device(NODE_URL, NODE_PROJECT, NODE_TOKEN, answered, NODE_CA);
static uint32_t reading_at = 0, readings = 0;

static float celsius() { return 20.0f + (float)(esp_random() % 100) / 10; }  // your sensor here

void setup() {
  Serial.begin(115200);
  WiFi.begin(WIFI_NAME, WIFI_PASSWORD);
  configTime(0, 0, "pool.ntp.org");
}

void loop() {
  if (!readings || millis() - reading_at >= READING_EVERY_MS) {
    char payload[64];
    reading_at = millis();
    int size = snprintf(payload, sizeof payload, "{\"n\":%u,\"celsius\":%.1f}", (unsigned)++readings,
                        celsius());
    if (!device.send("TEMPERATURE", payload, (size_t)size)) Serial.println("a reading is lost");
  }
  if (WiFi.status() == WL_CONNECTED) device.run();
  delay(10);
}
