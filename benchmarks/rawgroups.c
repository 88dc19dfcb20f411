/*
 * rawgroups: members of groups whose own cost is next to nothing, so that what is measured is the coordinator.
 *
 *   rawgroups commit   KEY=VALUE...   consumers that commit offsets, one request of each in flight
 *   rawgroups assign   KEY=VALUE...   the first assignment of a new classic consumer, again and again
 *   rawgroups classic  KEY=VALUE...   a classic group: all members join, and all of them join again
 *   rawgroups consumer KEY=VALUE...   a group of the consumer protocol (KIP-848), from its first heartbeats on
 *
 * One JSON object on standard output, errors on standard error with a status other than 0. One thread, one epoll.
 *
 * Members speak the protocol and consume no record. Classic ones join, their leader deals out the partitions, all sync;
 * they send heartbeats, and join again when they are told that others do. Those of the consumer protocol send
 * heartbeats and own what they are told, at once. A group is stable when all are of one generation (or epoch) and every
 * partition is owned.
 */
#define _GNU_SOURCE
#define PROGRAM "rawgroups"
#include "raw.h"

enum { MEMBER_ID_REQUIRED = 79, REBALANCE_IN_PROGRESS = 27, SESSION_MS = 45000, REBALANCE_MS = 60000 };
enum { STABLE_WITHIN_S = 60 };

/* Seconds between two heartbeats of a member: those of a real one are three seconds apart. */
static const double CLASSIC_BEAT_S = 0.005, CONSUMER_BEAT_S = 0.02;

/* ---- one connection, one request in flight ---------------------------------------------------------------------- */

typedef struct {
    int fd;
    uint8_t *received;
    size_t size, room;
} Peer;

static void open_peer(Peer *peer, int poller, int port, size_t room, void *owner) {
    *peer = (Peer){.fd = dial(port, false), .received = need(malloc(room)), .room = room};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = owner};
    epoll_ctl(poller, EPOLL_CTL_ADD, peer->fd, &event);
}

/* Read what has come. True if an answer is whole: then `in` is what follows its correlation id. */
static bool receive(Peer *peer, In *in) {
    ssize_t got = read(peer->fd, peer->received + peer->size, peer->room - peer->size);
    if (got <= 0)
        die("the server closed the connection");
    peer->size += (size_t)got;
    if (peer->size < 8)
        return false;
    *in = (In){peer->received, peer->received + peer->size};
    size_t size = (size_t)get32(in);
    if (size + 4 > peer->room)
        die("a response of %zu bytes", size);
    if (peer->size < size + 4)
        return false;
    get32(in);
    peer->size = 0;
    return true;
}

/* ---- commit ----------------------------------------------------------------------------------------------------- */

typedef struct {
    Peer peer;
    int group, requests;
} Committer;

static struct {
    const char *topic, *group;
    int partitions;
    uint8_t *request;
    uint64_t requests, errors;
} commits;

/* Every consumer commits the same partitions again and again, each time one further, in a group of its own. */
static void commit_once(Committer *c) {
    char group[64];
    snprintf(group, sizeof group, "%s-%d", commits.group, c->group);
    Out o = begin(commits.request, OFFSET_COMMIT, 8);
    put_compact(&o, group);
    put32(&o, -1);
    put_compact(&o, "");
    put_uvarint(&o, 0);
    put_uvarint(&o, 2);
    put_compact(&o, commits.topic);
    put_uvarint(&o, (uint64_t)commits.partitions + 1);
    for (int partition = 0; partition < commits.partitions; partition++) {
        put32(&o, partition);
        put64(&o, 1000 + c->requests);
        put32(&o, -1);
        put_compact(&o, "");
        put8(&o, 0);
    }
    put8(&o, 0);
    put8(&o, 0);
    write_whole(c->peer.fd, commits.request, finish(&o));
    c->requests++;
}

