/* Load over MQTT 3.1.1: one thread, epoll, loopback only.
 *
 *   mqttload -p PORT -f FILE -k COUNT -q QOS [-c CONNECTIONS] [-m WINDOW] [-d SECONDS]
 *            [-w WARM] [-n LIMIT] [-r RATE]
 *
 * FILE has one message per line: the topic, a tab, the payload. They are sent in turn, one per
 * connection and turn. COUNT is a file of 8 bytes, a little-endian number of the messages that
 * were handled behind the broker; whoever handles them keeps it.
 *
 * With -m at most WINDOW messages are sent and not yet handled (end to end); the latency of the
 * n-th message is from when it was sent until the count shows n more. Without -m, and with QoS
 * 1, each connection sends its next message when it has its PUBACK; the latency is the PUBACK's.
 * With -r the messages are due at RATE per second, whether earlier ones are answered or not, and
 * the connections take turns (an open loop; QoS 1, and no -m). The latency is from when a message
 * was due until its PUBACK.
 *
 * What is sent in the first WARM seconds is not timed. Ends after LIMIT messages at the latest,
 * then waits until all are handled, as long as the count moves within 10 s.
 *
 * Prints key=value pairs: sent, handled (all), acknowledged, timed and seconds (handled while
 * timed), total_seconds (first message to last one handled), then latencies in microseconds.
 * Ends with 3 when the broker closes a connection.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 65536, MOST_MESSAGES = 1 << 20, PACKET_IDS = 65536, CONNACK = 2, PUBACK = 4 };
static const uint32_t ALARM = UINT32_MAX;
static const double STALL_S = 10, CONNECT_S = 10;

typedef struct {
  int fd, ready, waiting; /* ready: CONNACK came; waiting: for a PUBACK */
  uint16_t packet_id;
  size_t have;
  double sent_at;
  double *due_at; /* by packet id, when there is a rate */
  uint8_t in[BUFFER];
} connection;

typedef struct {
  uint8_t *bytes; /* a PUBLISH packet */
  size_t length, id_at;
} message;

static message *messages;
static size_t message_count, next_message;
static connection *all;
static int connections = 64, port, qos, poller, window, alarm_clock;
static double rate;
static volatile uint64_t *count_cell;
static uint64_t count_base;
static long long sent, acknowledged, limit = 2000000;
static double *sent_times; /* of each message, when there is a window */
static uint32_t *latencies;
static size_t latency_count;
static double timed_from;

static void fail(const char *what) {
  perror(what);
  exit(2);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static long long handled(void) { return (long long)(*count_cell - count_base); }

static void keep_latency(double seconds) {
  if (latency_count < (size_t)limit) latencies[latency_count++] = (uint32_t)(seconds * 1e6);
}

static void make_message(const char *topic, const char *payload) {
  message *m = &messages[message_count++];
  size_t topic_length = strlen(topic), length = strlen(payload);
  size_t rest = 2 + topic_length + (qos ? 2 : 0) + length, left = rest;
  uint8_t *p = m->bytes = malloc(rest + 5);
  *p++ = 0x30 | qos << 1;
  do {
    *p++ = (left & 127) | (left > 127 ? 128 : 0);
    left >>= 7;
  } while (left);
  *p++ = topic_length >> 8;
  *p++ = topic_length;
  p = mempcpy(p, topic, topic_length);
  m->id_at = p - m->bytes;
  p = mempcpy(p + (qos ? 2 : 0), payload, length);
  m->length = p - m->bytes;
}

static void read_messages(const char *name) {
  FILE *file = fopen(name, "r");
  if (!file) fail(name);
  messages = calloc(MOST_MESSAGES, sizeof *messages);
  char *line = NULL;
  size_t room = 0;
  ssize_t length;
  while ((length = getline(&line, &room, file)) > 0 && message_count < MOST_MESSAGES) {
    if (line[length - 1] == '\n') line[--length] = 0;
    char *payload = strchr(line, '\t');
    if (!payload) continue;
    *payload++ = 0;
    make_message(line, payload);
  }
  free(line);
  fclose(file);
  if (!message_count) {
    fprintf(stderr, "%s has no messages\n", name);
    exit(2);
  }
}

static void put(connection *c, const uint8_t *bytes, size_t length) {
  for (size_t done = 0; done < length;) {
    ssize_t n = write(c->fd, bytes + done, length - done);
    if (n < 0 && errno != EAGAIN) fail("write");
    if (n > 0) done += n;
  }
}

static void open_connection(connection *c, uint32_t number) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int one = 1;
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(c->fd, (void *)&a, sizeof a) < 0) fail("connect");
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  struct epoll_event e = {.events = EPOLLIN, .data.u32 = number};
  epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &e);
  char id[32];
  int length = snprintf(id, sizeof id, "load-%d-%u", (int)getpid(), number);
  uint8_t packet[64] = {0x10, 12 + length, 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 60, 0, length};
  memcpy(packet + 14, id, length);
  put(c, packet, 14 + length);
}

