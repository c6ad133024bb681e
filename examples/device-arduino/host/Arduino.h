// Stands in for the ESP32 core on a computer: as much of it as the sketch uses.
#pragma once

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <random>
#include <string>

class String : public std::string {
 public:
  String(const char *text = "") : std::string(text) {}
  String(const std::string &text) : std::string(text) {}
  int indexOf(const char *text) const {
    size_t at = find(text);
    return at == npos ? -1 : (int)at;
  }
  long toInt() const { return atol(c_str()); }
};

inline uint32_t millis() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint32_t)(now.tv_sec * 1000 + now.tv_nsec / 1000000);
}
inline void delay(uint32_t ms) { usleep(ms * 1000); }
inline uint32_t esp_random() {
  static std::random_device device;
  return device();
}
inline void configTime(long, int, const char *) {}

struct SerialPort {
  void begin(long) {}
  void println(const char *text) { printf("%s\n", text); }
  void printf(const char *format, ...) __attribute__((format(printf, 2, 3))) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
  }
};
static SerialPort Serial;