static void check_commit_response(In *in) {
    skip_tags(in);
    get32(in);
    for (int64_t topics = get_count(in); topics > 0; topics--) {
        skip_compact(in);
        for (int64_t partitions = get_count(in); partitions > 0; partitions--) {
            get32(in);
            if (get16(in))
                commits.errors++;
            skip_tags(in);
        }
        skip_tags(in);
    }
    commits.requests++;
}

/* `groups`: commit once for each of so many groups and end, instead of going on for `seconds`. */
static void commit(void) {
    int port = (int)number("port", 0), consumers = (int)number("connections", 50);
    int groups = (int)number("groups", 0), begun = 0, left = consumers;
    double seconds = number("seconds", 1);
    commits.topic = option("topic", "topic");
    commits.group = option("group", "group");
    commits.partitions = (int)number("partitions", 1);
    no_other_options();
    size_t room = 4096 + 32 * (size_t)commits.partitions;
    commits.request = need(malloc(room));
    int poller = epoll_create1(EPOLL_CLOEXEC);
    Committer *all = need(calloc((size_t)consumers, sizeof *all));
    for (int index = 0; index < consumers; index++) {
        Committer *c = &all[index];
        open_peer(&c->peer, poller, port, room, c);
        c->group = begun++;
    }
    double start = now(), end = start + seconds, cpu = cpu_seconds();
    for (int index = 0; index < consumers; index++)
        commit_once(&all[index]);
    while (left) {
        struct epoll_event events[64];
        int count = epoll_wait(poller, events, 64, 30000);
        if (!count)
            die("no answer to a commit for 30 s");
        for (int index = 0; index < count; index++) {
            Committer *c = events[index].data.ptr;
            In in;
            if (!receive(&c->peer, &in))
                continue;
            check_commit_response(&in);
            if (groups ? begun >= groups : now() >= end) {
                left--;
                continue;
            }
            if (groups)
                c->group = begun++;
            commit_once(c);
        }
    }
    double took = now() - start;
    printf("{\"requests_s\":%.1f,\"requests\":%llu,\"errors\":%llu,\"seconds\":%.4f,\"client_cpu\":%.3f}\n",
           (double)commits.requests / took, (unsigned long long)commits.requests, (unsigned long long)commits.errors,
           took, (cpu_seconds() - cpu) / took);
    if (commits.errors)
        die("%llu commits were refused", (unsigned long long)commits.errors);
}
/* ---- assign ----------------------------------------------------------------------------------------------------- */

static void ask_api_versions(int fd) {
    uint8_t buffer[128];
    Out o = begin(buffer, API_VERSIONS, 3);
    put_compact(&o, PROGRAM);
    put_compact(&o, "1");
    put8(&o, 0);
    In in = call(fd, &o, false);
    int error = get16(&in);
    if (error)
        die("ApiVersions: error %d", error);
}

/* Without a topic the brokers are asked for. */
static void ask_metadata(int fd, const char *topic) {
    static const uint8_t no_id[16];
    uint8_t buffer[512];
    Out o = begin(buffer, METADATA, 12);
    put_uvarint(&o, topic ? 2 : 1);
    if (topic) {
        put_bytes(&o, no_id, 16);
        put_compact(&o, topic);
        put8(&o, 0);
    }
    put8(&o, 0);
    put8(&o, 0);
    put8(&o, 0);
    call(fd, &o, true);
}

static void ask_coordinator(int fd, const char *group) {
    uint8_t buffer[512];
    Out o = begin_as(buffer, FIND_COORDINATOR, 2, false);
    put_string(&o, group);
    put8(&o, 0);
    In in = call(fd, &o, false);
    get32(&in);
    int error = get16(&in);
    if (error)
        die("FindCoordinator: error %d", error);
}

