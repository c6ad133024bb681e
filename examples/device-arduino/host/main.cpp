// The sketch as a program of a computer: it ends when NODE_READINGS readings have an answer.
#include "../device-arduino.ino"

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const char *wanted = getenv("NODE_READINGS");
  uint32_t count = wanted ? (uint32_t)atoi(wanted) : 3;
  setup();
  while (readings < count) loop();
  while (device.pending()) {
    device.run();
    delay(10);
  }
  return 0;
}
