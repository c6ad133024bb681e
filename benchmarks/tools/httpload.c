/* Load over HTTP/1.1 keep-alive connections: one thread, epoll, loopback only.
 *
 *   httpload -p PORT -f FILE [-c CONNECTIONS] [-d SECONDS] [-w WARM] [-r RATE] [-n LIMIT]
 *            [-e EVENTS]
 *
 * FILE has one request per line: the path, a tab, the body. They are sent in turn.
 * Without -r each connection sends its next request when it has its answer (closed loop).
 * With -r requests are due on a fixed schedule, whatever was answered (open loop): a latency
 * counts from the due time, so waiting for a free connection counts too. What is still
 * waiting DRAIN_S after the end is not sent any more; it counts with the time it has waited.
 * The first WARM seconds are checked but not timed. Ends after LIMIT requests at the latest.
 *
 * Prints key=value pairs: answered (all), timed (answers after WARM), bad (a status other than
 * 201, or another number of results with code 0 than EVENTS), bad_status (of the first of
 * them), unanswered, due and unsent (open loop), seconds (from WARM to the last answer), then
 * latencies of what was due after WARM, in microseconds.
 * Ends with 3 when a server closes a connection.
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
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 65536, MOST_REQUESTS = 1 << 20 };
static const uint32_t ALARM = UINT32_MAX;
static const double DRAIN_S = 2, ANSWER_S = 10; /* later than that is no answer */

typedef struct {
  int fd;
  double due;
  size_t have;
  char in[BUFFER];
} connection;

typedef struct {
  char *bytes;
  size_t length;
} request;

static request *requests;
static size_t request_count, next_request;
static int port, poller, alarm_clock, connections = 64, expected_results;
static double seconds = 3, warm = 0.5, rate;
static double begun, timed_from, until, last; /* last: when the last answer came */
static connection *all;
static int *idle, idle_count;
static uint32_t *latencies;
static size_t latency_count, latency_room = 1 << 16;
static long long sent, answered, timed, bad, due, limit = 20000000;
static int bad_status;