/* The subscription, or the assignment, of a consumer to one topic: version 1, with what only this one says. */
static void put_consumer_words(Out *o, const char *topic, const int32_t *partitions, int count, const char *said) {
    put16(o, 1);
    put32(o, 1);
    put_string(o, topic);
    if (partitions) {
        put32(o, count);
        for (int i = 0; i < count; i++)
            put32(o, partitions[i]);
    }
    put32(o, (int64_t)strlen(said));
    put_bytes(o, said, strlen(said));
    if (!partitions)
        put32(o, 0); /* It owns nothing. */
}

static void take_string(In *in, char *text, size_t room) {
    int size = get16(in);
    if (size < 0 || (size_t)size >= room)
        die("a string of %d bytes", size);
    memcpy(text, take(in, (size_t)size), (size_t)size);
    text[size] = 0;
}

/* One JoinGroup in the version of librdkafka; `member` is what the answer calls the member. */
static int join_once(int fd, const char *group, const char *topic, char *member, size_t room, int32_t *generation) {
    uint8_t buffer[2048], words[512];
    Out said = {words};
    put_consumer_words(&said, topic, NULL, 0, "");
    Out o = begin_as(buffer, JOIN_GROUP, 5, false);
    put_string(&o, group);
    put32(&o, SESSION_MS);
    put32(&o, REBALANCE_MS);
    put_string(&o, member);
    put16(&o, -1);
    put_string(&o, "consumer");
    put32(&o, 1);
    put_string(&o, "range");
    put32(&o, said.at - words);
    put_bytes(&o, words, (size_t)(said.at - words));
    In in = call(fd, &o, false);
    char skipped[256];
    get32(&in);
    int error = get16(&in);
    *generation = get32(&in);
    take_string(&in, skipped, sizeof skipped);
    take_string(&in, skipped, sizeof skipped);
    take_string(&in, member, room);
    return error;
}

/* Returns the bytes of the assignment: of a member that assigned all partitions to itself. */
static int sync_once(int fd, const char *group, const char *topic, const char *member, int32_t generation) {
    static const int32_t all[] = {0};
    uint8_t buffer[2048], words[512];
    Out said = {words};
    put_consumer_words(&said, topic, all, 1, "");
    Out o = begin_as(buffer, SYNC_GROUP, 3, false);
    put_string(&o, group);
    put32(&o, generation);
    put_string(&o, member);
    put16(&o, -1);
    put32(&o, 1);
    put_string(&o, member);
    put32(&o, said.at - words);
    put_bytes(&o, words, (size_t)(said.at - words));
    In in = call(fd, &o, false);
    get32(&in);
    int error = get16(&in);
    if (error)
        die("SyncGroup: error %d", error);
    return get32(&in);
}

