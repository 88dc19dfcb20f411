/*
 * rawload: a load generator whose own cost is next to nothing, so that what is measured is the broker.
 *
 *   rawload produce   KEY=VALUE...   pipelined Produce requests, as fast as they are acknowledged or at a fixed rate
 *   rawload fetch     KEY=VALUE...   one consumer: in order from the start to the end, or at random offsets
 *   rawload first-ack KEY=VALUE...   poll a starting server until one record is acknowledged, and say when that was
 *   rawload sink      KEY=VALUE...   a server that only counts frames and answers, to measure rawload's own ceiling
 *   rawload evict     FILE...        write files back, drop them from the page cache, and count what stayed resident
 *
 * One JSON object on standard output, errors on standard error with a status other than 0. One thread, one epoll.
 *
 * Requests that the window lets through together leave in one write, which spares the generator and nobody else: a
 * server that keeps up reads them one by one, one that lags finds them queued in its socket either way.
 *
 * The records of a batch are built once. A request is a small header, copied from a template and patched (correlation
 * id, partition, timestamps, producer id, epoch and base sequence), followed by the shared records. The CRC-32C of the
 * whole is the combination of the CRC of the 36 patched bytes with the CRC of the records, which never changes: a table
 * look-up instead of a pass over 64 KB.
 *
 * At a fixed rate, latency counts from the moment when a request was due, not from when it was sent, so that a stall
 * of the server shows in every request it delayed (no coordinated omission).
 */
#define _GNU_SOURCE
#define PROGRAM "rawload"
#include "raw.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

/* ---- CRC-32C ---------------------------------------------------------------------------------------------------- */

static uint32_t crc_table[256];

static void crc_setup(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? (c >> 1) ^ 0x82F63B78u : c >> 1;
        crc_table[i] = c;
    }
}

/* The register after `size` bytes, without the inversions at start and end. */
static uint32_t crc_run(uint32_t c, const uint8_t *bytes, size_t size) {
#ifdef __SSE4_2__
    for (; size >= 8; size -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        c = (uint32_t)__builtin_ia32_crc32di(c, word);
    }
#endif
    while (size--)
        c = crc_table[(c ^ *bytes++) & 255] ^ (c >> 8);
    return c;
}

/* A linear map on CRC registers, as the images of the 32 unit vectors. */
static uint32_t apply(const uint32_t map[32], uint32_t vector) {
    uint32_t image = 0;
    for (int bit = 0; vector; bit++, vector >>= 1)
        if (vector & 1)
            image ^= map[bit];
    return image;
}

/* Fill `table` so that four look-ups tell what `size` zero bytes make of a register. */
static void zeros_table(uint32_t table[4][256], size_t size) {
    uint32_t step[32], total[32], next[32];
    for (int bit = 0; bit < 32; bit++) {
        uint8_t zero = 0;
        step[bit] = crc_run(1u << bit, &zero, 1);
        total[bit] = 1u << bit;
    }
    for (; size; size >>= 1) {
        if (size & 1) {
            for (int bit = 0; bit < 32; bit++)
                next[bit] = apply(step, total[bit]);
            memcpy(total, next, sizeof total);
        }
        for (int bit = 0; bit < 32; bit++)
            next[bit] = apply(step, step[bit]);
        memcpy(step, next, sizeof step);
    }
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t value = 0; value < 256; value++)
            table[byte][value] = apply(total, value << (8 * byte));
}

/* ---- what is asked before a run --------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    uint8_t id[16];
    int partitions;
    int64_t *end_offset;
} Topic;

/* Ask for the topic until it has leaders for all partitions; learn its id. */
static void await_topic(int fd, Topic *topic, bool create) {
    static const uint8_t no_id[16];
    uint8_t buffer[512];
    for (double deadline = now() + 30;; usleep(2000)) {
        Out o = begin(buffer, METADATA, 12);
        put_uvarint(&o, 2);
        put_bytes(&o, no_id, 16);
        put_compact(&o, topic->name);
        put8(&o, 0);
        put8(&o, create);
        put8(&o, 0);
        put8(&o, 0);
        In in = call(fd, &o, true);
        get32(&in);
        for (int64_t brokers = get_count(&in); brokers > 0; brokers--) {
            get32(&in);
            skip_compact(&in);
            get32(&in);
            skip_compact(&in);
            skip_tags(&in);
        }
        skip_compact(&in);
        get32(&in);
        get_count(&in);
        int error = get16(&in);
        skip_compact(&in);
        memcpy(topic->id, take(&in, 16), 16);
        take(&in, 1);
        int64_t partitions = get_count(&in), led = 0;
        for (int64_t i = 0; i < partitions; i++) {
            int partition_error = get16(&in);
            get32(&in);
            led += get32(&in) >= 0 && !partition_error;
            get32(&in);
            skip_int32s(&in);
            skip_int32s(&in);
            skip_int32s(&in);
            skip_tags(&in);
        }
        if (!error && led >= topic->partitions)
            return;
        if (now() > deadline)
            die("topic %s: error %d, %ld of %d partitions have leaders", topic->name, error, (long)led, topic->partitions);
    }
}