static void fail(const char *what) {
  perror(what);
  exit(2);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void read_requests(const char *name) {
  FILE *file = fopen(name, "r");
  if (!file) fail(name);
  requests = calloc(MOST_REQUESTS, sizeof *requests);
  char *line = NULL;
  size_t room = 0;
  ssize_t length;
  while ((length = getline(&line, &room, file)) > 0 && request_count < MOST_REQUESTS) {
    if (line[length - 1] == '\n') line[--length] = 0;
    char *body = strchr(line, '\t');
    if (!body) continue;
    *body++ = 0;
    request *r = &requests[request_count++];
    int made = asprintf(&r->bytes,
                        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: text/plain\r\n"
                        "Content-Length: %zu\r\n\r\n%s",
                        line, port, strlen(body), body);
    if (made < 0) fail("asprintf");
    r->length = made;
  }
  free(line);
  fclose(file);
  if (!request_count) {
    fprintf(stderr, "%s has no requests\n", name);
    exit(2);
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
}

static void send_next(connection *c, double due) {
  request *r = &requests[next_request];
  next_request = (next_request + 1) % request_count;
  c->due = due;
  c->have = 0;
  for (size_t done = 0; done < r->length;) {
    ssize_t n = write(c->fd, r->bytes + done, r->length - done);
    if (n < 0 && errno != EAGAIN) fail("write");
    if (n > 0) done += n;
  }
  sent++;
}

static void keep_latency(double seconds) {
  if (latency_count == latency_room) {
    latency_room *= 2;
    latencies = realloc(latencies, latency_room * sizeof *latencies);
    if (!latencies) fail("realloc");
  }
  latencies[latency_count++] = (uint32_t)(seconds * 1e6);
}

/* How many results in an answer's body have code 0. */
static int good_results(const char *body) {
  int found = 0;
  for (const char *at = body; (at = strstr(at, "\"code\":")); found += *at == '0') {
    at += 7;
    at += *at == ' ';
  }
  return found;
}

/* Reads what there is; 1 when the answer is whole. */
static int receive(connection *c) {
  ssize_t n = read(c->fd, c->in + c->have, BUFFER - 1 - c->have);
  if (n < 0 && errno == EAGAIN) return 0;
  if (n <= 0) {
    fprintf(stderr, "the server closed a connection after %lld answers\n", answered);
    exit(3);
  }
  c->have += n;
  c->in[c->have] = 0;
  char *end = strstr(c->in, "\r\n\r\n");
  if (!end) return 0;
  end += 4;
  char *length = strcasestr(c->in, "\r\ncontent-length:");
  if (length && length < end) {
    if (c->have < (size_t)(end - c->in) + strtoul(length + 17, NULL, 10)) return 0;
  } else if (!memmem(end, c->have - (end - c->in), "0\r\n\r\n", 5)) { /* chunked */
    return 0;
  }
  answered++;
  int status = atoi(c->in + 9);
  if ((status != 201 || good_results(end) != expected_results) && !bad++) bad_status = status;
  return 1;
}

/* epoll waits whole milliseconds, which is longer than between two due times. */
static void wake_at(double when) {
  struct itimerspec t = {.it_value = {.tv_sec = (time_t)when}};
  t.it_value.tv_nsec = (long)((when - t.it_value.tv_sec) * 1e9);
  timerfd_settime(alarm_clock, TFD_TIMER_ABSTIME, &t, NULL);
}

static int compare(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static unsigned quantile(double q) {
  return latency_count ? latencies[(size_t)((latency_count - 1) * q)] : 0;
}

static void prepare(void) {
  poller = epoll_create1(0);
  alarm_clock = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  struct epoll_event alarm_event = {.events = EPOLLIN, .data.u32 = ALARM};
  epoll_ctl(poller, EPOLL_CTL_ADD, alarm_clock, &alarm_event);
  latencies = malloc(latency_room * sizeof *latencies);
  all = calloc(connections, sizeof *all);
  idle = calloc(connections, sizeof *idle);
  if (!latencies || !all || !idle) fail("malloc");
  for (int i = 0; i < connections; i++) {
    open_connection(&all[i], i);
    idle[idle_count++] = i;
  }
  begun = last = now();
  timed_from = begun + warm;
  until = timed_from + seconds;
  due = rate > 0 ? (long long)((warm + seconds) * rate) : limit;
  if (due > limit) due = limit;
}

static double due_time(long long number) { return begun + number / rate; }

/* Sends what is due, as far as connections are free; 1 when nothing more is to be sent. */
static int send_due(void) {
  double end = rate > 0 ? until + DRAIN_S : until;
  while (sent < due) {
    double t = now();
    if (t >= end) return 1;
    if (!idle_count) return 0;
    if (rate > 0 && due_time(sent) > t) {
      wake_at(due_time(sent));
      return 0;
    }
    send_next(&all[idle[--idle_count]], rate > 0 ? due_time(sent) : t);
  }
  return 1;
}

static void take_answers(void) {
  struct epoll_event events[256];
  int ready = epoll_wait(poller, events, 256, 100);
  for (int i = 0; i < ready; i++) {
    uint32_t number = events[i].data.u32;
    if (number == ALARM) {
      uint64_t times;
      if (read(alarm_clock, &times, sizeof times) < 0 && errno != EAGAIN) fail("timer");
      continue;
    }
    connection *c = &all[number];
    if (!receive(c)) continue;
    last = now();
    timed += last >= timed_from;
    if (c->due >= timed_from) keep_latency(last - c->due);
    if (rate <= 0 && last < until && sent < limit)
      send_next(c, last); /* at once, before the other answers are read */
    else
      idle[idle_count++] = number;
  }
}

static void report(void) {
  double end = now(), span = last - timed_from;
  long long unsent = rate > 0 ? due - sent : 0;
  for (long long k = due - unsent; k < due; k++)
    if (due_time(k) >= timed_from) keep_latency(end - due_time(k));
  qsort(latencies, latency_count, sizeof *latencies, compare);
  printf("answered=%lld timed=%lld bad=%lld bad_status=%d unanswered=%lld due=%lld unsent=%lld "
         "seconds=%.6f p50=%u p90=%u p99=%u p999=%u max=%u\n",
         answered, timed, bad, bad_status, sent - answered, due, unsent, span > 0 ? span : 1e-6,
         quantile(.5), quantile(.9), quantile(.99), quantile(.999), quantile(1));
}

int main(int count, char **words) {
  int option;
  const char *file = NULL;
  while ((option = getopt(count, words, "p:f:c:d:w:r:n:e:")) > 0) switch (option) {
      case 'p': port = atoi(optarg); break;
      case 'f': file = optarg; break;
      case 'c': connections = atoi(optarg); break;
      case 'd': seconds = atof(optarg); break;
      case 'w': warm = atof(optarg); break;
      case 'r': rate = atof(optarg); break;
      case 'n': limit = atoll(optarg); break;
      case 'e': expected_results = atoi(optarg); break;
      default: return 1;
    }
  if (!file || !port || connections < 1) return 1;
  read_requests(file);
  prepare();
  for (;;) {
    int over = send_due();
    if (over && (idle_count == connections || now() >= last + ANSWER_S)) break;
    take_answers();
  }
  report();
  return 0;
}