/* The requests of librdkafka's classic consumer from its first connection to its partitions, without its pauses. */
static double assign_once(int port, const char *group, const char *topic) {
    char member[256] = "";
    int32_t generation;
    double start = now();
    int bootstrap = dial(port, false);
    ask_api_versions(bootstrap);
    ask_metadata(bootstrap, NULL);
    ask_coordinator(bootstrap, group);
    int coordinator = dial(port, false);
    ask_api_versions(coordinator);
    ask_metadata(coordinator, topic);
    int error = join_once(coordinator, group, topic, member, sizeof member, &generation);
    if (error == MEMBER_ID_REQUIRED)
        error = join_once(coordinator, group, topic, member, sizeof member, &generation);
    if (error)
        die("JoinGroup: error %d", error);
    ask_metadata(coordinator, topic);
    if (sync_once(coordinator, group, topic, member, generation) <= 0)
        die("SyncGroup gave nothing to the only member");
    double took = now() - start;
    close(coordinator);
    close(bootstrap);
    return took;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_median(double *seconds, int count, double first) {
    qsort(seconds, (size_t)count, sizeof *seconds, compare_doubles);
    printf("{\"median_s\":%.7f,\"least_s\":%.7f,\"most_s\":%.7f,\"first_s\":%.7f}\n", seconds[count / 2], seconds[0],
           seconds[count - 1], first);
}

static void assign(void) {
    int port = (int)number("port", 0), times = (int)number("times", 5);
    const char *topic = option("topic", "topic"), *group = option("group", "group");
    no_other_options();
    double *took = need(calloc((size_t)times, sizeof *took));
    for (int i = 0; i < times; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s-%d", group, i);
        took[i] = assign_once(port, name, topic);
    }
    print_median(took, times, took[0]);
}

/* ---- many members ----------------------------------------------------------------------------------------------- */

typedef struct {
    Peer peer;
    int api;                  /* What it has asked for last. */
    double beats_at;          /* When it asks again; 0 while it waits for an answer. */
    char id[128];
    int32_t generation, owned; /* Of a consumer group: its epoch. */
    uint8_t topic_id[16];
    int32_t *partitions;
} Member;

static struct {
    const char *topic, *name;
    int partitions, count, poller, round;
    Member *members;
    uint8_t *request;
} group;

static void open_group(void) {
    int port = (int)number("port", 0);
    group.topic = option("topic", "topic");
    group.name = option("group", "group");
    group.count = (int)number("members", 100);
    group.partitions = (int)number("partitions", 1000);
    group.poller = epoll_create1(EPOLL_CLOEXEC);
    group.members = need(calloc((size_t)group.count, sizeof *group.members));
    size_t room = 65536 + 512 * (size_t)group.count + 16 * (size_t)group.partitions;
    group.request = need(malloc(room));
    for (int i = 0; i < group.count; i++) {
        Member *m = &group.members[i];
        open_peer(&m->peer, group.poller, port, room, m);
        m->partitions = need(calloc((size_t)group.partitions, sizeof *m->partitions));
    }
}

static void ask(Member *m, Out *o, int api) {
    m->api = api;
    m->beats_at = 0;
    write_whole(m->peer.fd, group.request, finish(o));
}

static bool is_stable(void) {
    int owned = 0, least = group.partitions / group.count;
    for (int i = 0; i < group.count; i++) {
        Member *m = &group.members[i];
        if (m->generation <= 0 || m->generation != group.members[0].generation || m->owned < least)
            return false;
        owned += m->owned;
    }
    return owned == group.partitions;
}

/* Let every member ask by `begin_member`, answer by `on_answer` and ask again by `beat`, until the group is stable. */
static double until_stable(void (*begin_member)(Member *), void (*on_answer)(Member *, In *), void (*beat)(Member *)) {
    double start = now();
    group.round++;
    for (int i = 0; i < group.count; i++)
        group.members[i].generation = group.members[i].owned = 0;
    for (int i = 0; i < group.count; i++)
        begin_member(&group.members[i]);
    for (double next = start;;) {
        struct epoll_event events[64];
        int count = epoll_wait(group.poller, events, 64, 1);
        for (int i = 0; i < count; i++) {
            Member *m = events[i].data.ptr;
            In in;
            if (!receive(&m->peer, &in))
                continue;
            on_answer(m, &in);
            if (m->owned && is_stable())
                return now() - start;
        }
        double time = now();
        if (time > start + STABLE_WITHIN_S)
            die("the group is not stable after %d s", STABLE_WITHIN_S);
        if (time < next)
            continue;
        next = time + 0.001;
        for (int i = 0; i < group.count; i++)
            if (group.members[i].beats_at && group.members[i].beats_at <= time)
                beat(&group.members[i]);
    }
}

/* Take the answers to what is still in flight, so that the next round begins with none. */
static void drain(void) {
    for (int left = 1; left;) {
        left = 0;
        for (int i = 0; i < group.count; i++) {
            Member *m = &group.members[i];
            In in;
            if (m->beats_at)
                continue;
            if (receive(&m->peer, &in))
                m->beats_at = now();
            else
                left++;
        }
    }
}

static void take_id(In *in, char *text, size_t room) {
    int64_t size = get_count(in);
    if (size < 0 || (size_t)size >= room)
        die("a string of %ld bytes", (long)size);
    memcpy(text, take(in, (size_t)size), (size_t)size);
    text[size] = 0;
}

/* ---- classic ---------------------------------------------------------------------------------------------------- */

/* Every round says something else, so that a member that is known already makes the group rebalance. */
static void join(Member *m) {
    uint8_t words[512];
    char round[16];
    snprintf(round, sizeof round, "%d", group.round);
    Out said = {words};
    put_consumer_words(&said, group.topic, NULL, 0, round);
    Out o = begin(group.request, JOIN_GROUP, 9);
    put_compact(&o, group.name);
    put32(&o, SESSION_MS);
    put32(&o, REBALANCE_MS);
    put_compact(&o, m->id);
    put_uvarint(&o, 0);
    put_compact(&o, "consumer");
    put_uvarint(&o, 2);
    put_compact(&o, "range");
    put_uvarint(&o, (uint64_t)(said.at - words) + 1);
    put_bytes(&o, words, (size_t)(said.at - words));
    put8(&o, 0);
    put_uvarint(&o, 0);
    put8(&o, 0);
    ask(m, &o, JOIN_GROUP);
}

/* The leader is told of all members, and deals the partitions out one by one. */
static void sync_group(Member *m, In *joined, int64_t members) {
    Out o = begin(group.request, SYNC_GROUP, 5);
    put_compact(&o, group.name);
    put32(&o, m->generation);
    put_compact(&o, m->id);
    put_uvarint(&o, 0);
    put_compact(&o, "consumer");
    put_compact(&o, "range");
    put_uvarint(&o, (uint64_t)members + 1);
    for (int64_t place = 0; place < members; place++) {
        char id[128];
        take_id(joined, id, sizeof id);
        skip_compact(joined);
        skip_compact(joined);
        skip_tags(joined);
        int count = 0;
        for (int64_t partition = place; partition < group.partitions; partition += members)
            m->partitions[count++] = (int32_t)partition;
        uint8_t words[65536];
        if (count > 8192)
            die("%d partitions for one member", count);
        Out said = {words};
        put_consumer_words(&said, group.topic, m->partitions, count, "");
        put_compact(&o, id);
        put_uvarint(&o, (uint64_t)(said.at - words) + 1);
        put_bytes(&o, words, (size_t)(said.at - words));
        put8(&o, 0);
    }
    put8(&o, 0);
    ask(m, &o, SYNC_GROUP);
}

static void on_joined(Member *m, In *in) {
    int error = get16(in);
    int32_t generation = get32(in);
    skip_compact(in);
    skip_compact(in);
    skip_compact(in);
    take(in, 1);
    take_id(in, m->id, sizeof m->id);
    if (error == MEMBER_ID_REQUIRED) {
        join(m);
        return;
    }
    if (error)
        die("JoinGroup: error %d", error);
    m->generation = generation;
    m->owned = 0;
    sync_group(m, in, get_count(in));
}

static void on_synced(Member *m, In *in) {
    int error = get16(in);
    if (error == REBALANCE_IN_PROGRESS) {
        join(m);
        return;
    }
    if (error)
        die("SyncGroup: error %d", error);
    skip_compact(in);
    skip_compact(in);
    if (get_count(in) > 0) {
        get16(in);
        get32(in);
        take(in, (size_t)get16(in));
        m->owned = get32(in);
    }
    m->beats_at = now() + CLASSIC_BEAT_S;
}

static void beat_classic(Member *m) {
    Out o = begin(group.request, HEARTBEAT, 4);
    put_compact(&o, group.name);
    put32(&o, m->generation);
    put_compact(&o, m->id);
    put_uvarint(&o, 0);
    put8(&o, 0);
    ask(m, &o, HEARTBEAT);
}

static void on_classic_answer(Member *m, In *in) {
    skip_tags(in);
    get32(in);
    if (m->api == JOIN_GROUP)
        on_joined(m, in);
    else if (m->api == SYNC_GROUP)
        on_synced(m, in);
    else {
        int error = get16(in);
        if (error == REBALANCE_IN_PROGRESS)
            join(m);
        else if (error)
            die("Heartbeat: error %d", error);
        else
            m->beats_at = now() + CLASSIC_BEAT_S;
    }
}

static void classic(void) {
    int rounds = (int)number("rounds", 3);
    open_group();
    no_other_options();
    double *took = need(calloc((size_t)rounds, sizeof *took));
    double first = until_stable(join, on_classic_answer, beat_classic);
    for (int round = 0; round < rounds; round++) {
        drain();
        took[round] = until_stable(join, on_classic_answer, beat_classic);
    }
    print_median(took, rounds, first);
}

/* ---- consumer --------------------------------------------------------------------------------------------------- */

/* `what` is said by the first heartbeat; later ones say what is owned, if that was told by the last answer. */
static void beat_consumer_as(Member *m, bool first, bool tells) {
    Out o = begin(group.request, CONSUMER_GROUP_HEARTBEAT, 1);
    put_compact(&o, group.name);
    put_compact(&o, m->id);
    put32(&o, m->generation);
    put_uvarint(&o, 0);
    put_uvarint(&o, 0);
    put32(&o, first ? REBALANCE_MS : -1);
    put_uvarint(&o, first ? 2 : 0);
    if (first)
        put_compact(&o, group.topic);
    put_uvarint(&o, 0);
    put_uvarint(&o, 0);
    if (!first && !tells)
        put_uvarint(&o, 0);
    else {
        put_uvarint(&o, m->owned ? 2 : 1);
        if (m->owned) {
            put_bytes(&o, m->topic_id, 16);
            put_uvarint(&o, (uint64_t)m->owned + 1);
            for (int i = 0; i < m->owned; i++)
                put32(&o, m->partitions[i]);
            put8(&o, 0);
        }
    }
    put8(&o, 0);
    ask(m, &o, CONSUMER_GROUP_HEARTBEAT);
}

static void enter(Member *m) { beat_consumer_as(m, true, true); }
static void beat_consumer(Member *m) { beat_consumer_as(m, false, false); }

static void on_consumer_answer(Member *m, In *in) {
    skip_tags(in);
    get32(in);
    int error = get16(in);
    if (error)
        die("ConsumerGroupHeartbeat: error %d", error);
    skip_compact(in);
    skip_compact(in);
    m->generation = get32(in);
    get32(in);
    if ((int8_t)*take(in, 1) < 0) {
        m->beats_at = now() + CONSUMER_BEAT_S;
        return;
    }
    m->owned = 0;
    for (int64_t topics = get_count(in); topics > 0; topics--) {
        memcpy(m->topic_id, take(in, 16), 16);
        for (int64_t partitions = get_count(in); partitions > 0; partitions--)
            m->partitions[m->owned++] = get32(in);
        skip_tags(in);
    }
    beat_consumer_as(m, false, true);
}

static void consumer(void) {
    open_group();
    no_other_options();
    for (int i = 0; i < group.count; i++)
        snprintf(group.members[i].id, sizeof group.members[i].id, "%08x-%d-%d", (unsigned)getpid(), (int)time(NULL), i);
    double took = until_stable(enter, on_consumer_answer, beat_consumer);
    print_median(&took, 1, took);
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {{"commit", commit}, {"assign", assign}, {"classic", classic}, {"consumer", consumer}};
    use_all_connections();
    option_list = arguments + 2;
    option_count = count - 2;
    if (option_count > 64)
        die("too many options");
    for (size_t i = 0; count > 1 && i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(arguments[1], modes[i].name)) {
            modes[i].run();
            return 0;
        }
    die("commit, assign, classic or consumer?");
}