/* Ask for the end offsets until every leader answers, because metadata may run ahead of the leaders. */
static void await_leaders(int fd, Topic *topic) {
    uint8_t *buffer = need(malloc(512 + 32 * (size_t)topic->partitions));
    topic->end_offset = need(calloc((size_t)topic->partitions, sizeof(int64_t)));
    for (double deadline = now() + 30;; usleep(2000)) {
        Out o = begin(buffer, LIST_OFFSETS, 7);
        put32(&o, -1);
        put8(&o, 0);
        put_uvarint(&o, 2);
        put_compact(&o, topic->name);
        put_uvarint(&o, (uint64_t)topic->partitions + 1);
        for (int i = 0; i < topic->partitions; i++) {
            put32(&o, i);
            put32(&o, -1);
            put64(&o, -1);
            put8(&o, 0);
        }
        put8(&o, 0);
        put8(&o, 0);
        In in = call(fd, &o, true);
        get32(&in);
        int errors = 0;
        for (int64_t topics = get_count(&in); topics > 0; topics--) {
            skip_compact(&in);
            for (int64_t partitions = get_count(&in); partitions > 0; partitions--) {
                int32_t index = get32(&in);
                errors += get16(&in) != 0;
                get64(&in);
                int64_t offset = get64(&in);
                if (index >= 0 && index < topic->partitions)
                    topic->end_offset[index] = offset;
                get32(&in);
                skip_tags(&in);
            }
            skip_tags(&in);
        }
        if (!errors)
            break;
        if (now() > deadline)
            die("topic %s: %d partitions have no serving leader", topic->name, errors);
    }
    free(buffer);
}

static void init_producer_id(int fd, int64_t *producer_id, int *producer_epoch) {
    uint8_t buffer[128];
    for (double deadline = now() + 30;; usleep(5000)) {
        Out o = begin(buffer, INIT_PRODUCER_ID, 4);
        put8(&o, 0);
        put32(&o, 60000);
        put64(&o, -1);
        put16(&o, -1);
        put8(&o, 0);
        In in = call(fd, &o, true);
        get32(&in);
        int error = get16(&in);
        *producer_id = get64(&in);
        *producer_epoch = get16(&in);
        if (!error)
            return;
        if (now() > deadline)
            die("InitProducerId: error %d", error);
    }
}

static void api_versions(int fd) {
    uint8_t buffer[64];
    Out o = begin_as(buffer, API_VERSIONS, 0, false);
    In in = call(fd, &o, false);
    int error = get16(&in);
    if (error)
        die("ApiVersions: error %d", error);
}

/* ---- one batch -------------------------------------------------------------------------------------------------- */

enum { BATCH_HEADER = 61, CRC_AT = 17, CRC_FROM = 21, PATCHED_FROM = 27, PATCHED_TO = 57 };

typedef struct {
    uint8_t *bytes; /* Header and records; the header is a template. */
    size_t size;
    int records;
    uint32_t tail_crc;       /* Of all after the patched part, started from 0. */
    uint32_t shift[4][256];  /* What that many zero bytes make of a register. */
} Batch;

static Batch make_batch(int records, int size) {
    Batch batch = {.records = records};
    batch.bytes = need(malloc(BATCH_HEADER + (size_t)records * ((size_t)size + 32)));
    Out o = {batch.bytes};
    put64(&o, 0);
    put32(&o, 0);
    put32(&o, -1);
    put8(&o, 2);
    put32(&o, 0);
    put16(&o, 0);
    put32(&o, records - 1);
    put64(&o, 0);
    put64(&o, 0);
    put64(&o, -1);
    put16(&o, -1);
    put32(&o, -1);
    put32(&o, records);
    for (int i = 0; i < records; i++) {
        /* Attributes, timestamp delta, absent key and header count are a byte each. */
        put_varint(&o, 4 + (int64_t)(varint_size(i) + varint_size(size)) + size);
        put8(&o, 0);
        put_varint(&o, 0);
        put_varint(&o, i);
        put_varint(&o, -1);
        put_varint(&o, size);
        for (int k = 0; k < size; k++)
            put8(&o, 'a' + (int)(random() % 26));
        put_varint(&o, 0);
    }
    batch.size = (size_t)(o.at - batch.bytes);
    Out length = {batch.bytes + 8};
    put32(&length, (int64_t)batch.size - 12);
    batch.tail_crc = crc_run(0, batch.bytes + PATCHED_TO, batch.size - PATCHED_TO);
    zeros_table(batch.shift, batch.size - PATCHED_TO);
    return batch;
}

/* Write timestamps, producer and CRC into a copy of the batch's header. */
static void patch_header(const Batch *batch, uint8_t *header, int64_t time_ms, int64_t producer_id, int epoch, int32_t sequence) {
    Out o = {header + PATCHED_FROM};
    put64(&o, time_ms);
    put64(&o, time_ms);
    put64(&o, producer_id);
    put16(&o, epoch);
    put32(&o, sequence);
    uint32_t c = crc_run(~0u, header + CRC_FROM, PATCHED_TO - CRC_FROM);
    c = batch->shift[0][c & 255] ^ batch->shift[1][c >> 8 & 255] ^ batch->shift[2][c >> 16 & 255] ^ batch->shift[3][c >> 24];
    Out crc = {header + CRC_AT};
    put32(&crc, ~(c ^ batch->tail_crc));
}