/* `due_at`: when it should be sent. */
static void publish(connection *c, double due_at) {
  message *m = &messages[next_message];
  next_message = (next_message + 1) % message_count;
  if (qos) {
    if (++c->packet_id == 0) c->packet_id = 1;
    m->bytes[m->id_at] = c->packet_id >> 8;
    m->bytes[m->id_at + 1] = c->packet_id & 255;
  }
  c->sent_at = now();
  if (rate > 0) c->due_at[c->packet_id] = due_at;
  c->waiting = 1;
  if (window) sent_times[sent] = c->sent_at;
  sent++;
  put(c, m->bytes, m->length);
}

static void packet(connection *c, int type, const uint8_t *body, size_t length) {
  if (type == CONNACK) {
    if (length < 2 || body[1]) {
      fprintf(stderr, "the broker refused a connection\n");
      exit(3);
    }
    c->ready = 1;
  } else if (type == PUBACK) {
    acknowledged++;
    c->waiting = 0;
    double since = c->sent_at;
    if (rate > 0 && length >= 2) since = c->due_at[body[0] << 8 | body[1]];
    if (!window && since >= timed_from) keep_latency(now() - since);
  }
}

static void receive(connection *c) {
  ssize_t n = read(c->fd, c->in + c->have, BUFFER - c->have);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    fprintf(stderr, "the broker closed a connection after %lld messages\n", sent);
    exit(3);
  }
  c->have += n;
  size_t at = 0;
  while (c->have - at >= 2) { /* what a broker answers here is shorter than 128 bytes */
    size_t length = c->in[at + 1];
    if (length > 127) {
      fprintf(stderr, "the broker sent a packet that was not expected\n");
      exit(3);
    }
    if (c->have - at < 2 + length) break;
    packet(c, c->in[at] >> 4, c->in + at + 2, length);
    at += 2 + length;
  }
  memmove(c->in, c->in + at, c->have - at);
  c->have -= at;
}

static void wait_for_answers(int milliseconds) {
  struct epoll_event events[256];
  int ready = epoll_wait(poller, events, 256, milliseconds);
  for (int i = 0; i < ready; i++) {
    uint64_t times;
    if (events[i].data.u32 != ALARM)
      receive(&all[events[i].data.u32]);
    else if (read(alarm_clock, &times, sizeof times) < 0 && errno != EAGAIN)
      fail("timer");
  }
}

static void connect_all(void) {
  double give_up = now() + CONNECT_S;
  all = calloc(connections, sizeof *all);
  for (int i = 0; i < connections; i++) open_connection(&all[i], i);
  for (int ready = 0; ready < connections;) {
    if (now() > give_up) {
      fprintf(stderr, "only %d of %d connections were accepted\n", ready, connections);
      exit(3);
    }
    wait_for_answers(50);
    ready = 0;
    for (int i = 0; i < connections; i++) ready += all[i].ready;
  }
}

