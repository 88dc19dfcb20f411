/*
 * What the generators of load share: options, bytes of requests and responses, connections. Included by each of them
 * after it has said its name (`PROGRAM`), which it also gives as its client id.
 */
#pragma once
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, METADATA = 3, OFFSET_COMMIT = 8, FIND_COORDINATOR = 10, JOIN_GROUP = 11,
    HEARTBEAT = 12, SYNC_GROUP = 14, API_VERSIONS = 18, INIT_PRODUCER_ID = 22, CONSUMER_GROUP_HEARTBEAT = 68
};

static inline void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs(PROGRAM ": ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static inline void *need(void *memory) {
    if (!memory)
        die("out of memory");
    return memory;
}

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline int64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME_COARSE, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

/* ---- options: KEY=VALUE, every key must be asked for ------------------------------------------------------------ */

static char **option_list;
static int option_count;
static bool option_used[64];

static inline const char *option(const char *key, const char *fallback) {
    size_t length = strlen(key);
    for (int i = 0; i < option_count; i++)
        if (!strncmp(option_list[i], key, length) && option_list[i][length] == '=') {
            option_used[i] = true;
            return option_list[i] + length + 1;
        }
    return fallback;
}

static inline double number(const char *key, double fallback) {
    const char *text = option(key, NULL);
    return text ? atof(text) : fallback;
}

static inline void no_other_options(void) {
    for (int i = 0; i < option_count; i++)
        if (!option_used[i])
            die("unknown option %s", option_list[i]);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

typedef struct {
    uint8_t *at;
} Out;

static inline void put8(Out *o, int v) { *o->at++ = (uint8_t)v; }
static inline void put16(Out *o, int v) { uint16_t x = htobe16((uint16_t)v); memcpy(o->at, &x, 2); o->at += 2; }
static inline void put32(Out *o, int64_t v) { uint32_t x = htobe32((uint32_t)v); memcpy(o->at, &x, 4); o->at += 4; }
static inline void put64(Out *o, int64_t v) { uint64_t x = htobe64((uint64_t)v); memcpy(o->at, &x, 8); o->at += 8; }
static inline void put_bytes(Out *o, const void *bytes, size_t size) { memcpy(o->at, bytes, size); o->at += size; }
static inline void put_uvarint(Out *o, uint64_t v) {
    for (; v >= 128; v >>= 7)
        put8(o, (int)(v & 127) | 128);
    put8(o, (int)v);
}
static inline void put_varint(Out *o, int64_t v) { put_uvarint(o, ((uint64_t)v << 1) ^ (uint64_t)(v >> 63)); }
static inline void put_compact(Out *o, const char *text) {
    put_uvarint(o, strlen(text) + 1);
    put_bytes(o, text, strlen(text));
}
static inline void put_string(Out *o, const char *text) {
    put16(o, (int)strlen(text));
    put_bytes(o, text, strlen(text));
}
static inline size_t varint_size(int64_t v) {
    uint8_t scratch[10];
    Out o = {scratch};
    put_varint(&o, v);
    return (size_t)(o.at - scratch);
}

typedef struct {
    const uint8_t *at, *end;
} In;

static inline const uint8_t *take(In *in, size_t size) {
    if ((size_t)(in->end - in->at) < size)
        die("a response ended early");
    const uint8_t *bytes = in->at;
    in->at += size;
    return bytes;
}
static inline int get16(In *in) { uint16_t x; memcpy(&x, take(in, 2), 2); return (int16_t)be16toh(x); }
static inline int32_t get32(In *in) { uint32_t x; memcpy(&x, take(in, 4), 4); return (int32_t)be32toh(x); }
static inline int64_t get64(In *in) { uint64_t x; memcpy(&x, take(in, 8), 8); return (int64_t)be64toh(x); }
static inline uint64_t get_uvarint(In *in) {
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *take(in, 1);
        v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return v;
    }
}
static inline int64_t get_count(In *in) { return (int64_t)get_uvarint(in) - 1; }
static inline void skip_compact(In *in) {
    int64_t size = get_count(in);
    if (size > 0)
        take(in, (size_t)size);
}
static inline void skip_tags(In *in) {
    for (uint64_t count = get_uvarint(in); count; count--) {
        get_uvarint(in);
        take(in, get_uvarint(in));
    }
}
static inline void skip_int32s(In *in) {
    int64_t count = get_count(in);
    if (count > 0)
        take(in, 4 * (size_t)count);
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

static inline int dial(int port, bool patient) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htobe16((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
        if (fd < 0)
            die("socket: %s", strerror(errno));
        if (!connect(fd, (void *)&address, sizeof address)) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            return fd;
        }
        if (!patient)
            die("connect to port %d: %s", port, strerror(errno));
        close(fd);
        usleep(1000);
    }
}

static inline bool read_whole(int fd, uint8_t *bytes, size_t size) {
    while (size) {
        ssize_t got = read(fd, bytes, size);
        if (got <= 0) {
            if (got < 0 && errno == EINTR)
                continue;
            return false;
        }
        bytes += got;
        size -= (size_t)got;
    }
    return true;
}

static inline bool try_write(int fd, const uint8_t *bytes, size_t size) {
    while (size) {
        ssize_t put = write(fd, bytes, size);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        bytes += put;
        size -= (size_t)put;
    }
    return true;
}

static inline void write_whole(int fd, const uint8_t *bytes, size_t size) {
    if (!try_write(fd, bytes, size))
        die("write: %s", strerror(errno));
}

static uint8_t *request_start;

/* Begin a request whose length `finish` fills in; if it is flexible its header has version 2, else 1. */
static inline Out begin_as(uint8_t *buffer, int api, int version, bool flexible) {
    Out o = {request_start = buffer};
    put32(&o, 0);
    put16(&o, api);
    put16(&o, version);
    put32(&o, 0);
    put_string(&o, PROGRAM);
    if (flexible)
        put8(&o, 0);
    return o;
}

static inline Out begin(uint8_t *buffer, int api, int version) { return begin_as(buffer, api, version, true); }

static inline size_t finish(Out *o) {
    size_t size = (size_t)(o->at - request_start);
    Out length = {request_start};
    put32(&length, (int64_t)size - 4);
    return size;
}

static uint8_t *answer;
static size_t answer_room;

/* Send what `o` holds and read the answer, whose body begins after the response header. */
static inline In call(int fd, Out *o, bool flexible) {
    uint8_t length[4];
    size_t size = finish(o);
    write_whole(fd, request_start, size);
    if (!read_whole(fd, length, 4))
        die("the server closed the connection");
    In frame = {length, length + 4};
    size = (size_t)get32(&frame);
    if (size > answer_room)
        answer = need(realloc(answer, answer_room = size));
    if (!read_whole(fd, answer, size))
        die("the server closed the connection");
    In in = {answer, answer + size};
    get32(&in);
    if (flexible)
        skip_tags(&in);
    return in;
}

/* As many connections as the system lets this process have; a server that closes one is told by `write`. */
static inline void use_all_connections(void) {
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    signal(SIGPIPE, SIG_IGN);
}