/* ---- latency ---------------------------------------------------------------------------------------------------- */

static float *latency;
static size_t latency_count, latency_room;

static void record_latency(double seconds) {
    if (latency_count == latency_room)
        latency = need(realloc(latency, (latency_room = latency_room ? 2 * latency_room : 1 << 16) * sizeof *latency));
    latency[latency_count++] = (float)(seconds * 1e3);
}

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double quantile(double q) { return latency_count ? latency[(size_t)((double)(latency_count - 1) * q)] : 0; }

static void print_latency(void) {
    qsort(latency, latency_count, sizeof *latency, compare_floats);
    printf("\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"p999_ms\":%.4f,\"max_ms\":%.4f", quantile(.5), quantile(.99), quantile(.999), quantile(1));
}

/* ---- produce ---------------------------------------------------------------------------------------------------- */

typedef struct {
    int fd, in_flight, producer_epoch;
    int64_t producer_id;
    int32_t *sequence;    /* For each partition; NULL unless idempotent. */
    uint32_t turn;        /* Requests begun so far. */
    uint8_t *heads;       /* BURST slots, for the requests that are begun and not yet written whole. */
    struct iovec *parts;  /* What is left to write of them: head, records, tail, head, ... */
    int first_part, next_part;
    double *due;          /* At a fixed rate: when the requests in flight were due, a ring, oldest first. */
    unsigned first_due, next_due;
    bool wants_write;
    uint8_t *received;
    size_t received_size;
} Producer;

enum { RECEIVE_ROOM = 16384, BURST = 16, HEAD_ROOM = 512, DUE_ROOM = 1 << 16 };

static struct {
    Topic topic;
    Batch batch;
    int version, acks, window, connections, epoll;
    uint8_t head[HEAD_ROOM]; /* A request's bytes before the records, partition 0. */
    size_t head_size, partition_at, batch_at;
    uint64_t begun, acknowledged, errors;
} load;

static const uint8_t request_tail[3]; /* Empty tagged fields of partition, topic and request. */

static void make_head(void) {
    Out o = begin(load.head, PRODUCE, load.version);
    put8(&o, 0);
    put16(&o, load.acks);
    put32(&o, 30000);
    put_uvarint(&o, 2);
    if (load.version >= 13)
        put_bytes(&o, load.topic.id, 16);
    else
        put_compact(&o, load.topic.name);
    put_uvarint(&o, 2);
    load.partition_at = (size_t)(o.at - load.head);
    put32(&o, 0);
    put_uvarint(&o, load.batch.size + 1);
    load.batch_at = (size_t)(o.at - load.head);
    put_bytes(&o, load.batch.bytes, BATCH_HEADER);
    load.head_size = (size_t)(o.at - load.head);
    Out length = {load.head};
    put32(&length, (int64_t)(load.head_size + load.batch.size - BATCH_HEADER + sizeof request_tail - 4));
}

/* Begin the connection's next request; partitions take turns, and connections begin at different ones. */
static void begin_request(Producer *p, int index, double due) {
    int partition = (int)((p->turn + (uint32_t)index) % (uint32_t)load.topic.partitions);
    uint8_t *head = p->heads + HEAD_ROOM * (p->next_part / 3);
    memcpy(head, load.head, load.head_size);
    Out o = {head + 8};
    put32(&o, p->turn++);
    o.at = head + load.partition_at;
    put32(&o, partition);
    int32_t sequence = -1;
    if (p->sequence) {
        sequence = p->sequence[partition];
        p->sequence[partition] = (int32_t)(((uint32_t)sequence + (uint32_t)load.batch.records) & INT32_MAX);
    }
    patch_header(&load.batch, head + load.batch_at, wall_ms(), p->producer_id, p->producer_epoch, sequence);
    p->parts[p->next_part++] = (struct iovec){head, load.head_size};
    p->parts[p->next_part++] = (struct iovec){load.batch.bytes + BATCH_HEADER, load.batch.size - BATCH_HEADER};
    p->parts[p->next_part++] = (struct iovec){(void *)request_tail, sizeof request_tail};
    load.begun++;
    if (load.acks) {
        if (p->due)
            p->due[p->next_due++ % DUE_ROOM] = due;
        p->in_flight++;
    }
}

/* Write what is left of the requests that were begun; true when nothing is left. */
static bool continue_writing(Producer *p) {
    while (p->first_part < p->next_part) {
        ssize_t put = writev(p->fd, p->parts + p->first_part, p->next_part - p->first_part);
        if (put < 0) {
            if (errno == EAGAIN)
                return false;
            die("write: %s", strerror(errno));
        }
        size_t written = (size_t)put;
        while (p->first_part < p->next_part && written >= p->parts[p->first_part].iov_len)
            written -= p->parts[p->first_part++].iov_len;
        if (p->first_part < p->next_part) {
            p->parts[p->first_part].iov_base = (uint8_t *)p->parts[p->first_part].iov_base + written;
            p->parts[p->first_part].iov_len -= written;
        }
    }
    p->first_part = p->next_part = 0;
    return true;
}

