// Stands in for the HTTPClient of the ESP32 core: real HTTP over sockets, without TLS.
#pragma once

#include <netdb.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "Arduino.h"

class HTTPClient {
 public:
  bool begin(const char *url) {
    std::string text(url), scheme("http://");
    if (text.compare(0, scheme.size(), scheme)) return false;
    size_t slash = text.find('/', scheme.size());
    authority_ = text.substr(scheme.size(), slash - scheme.size());
    target_ = slash == std::string::npos ? "/" : text.substr(slash);
    return true;
  }
  bool begin(const char *, const char *) { return false; }  // TLS is the ESP32's own
  void setTimeout(uint16_t ms) { timeout_ms_ = ms; }
  void collectHeaders(const char *[], size_t) {}
  void addHeader(const String &name, const String &value) { head_ += name + ": " + value + "\r\n"; }

  int POST(uint8_t *payload, size_t size) {
    std::string request = "POST " + target_ + " HTTP/1.1\r\nHost: " + authority_ +
                          "\r\nConnection: close\r\nContent-Length: " + std::to_string(size) +
                          "\r\n" + head_ + "\r\n";
    request.append((const char *)payload, size);
    int connection = connect_();
    if (connection < 0) return -1;
    answer_ = "";
    char buffer[4096];
    ssize_t got = ::send(connection, request.data(), request.size(), MSG_NOSIGNAL);
    bool complete = got == (ssize_t)request.size();
    while (complete && (got = recv(connection, buffer, sizeof buffer, 0)) > 0) answer_.append(buffer, got);
    close(connection);
    size_t end = answer_.find("\r\n\r\n");
    if (end == std::string::npos || answer_.compare(0, 5, "HTTP/")) return -5;
    body_ = answer_.substr(end + 4);
    if ((long)body_.size() < header("Content-Length").toInt()) return -5;
    return atoi(answer_.c_str() + answer_.find(' '));
  }

  String getString() { return body_; }
  String header(const char *name) {
    for (size_t line = answer_.find("\r\n"); line != std::string::npos; line = answer_.find("\r\n", line + 2)) {
      if (!strncasecmp(answer_.c_str() + line + 2, name, strlen(name)) &&
          answer_[line + 2 + strlen(name)] == ':') {
        size_t from = line + 3 + strlen(name);
        return answer_.substr(from, answer_.find("\r\n", from) - from);
      }
    }
    return "";
  }
  void end() { head_ = ""; }

 private:
  int connect_() {
    size_t colon = authority_.rfind(':');
    std::string host = authority_.substr(0, colon);
    std::string port = colon == std::string::npos ? "80" : authority_.substr(colon + 1);
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found)) return -1;
    int connection = socket(found->ai_family, found->ai_socktype, 0);
    timeval limit = {timeout_ms_ / 1000, (timeout_ms_ % 1000) * 1000};
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    bool connected = connection >= 0 && !connect(connection, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (connected) return connection;
    if (connection >= 0) close(connection);
    return -1;
  }

  std::string authority_, target_, head_, answer_;
  String body_;
  int timeout_ms_ = 5000;
};