static int compare(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static unsigned quantile(double q) {
  return latency_count ? latencies[(size_t)((latency_count - 1) * q)] : 0;
}

static void open_count(const char *name) {
  int fd = open(name, O_RDONLY);
  if (fd < 0) fail(name);
  count_cell = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
  if (count_cell == MAP_FAILED) fail("mmap");
  count_base = *count_cell;
}

/* epoll waits whole milliseconds, which is longer than between two due times. */
static void wake_at(double when) {
  struct itimerspec t = {.it_value = {.tv_sec = (time_t)when}};
  t.it_value.tv_nsec = (long)((when - t.it_value.tv_sec) * 1e9);
  timerfd_settime(alarm_clock, TFD_TIMER_ABSTIME, &t, NULL);
}

static void send_next(double due_at) {
  static int turn;
  publish(&all[turn], due_at);
  turn = (turn + 1) % connections;
}

static void send_what_may_be(double begun) {
  if (rate > 0) {
    for (double due; sent < limit; send_next(due)) {
      due = begun + sent / rate;
      if (due > now()) {
        wake_at(due);
        return;
      }
    }
  } else if (!window) {
    for (int i = 0; i < connections && sent < limit; i++)
      if (!all[i].waiting) publish(&all[i], 0);
  } else {
    while (sent < limit && sent - handled() < window) send_next(0);
  }
}

int main(int count, char **words) {
  int option;
  double seconds = 3, warm = 0.5;
  const char *file = NULL, *counted = NULL;
  while ((option = getopt(count, words, "p:f:k:q:c:m:d:w:n:r:")) > 0) switch (option) {
      case 'p': port = atoi(optarg); break;
      case 'f': file = optarg; break;
      case 'k': counted = optarg; break;
      case 'q': qos = atoi(optarg); break;
      case 'c': connections = atoi(optarg); break;
      case 'm': window = atoi(optarg); break;
      case 'd': seconds = atof(optarg); break;
      case 'w': warm = atof(optarg); break;
      case 'n': limit = atoll(optarg); break;
      case 'r': rate = atof(optarg); break;
      default: return 1;
    }
  if (!file || !counted || !port || qos < 0 || qos > 1 || (!window && !qos)) return 1;
  if (rate > 0 && (window || !qos)) return 1;
  read_messages(file);
  poller = epoll_create1(0);
  alarm_clock = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  struct epoll_event alarm_event = {.events = EPOLLIN, .data.u32 = ALARM};
  epoll_ctl(poller, EPOLL_CTL_ADD, alarm_clock, &alarm_event);
  latencies = malloc(limit * sizeof *latencies);
  sent_times = malloc(limit * sizeof *sent_times);
  connect_all();
  for (int i = 0; rate > 0 && i < connections; i++) {
    all[i].due_at = calloc(PACKET_IDS, sizeof *all[i].due_at);
    if (!all[i].due_at) fail("calloc");
  }
  open_count(counted);
  double begun = now(), until = begun + warm + seconds, moved = begun, first_timed = 0;
  timed_from = begun + warm;
  long long seen = 0, at_start = 0, at_end = -1;
  double ended = until;
  for (;;) {
    double t = now();
    long long done = handled();
    if (done > sent) done = sent; /* delivered again: the difference shows in `handled` */
    if (done > seen) {
      if (window)
        for (long long k = seen; k < done; k++)
          if (sent_times[k] >= timed_from) keep_latency(t - sent_times[k]);
      seen = done;
      moved = t;
    }
    if (!first_timed && t >= timed_from) {
      first_timed = t;
      at_start = done;
    }
    int over = t >= until || sent >= limit;
    if (over && at_end < 0) {
      at_end = done;
      ended = t;
    }
    if (over && done >= sent && (!qos || acknowledged >= sent)) break;
    if (over && t - moved > STALL_S) break;
    if (!over) send_what_may_be(begun);
    wait_for_answers(1);
  }
  qsort(latencies, latency_count, sizeof *latencies, compare);
  printf("sent=%lld handled=%lld acknowledged=%lld timed=%lld seconds=%.6f total_seconds=%.6f "
         "p50=%u p99=%u max=%u\n",
         sent, handled(), acknowledged, at_end - at_start, ended - first_timed, moved - begun,
         quantile(.5), quantile(.99), quantile(1));
  return 0;
}