static void set_interest(Producer *p, bool wants_write) {
    if (p->wants_write == wants_write)
        return;
    p->wants_write = wants_write;
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0u), .data.ptr = p};
    epoll_ctl(load.epoll, EPOLL_CTL_MOD, p->fd, &event);
}

static void check_produce_response(const uint8_t *frame, size_t size) {
    In in = {frame, frame + size};
    get32(&in);
    skip_tags(&in);
    if (get_count(&in) != 1)
        die("a Produce response without the topic");
    if (load.version >= 13)
        take(&in, 16);
    else
        skip_compact(&in);
    get_count(&in);
    int partition = get32(&in), error = get16(&in);
    if (error && load.errors++ < 3)
        fprintf(stderr, "rawload: partition %d: error %d\n", partition, error);
}

/* Read all acknowledgements that have arrived; `record` keeps their latencies. Returns how many. */
static int read_acknowledgements(Producer *p, bool record) {
    int count = 0;
    for (;;) {
        ssize_t got = read(p->fd, p->received + p->received_size, RECEIVE_ROOM - p->received_size);
        if (got == 0)
            die("the server closed a connection");
        if (got < 0) {
            if (errno == EAGAIN)
                return count;
            die("read: %s", strerror(errno));
        }
        p->received_size += (size_t)got;
        size_t done = 0;
        double at = record ? now() : 0;
        while (p->received_size - done >= 4) {
            In in = {p->received + done, p->received + p->received_size};
            size_t size = (size_t)get32(&in);
            if (size + 4 > RECEIVE_ROOM)
                die("a Produce response of %zu bytes", size);
            if (p->received_size - done < size + 4)
                break;
            check_produce_response(p->received + done + 4, size);
            if (record)
                record_latency(at - p->due[p->first_due % DUE_ROOM]);
            p->first_due++;
            p->in_flight--;
            count++;
            done += size + 4;
        }
        memmove(p->received, p->received + done, p->received_size -= done);
        if (p->received_size + (size_t)got < RECEIVE_ROOM && (size_t)got < 4096)
            return count; /* Surely drained; the level-triggered epoll tells of the rest. */
    }
}

static Producer *open_producers(int port, bool bare, bool idempotent) {
    Producer *producers = need(calloc((size_t)load.connections, sizeof *producers));
    for (int i = 0; i < load.connections; i++) {
        Producer *p = producers + i;
        p->fd = dial(port, false);
        p->received = need(malloc(RECEIVE_ROOM));
        p->heads = need(malloc(BURST * HEAD_ROOM));
        p->parts = need(calloc(3 * BURST, sizeof *p->parts));
        p->producer_id = -1;
        p->producer_epoch = -1;
        if (!bare && (idempotent || load.connections > 1))
            api_versions(p->fd);
        if (idempotent) {
            if (!bare)
                init_producer_id(p->fd, &p->producer_id, &p->producer_epoch);
            p->sequence = need(calloc((size_t)load.topic.partitions, sizeof(int32_t)));
        }
        fcntl(p->fd, F_SETFL, O_NONBLOCK);
        p->wants_write = true;
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = p};
        epoll_ctl(load.epoll, EPOLL_CTL_ADD, p->fd, &event);
    }
    return producers;
}

/* As many requests as the window lets through, in one write, until `limit` have been begun in all. */
static void fill_window(Producer *p, int index, uint64_t limit) {
    bool written = continue_writing(p);
    if (written) {
        for (int i = 0; i < BURST && load.begun < limit && p->in_flight < load.window; i++)
            begin_request(p, index, 0);
        written = continue_writing(p);
    }
    /* acks=0 has no window but the socket's. */
    set_interest(p, !written || (!load.acks && load.begun < limit));
}

typedef struct {
    double from, to, cpu_from, cpu_to;
    uint64_t counted;
} Window;

/* As fast as the server acknowledges, up to `limit` requests or `seconds`; the first tenth warms up. */
static Window produce_freely(Producer *producers, double seconds, uint64_t limit) {
    Window w = {0};
    struct epoll_event events[256];
    double start = now(), end = start + seconds;
    uint64_t warm_requests = limit / 10;
    for (int i = 0; i < load.connections; i++)
        fill_window(producers + i, i, limit);
    while (load.acks ? load.acknowledged < load.begun : load.begun < limit) {
        int ready = epoll_wait(load.epoll, events, 256, 10000);
        if (ready == 0)
            die("no answer for 10 s with %lu requests in flight", (unsigned long)(load.begun - load.acknowledged));
        for (int i = 0; i < ready; i++) {
            Producer *p = events[i].data.ptr;
            if (events[i].events & EPOLLIN)
                load.acknowledged += (uint64_t)read_acknowledgements(p, false);
            fill_window(p, (int)(p - producers), limit);
        }
        double at = now();
        uint64_t done = load.acks ? load.acknowledged : load.begun;
        if (!w.from && (done >= warm_requests || at > start + seconds * .1)) {
            w.from = at;
            w.cpu_from = cpu_seconds();
            w.counted = done;
        }
        if (at > end)
            limit = load.begun;
        w.to = at;
    }
    w.cpu_to = cpu_seconds();
    w.counted = (load.acks ? load.acknowledged : load.begun) - w.counted;
    return w;
}

