// Sends events to a node over HTTP from an ESP32, each until the node has answered, always with the
// same event id, so that it runs once. Needs WiFi.h and HTTPClient.h of the ESP32 core for Arduino.
//
// Events wait in RAM, EVENTS_WAITING at most: what waits is lost when the power fails.
#pragma once

#include <Arduino.h>
#include <HTTPClient.h>
#include <time.h>

static const size_t EVENTS_WAITING = 32;
static const size_t PAYLOAD_BYTES = 128;
static const size_t TYPE_BYTES = 32;
static const uint32_t FIRST_PAUSE_MS = 500;
static const uint32_t LONGEST_PAUSE_MS = 60000;
static const uint32_t TIMEOUT_MS = 20000;
static const time_t CLOCK_IS_SET = 1600000000;  // an ESP32 begins in 1970, until NTP has answered

struct FieldbrookEvent {
  char type[TYPE_BYTES];
  char id[32];
  long long at_ms;  // 0: the clock was not set
  size_t size;
  uint8_t payload[PAYLOAD_BYTES];
};

class FieldbrookDevice {
 public:
  // What became of an event: 201 for one that the node has handled, else the status of its refusal.
  typedef void (*Answered)(const FieldbrookEvent &event, int status, const String &body);

  // url: http:// or https:// with host and port. ca: the PEM text of the authority, for https://.
  FieldbrookDevice(const char *url, const char *project, const char *token, Answered answered,
                   const char *ca = nullptr)
      : url_(url), project_(project), token_(token), ca_(ca), answered_(answered) {}

  size_t pending() const { return count_; }

  // Let an event wait. False: it is too large, or the queue is full, and the event is not kept.
  // The type has letters, digits, '-' and '_' only, because it is a part of the address.
  bool send(const char *type, const void *payload, size_t size) {
    if (count_ == EVENTS_WAITING || size > PAYLOAD_BYTES || strlen(type) >= TYPE_BYTES) return false;
    FieldbrookEvent &event = events_[(first_ + count_) % EVENTS_WAITING];
    strcpy(event.type, type);
    memcpy(event.payload, payload, size);
    event.size = size;
    time_t now = time(nullptr);
    event.at_ms = now > CLOCK_IS_SET ? (long long)now * 1000 : 0;
    // Unique also after a restart, where a counter alone would begin anew.
    snprintf(event.id, sizeof event.id, "%08x%08x%08x", (unsigned)esp_random(),
             (unsigned)esp_random(), (unsigned)++number_);
    count_++;
    return true;
  }

  // Send the oldest event, if one waits and it is time. Call it from loop().
  void run() {
    if (!count_ || (int32_t)(millis() - next_) < 0) return;
    const FieldbrookEvent event = events_[first_];  // a copy: the callback may send
    String body;
    uint32_t retry_after_ms = 0;
    int status = post(event, body, retry_after_ms);
    // A node's error has a key. A network's login page answers with 4xx, too, and has none.
    bool refused = status >= 400 && status < 500 && status != 429 && body.indexOf("\"key\":") >= 0;
    if (status == 201) {  // two refusals come with 201, as W3bstream nodes send them
      if (body.indexOf("\"error\":\"InvalidEventChannel\"") >= 0) refused = true, status = 401;
      if (body.indexOf("\"results\":null") >= 0) refused = true, status = 404;  // no strategy
    }
    if (status == 201 || refused) {
      first_ = (first_ + 1) % EVENTS_WAITING;
      count_--;
      failures_ = 0;
      next_ = millis();
      if (answered_) answered_(event, status, body);
      return;
    }
    uint32_t pause = FIRST_PAUSE_MS << (failures_ < 7 ? failures_ : 7);
    if (pause > LONGEST_PAUSE_MS) pause = LONGEST_PAUSE_MS;
    pause -= esp_random() % (pause / 2);  // devices that lost their node do not come back together
    if (pause < retry_after_ms) pause = retry_after_ms;
    failures_++;
    next_ = millis() + pause;
    Serial.printf("event %s: %d, again in %u ms\n", event.id, status, (unsigned)pause);
  }

 private:
  // Returns the status, or a negative number without an answer.
  int post(const FieldbrookEvent &event, String &body, uint32_t &retry_after_ms) {
    char address[320], at[40] = "";
    if (event.at_ms) snprintf(at, sizeof at, "&timestamp=%lld", event.at_ms);
    int length = snprintf(address, sizeof address,
                          "%s/srv-applet-mgr/v0/event/%s?eventType=%s&eventID=%s%s", url_, project_,
                          event.type, event.id, at);
    if (length < 0 || (size_t)length >= sizeof address) return -100;
    static const char *wanted[] = {"Retry-After"};
    HTTPClient http;
    if (!(ca_ ? http.begin(address, ca_) : http.begin(address))) return -101;
    http.setTimeout(TIMEOUT_MS);
    http.collectHeaders(wanted, 1);
    http.addHeader("Authorization", String("Bearer ") + token_);
    int status = http.POST(const_cast<uint8_t *>(event.payload), event.size);
    if (status > 0) {
      body = http.getString();
      retry_after_ms = (uint32_t)http.header("Retry-After").toInt() * 1000;
    }
    http.end();
    return status;
  }

  const char *url_, *project_, *token_, *ca_;
  Answered answered_;
  FieldbrookEvent events_[EVENTS_WAITING];
  size_t first_ = 0, count_ = 0;
  uint32_t number_ = 0, failures_ = 0, next_ = 0;
};