#define WAKE_EARLY 150e-6

/* `rate` requests a second over all connections, each at its own due time; latency counts from there. */
static Window produce_at_rate(Producer *producers, double seconds, double warm, double rate) {
    Window w = {0};
    struct epoll_event events[256];
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    prctl(PR_SET_TIMERSLACK, 1);
    epoll_ctl(load.epoll, EPOLL_CTL_ADD, timer, &event);
    for (int i = 0; i < load.connections; i++) {
        set_interest(producers + i, false);
        producers[i].due = need(calloc(DUE_ROOM, sizeof(double)));
    }
    double start = now() + .01, warm_until = start + warm, stop = warm_until + seconds;
    uint64_t limit = (uint64_t)((warm + seconds) * rate);
    double armed = 0;
    while (load.acknowledged < limit) {
        double due = start + (double)load.begun / rate;
        if (load.begun < limit && due <= now()) {
            int index = (int)(load.begun % (uint64_t)load.connections);
            Producer *p = producers + index;
            if (p->in_flight == DUE_ROOM)
                die("%d requests in flight at %g requests/s", DUE_ROOM, rate);
            begin_request(p, index, due);
            if (!continue_writing(p))
                die("the socket is full at %g requests/s", rate);
            continue;
        }
        /* Timers fire late, by as much as a good server takes to answer: wake up early, and poll the rest of the way. */
        bool near = load.begun < limit && due - now() < WAKE_EARLY;
        if (load.begun < limit && !near && armed != due) {
            double wake = due - WAKE_EARLY;
            struct itimerspec at = {.it_value = {(time_t)wake, (long)((wake - (double)(time_t)wake) * 1e9)}};
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
            armed = due;
        }
        int ready = epoll_wait(load.epoll, events, 256, near ? 0 : 10000);
        if (ready == 0 && !near)
            die("no answer for 10 s");
        for (int i = 0; i < ready; i++) {
            Producer *p = events[i].data.ptr;
            if (!p) {
                uint64_t expirations;
                if (read(timer, &expirations, sizeof expirations) < 0 && errno != EAGAIN)
                    die("timer: %s", strerror(errno));
                continue;
            }
            bool record = now() > warm_until;
            if (record && !w.from) {
                w.from = warm_until;
                w.cpu_from = cpu_seconds();
                w.counted = load.acknowledged;
            }
            load.acknowledged += (uint64_t)read_acknowledgements(p, record);
        }
        if (now() > stop + 20)
            die("the server fell 20 s behind %g requests/s", rate);
    }
    w.to = now();
    w.cpu_to = cpu_seconds();
    w.counted = load.acknowledged - w.counted;
    return w;
}

static void produce(void) {
    int port = (int)number("port", 0), idle = (int)number("idle", 0), size = (int)number("size", 100);
    bool bare = number("bare", 0) != 0, idempotent = number("idempotent", 0) != 0;
    double seconds = number("seconds", 1), rate = number("rate", 0), max_bytes = number("max-bytes", 5e8);
    double warm = number("warm", 1);
    load.topic = (Topic){.name = option("topic", "bench"), .partitions = (int)number("partitions", 1)};
    load.version = (int)number("version", 13);
    load.acks = (int)number("acks", 1);
    load.window = (int)number("in-flight", 5);
    load.connections = (int)number("connections", 1);
    load.batch = make_batch((int)number("records", 1), size);
    no_other_options();
    if (load.version < 9 || load.version > 13 || load.window < 1)
        die("version must be 9 to 13, in-flight at least 1");
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!bare) {
        int fd = dial(port, false);
        await_topic(fd, &load.topic, false);
        await_leaders(fd, &load.topic);
        close(fd);
    }
    for (int i = 0; i < idle; i++)
        api_versions(dial(port, false));
    make_head();
    Producer *producers = open_producers(port, bare, idempotent);
    double payload = (double)load.batch.records * size;
    uint64_t limit = (uint64_t)(max_bytes / (double)load.batch.size) + 1;
    Window w = rate > 0 ? produce_at_rate(producers, seconds, warm, rate) : produce_freely(producers, seconds, limit);
    double elapsed = w.to - w.from > 1e-6 ? w.to - w.from : 1e-6;
    printf("{\"requests_s\":%.1f,\"records_s\":%.1f,\"mb_s\":%.2f,\"requests\":%lu,\"bytes\":%.0f,\"payload_bytes\":%.0f,",
           (double)w.counted / elapsed, (double)w.counted * load.batch.records / elapsed, (double)w.counted * payload / elapsed / 1e6,
           (unsigned long)load.begun, (double)load.begun * (double)load.batch.size, (double)load.begun * payload);
    printf("\"batch_bytes\":%zu,\"errors\":%lu,\"seconds\":%.4f,\"client_cpu\":%.3f,", load.batch.size,
           (unsigned long)load.errors, elapsed, (w.cpu_to - w.cpu_from) / elapsed);
    print_latency();
    printf("}\n");
    if (load.errors)
        exit(1);
}

/* ---- fetch ------------------------------------------------------------------------------------------------------ */

typedef struct {
    int fd, version, partitions, session_id, session_epoch;
    bool sessions;
    Topic topic;
    int64_t *offset, *asked, *high_watermark;
    int partition_max_bytes;
    uint64_t bytes, records, responses;
} Consumer;

/* One Fetch request: `only` a single partition, or all (-1) that the server's session does not know as they are. */
static void ask(Consumer *c, uint8_t *buffer, int only) {
    Out o = begin(buffer, FETCH, c->version);
    if (c->version < 15)
        put32(&o, -1);
    put32(&o, 500);
    put32(&o, 1);
    put32(&o, 52428800);
    put8(&o, 0);
    put32(&o, c->sessions ? c->session_id : 0);
    put32(&o, c->sessions ? c->session_epoch : -1);
    int listed = 0;
    for (int i = 0; i < c->partitions; i++)
        listed += only < 0 ? c->offset[i] != c->asked[i] : i == only;
    put_uvarint(&o, listed ? 2 : 1);
    if (listed) {
        if (c->version >= 13)
            put_bytes(&o, c->topic.id, 16);
        else
            put_compact(&o, c->topic.name);
        put_uvarint(&o, (uint64_t)listed + 1);
        for (int i = 0; i < c->partitions; i++) {
            if (only < 0 ? c->offset[i] == c->asked[i] : i != only)
                continue;
            if (c->sessions)
                c->asked[i] = c->offset[i];
            put32(&o, i);
            put32(&o, -1);
            put64(&o, c->offset[i]);
            put32(&o, -1);
            put64(&o, -1);
            put32(&o, c->partition_max_bytes);
            put8(&o, 0);
        }
        put8(&o, 0);
    }
    put_uvarint(&o, 1);
    put_compact(&o, "");
    put8(&o, 0);
    In in = call(c->fd, &o, true);
    get32(&in);
    int error = get16(&in);
    if (error)
        die("Fetch: error %d", error);
    c->session_id = get32(&in);
    if (c->sessions)
        c->session_epoch = c->session_epoch == INT32_MAX ? 1 : c->session_epoch + 1;
    c->responses++;
    for (int64_t topics = get_count(&in); topics > 0; topics--) {
        if (c->version >= 13)
            take(&in, 16);
        else
            skip_compact(&in);
        for (int64_t partitions = get_count(&in); partitions > 0; partitions--) {
            int32_t index = get32(&in);
            if ((error = get16(&in)))
                die("Fetch: partition %d: error %d", index, error);
            if (index < 0 || index >= c->partitions)
                die("Fetch: partition %d was not asked for", index);
            c->high_watermark[index] = get64(&in);
            get64(&in);
            get64(&in);
            for (int64_t aborted = get_count(&in); aborted > 0; aborted--) {
                take(&in, 16);
                skip_tags(&in);
            }
            get32(&in);
            int64_t size = get_count(&in);
            In batches = {in.at, in.at};
            if (size > 0)
                batches.end = take(&in, (size_t)size) + size;
            /* Hop from batch to batch; the last one may be cut short, and its bytes, asked for again, do not count. */
            while (batches.end - batches.at >= BATCH_HEADER) {
                In header = batches;
                int64_t base_offset = get64(&header);
                size_t batch_size = 12 + (size_t)get32(&header);
                if ((size_t)(batches.end - batches.at) < batch_size)
                    break;
                header.at = batches.at + 23;
                c->offset[index] = base_offset + get32(&header) + 1;
                header.at = batches.at + 57;
                c->records += (uint64_t)get32(&header);
                c->bytes += batch_size;
                batches.at += batch_size;
            }
            skip_tags(&in);
        }
        skip_tags(&in);
    }
}

static void fetch(void) {
    int port = (int)number("port", 0), passes = (int)number("passes", 0), lookups = (int)number("lookups", 0);
    bool bare = number("bare", 0) != 0;
    double seconds = number("seconds", 1);
    Consumer c = {.version = (int)number("version", 18), .partitions = (int)number("partitions", 1)};
    c.sessions = number("sessions", 1) != 0 && !lookups;
    c.partition_max_bytes = (int)number("partition-max-bytes", 1048576);
    c.topic = (Topic){.name = option("topic", "bench"), .partitions = c.partitions};
    srandom((unsigned)number("seed", 1));
    no_other_options();
    if (c.version < 12 || c.version > 18)
        die("version must be 12 to 18");
    c.offset = need(calloc((size_t)c.partitions, 8));
    c.asked = need(calloc((size_t)c.partitions, 8));
    c.high_watermark = need(calloc((size_t)c.partitions, 8));
    uint8_t *buffer = need(malloc(512 + 64 * (size_t)c.partitions));
    c.fd = dial(port, false);
    if (!bare) {
        await_topic(c.fd, &c.topic, false);
        await_leaders(c.fd, &c.topic);
        for (int i = 0; i < c.partitions; i++)
            c.high_watermark[i] = c.topic.end_offset[i];
    }
    for (int i = 0; i < c.partitions; i++)
        c.asked[i] = -1;
    double start = now(), cpu = cpu_seconds(), first = 0, at;
    int rounds = 0;
    if (lookups) {
        for (int i = 0; i < lookups; i++) {
            int partition = (int)(random() % c.partitions);
            if (!c.high_watermark[partition])
                die("partition %d is empty", partition);
            int64_t wanted = (int64_t)((((uint64_t)random() << 31) | (uint64_t)random()) % (uint64_t)c.high_watermark[partition]);
            c.offset[partition] = wanted;
            at = now();
            ask(&c, buffer, partition);
            record_latency(now() - at);
            if (c.offset[partition] <= wanted)
                die("no record at offset %ld", (long)wanted);
        }
    } else {
        while (passes ? rounds < passes : now() - start < seconds) {
            ask(&c, buffer, -1);
            if (!first)
                first = now();
            bool ended = !bare;
            for (int i = 0; i < c.partitions; i++)
                ended &= c.offset[i] >= c.high_watermark[i];
            if (ended) {
                memset(c.offset, 0, 8 * (size_t)c.partitions);
                rounds++;
            }
        }
    }
    double elapsed = now() - start;
    printf("{\"mb_s\":%.2f,\"requests_s\":%.1f,\"records_s\":%.1f,\"bytes\":%lu,\"requests\":%lu,\"passes\":%d,\"seconds\":%.4f,",
           (double)c.bytes / elapsed / 1e6, (double)c.responses / elapsed, (double)c.records / elapsed, (unsigned long)c.bytes,
           (unsigned long)c.responses, rounds, elapsed);
    printf("\"client_cpu\":%.3f,", (cpu_seconds() - cpu) / elapsed);
    print_latency();
    printf("}\n");
}

/* ---- first-ack -------------------------------------------------------------------------------------------------- */

static void first_ack(void) {
    int port = (int)number("port", 0);
    load.topic = (Topic){.name = option("topic", "first"), .partitions = 1};
    load.version = (int)number("version", 13);
    load.acks = (int)number("acks", -1);
    no_other_options();
    load.batch = make_batch(1, 100);
    int fd = dial(port, true);
    api_versions(fd);
    await_topic(fd, &load.topic, true);
    Producer p = {.fd = fd, .producer_id = -1, .producer_epoch = -1};
    p.heads = need(malloc(HEAD_ROOM));
    p.parts = need(calloc(3, sizeof *p.parts));
    for (;; usleep(1000)) {
        make_head();
        begin_request(&p, 0, 0);
        if (!continue_writing(&p))
            die("the socket is full");
        uint8_t length[4];
        if (!read_whole(fd, length, 4))
            die("the server closed the connection");
        In in = {length, length + 4};
        size_t size = (size_t)get32(&in);
        if (size > RECEIVE_ROOM)
            die("a Produce response of %zu bytes", size);
        uint8_t frame[RECEIVE_ROOM];
        if (!read_whole(fd, frame, size))
            die("the server closed the connection");
        uint64_t before = load.errors;
        check_produce_response(frame, size);
        if (load.errors == before)
            break;
    }
    printf("{\"monotonic\":%.6f}\n", now());
}

/* ---- sink ------------------------------------------------------------------------------------------------------- */

typedef struct {
    int fd;
    size_t held, skip;  /* Bytes of the request head held; bytes of the current frame still to pass over. */
    uint8_t head[12];
    size_t sending;     /* Bytes of the current fetch response still to send. */
} Peer;

/* Answers Produce with a fixed acknowledgement and Fetch with a fixed response, sent from memory by sendfile. */
static void sink(void) {
    size_t payload = (size_t)number("fetch-bytes", 1048576);
    int version = (int)number("version", 13), fetch_version = (int)number("fetch-version", 18);
    no_other_options();
    Batch batch = make_batch(64, 1000);
    uint8_t acknowledgement[128], lead[256];
    Out o = {acknowledgement};
    put32(&o, 0);
    put32(&o, 0);
    put8(&o, 0);
    put8(&o, 2);
    if (version >= 13)
        o.at = (uint8_t *)memset(o.at, 0, 16) + 16;
    else
        put_compact(&o, "bench");
    put8(&o, 2);
    put32(&o, 0);
    put16(&o, 0);
    put64(&o, 0);
    put64(&o, -1);
    put64(&o, 0);
    put8(&o, 1);
    put8(&o, 0);
    put8(&o, 0);
    put8(&o, 0);
    put32(&o, 0);
    put8(&o, 0);
    size_t acknowledgement_size = (size_t)(o.at - acknowledgement);
    o.at = acknowledgement;
    put32(&o, (int64_t)acknowledgement_size - 4);

    size_t batches = payload / batch.size ? payload / batch.size : 1;
    payload = batches * batch.size;
    o.at = lead;
    put32(&o, 0);
    put32(&o, 0);
    put8(&o, 0);
    put32(&o, 0);
    put16(&o, 0);
    put32(&o, 0);
    put8(&o, 2);
    if (fetch_version >= 13)
        o.at = (uint8_t *)memset(o.at, 0, 16) + 16;
    else
        put_compact(&o, "bench");
    put8(&o, 2);
    put32(&o, 0);
    put16(&o, 0);
    put64(&o, INT64_MAX);
    put64(&o, INT64_MAX);
    put64(&o, 0);
    put8(&o, 0);
    put32(&o, -1);
    put_uvarint(&o, payload + 1);
    size_t lead_size = (size_t)(o.at - lead), response = lead_size + payload + 3;
    o.at = lead;
    put32(&o, (int64_t)response - 4);
    int file = memfd_create("sink", MFD_CLOEXEC);
    for (size_t i = 0; i < batches; i++)
        write_whole(file, batch.bytes, batch.size);
    write_whole(file, request_tail, sizeof request_tail);

    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t address_size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), epoll = epoll_create1(EPOLL_CLOEXEC);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1024) ||
        getsockname(listener, (void *)&address, &address_size))
        die("listen: %s", strerror(errno));
    printf("{\"port\":%d}\n", be16toh(address.sin_port));
    fflush(stdout);
    struct epoll_event events[256], event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    static uint8_t received[1 << 18], replies[1 << 18]; /* An answer is shorter than any request. */
    for (;;) {
        int ready = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            Peer *peer = events[i].data.ptr;
            if (!peer) {
                peer = need(calloc(1, sizeof *peer));
                peer->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                int yes = 1;
                setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                event.events = EPOLLIN;
                event.data.ptr = peer;
                epoll_ctl(epoll, EPOLL_CTL_ADD, peer->fd, &event);
                continue;
            }
            if (events[i].events & EPOLLOUT) {
                off_t position = (off_t)(payload + 3 - peer->sending);
                ssize_t put = sendfile(peer->fd, file, &position, peer->sending);
                if (put > 0)
                    peer->sending -= (size_t)put;
                if (!peer->sending) {
                    event.events = EPOLLIN;
                    event.data.ptr = peer;
                    epoll_ctl(epoll, EPOLL_CTL_MOD, peer->fd, &event);
                }
                continue;
            }
            ssize_t got = read(peer->fd, received, sizeof received);
            if (got <= 0) {
                if (got < 0 && errno == EAGAIN)
                    continue;
                close(peer->fd);
                free(peer);
                continue;
            }
            size_t replies_size = 0;
            for (size_t at = 0; at < (size_t)got;) {
                size_t left = (size_t)got - at;
                if (peer->skip) {
                    size_t skipped = left < peer->skip ? left : peer->skip;
                    peer->skip -= skipped;
                    at += skipped;
                } else {
                    size_t part = sizeof peer->head - peer->held;
                    part = left < part ? left : part;
                    memcpy(peer->head + peer->held, received + at, part);
                    peer->held += part;
                    at += part;
                    if (peer->held < sizeof peer->head)
                        continue;
                    In in = {peer->head, peer->head + sizeof peer->head};
                    peer->skip = (size_t)get32(&in) + 4 - sizeof peer->head;
                }
                if (peer->skip || peer->held < sizeof peer->head)
                    continue;
                peer->held = 0;
                In in = {peer->head + 4, peer->head + sizeof peer->head};
                bool is_fetch = get16(&in) == FETCH;
                if (!is_fetch) {
                    memcpy(replies + replies_size, acknowledgement, acknowledgement_size);
                    memcpy(replies + replies_size + 4, peer->head + 8, 4);
                    replies_size += acknowledgement_size;
                } else {
                    memcpy(lead + 4, peer->head + 8, 4);
                    if (!try_write(peer->fd, lead, lead_size))
                        break;
                    peer->sending = payload + 3;
                    event.events = EPOLLOUT;
                    event.data.ptr = peer;
                    epoll_ctl(epoll, EPOLL_CTL_MOD, peer->fd, &event);
                }
            }
            /* A peer that is gone shows at the next read. */
            try_write(peer->fd, replies, replies_size);
        }
    }
}

/* ---- evict ------------------------------------------------------------------------------------------------------ */

static void evict(int count, char **paths) {
    size_t total = 0, resident = 0, page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < count; i++) {
        int fd = open(paths[i], O_RDWR | O_CLOEXEC);
        struct stat info;
        if (fd < 0 || fstat(fd, &info))
            die("%s: %s", paths[i], strerror(errno));
        size_t size = (size_t)info.st_size, pages = (size + page - 1) / page;
        if (size) {
            if (fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
                die("%s: could not be evicted", paths[i]);
            uint8_t *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0), *vector = need(malloc(pages));
            if (map == MAP_FAILED || mincore(map, size, vector))
                die("%s: %s", paths[i], strerror(errno));
            for (size_t k = 0; k < pages; k++)
                resident += vector[k] & 1 ? page : 0;
            munmap(map, size);
            free(vector);
        }
        total += size;
        close(fd);
    }
    printf("{\"bytes\":%zu,\"resident_bytes\":%zu}\n", total, resident);
}

int main(int count, char **arguments) {
    if (count < 2)
        die("produce, fetch, first-ack, sink or evict?");
    use_all_connections();
    crc_setup();
    option_list = arguments + 2;
    option_count = count - 2;
    if (!strcmp(arguments[1], "evict")) {
        evict(count - 2, arguments + 2);
        return 0;
    }
    if (option_count > 64)
        die("too many options");
    if (!strcmp(arguments[1], "produce"))
        produce();
    else if (!strcmp(arguments[1], "fetch"))
        fetch();
    else if (!strcmp(arguments[1], "first-ack"))
        first_ack();
    else if (!strcmp(arguments[1], "sink"))
        sink();
    else
        die("produce, fetch, first-ack, sink or evict?");
    return 0;
}
