/* The inner loop of the load generator: ready-made requests leave, replies are counted, latencies are kept.
 *
 * bench/native_load.py compiles it and calls it by ctypes; bench/plain_load.py does the same in Python, at several times
 * the cost. A connection is a ring of prepared frames. In a closed loop a number of them is in flight; in an open loop
 * they leave at set times, and a latency counts from the time that was set, however late the request really left.
 *
 * A connection under TLS comes with its handshake done: an `SSL *`, and the functions of the libssl that made it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum { HEAD_SIZE_MAX = 512, RECEIVE_SIZE = 256 << 10, STREAMS_MAX = 256, SILENCE_S_MAX = 30 };
enum { DONE = 0, CLOSED = -1, ERROR_IN_REPLY = -2, SILENCE = -3, INTERRUPTED = -4, TOO_MANY = -5, TLS = -6, SYSTEM = -1000 };
enum { SSL_WANTS_READ = 2, SSL_WANTS_WRITE = 3, SSL_CLOSED = 6 };

typedef struct {
    uint8_t *frames;          /* `frames_count` requests of `frame_size` bytes each, used round and round */
    int64_t frame_size;
    int64_t frames_count;
    int64_t at;               /* the next of them */
    int64_t to_send;          /* requests that have not been prepared yet */
    const uint32_t *crc_of;   /* for sequenced requests: 4 x 256 parts of the checksum, one for each byte of the sequence */
    int64_t crc_base;         /* the checksum at sequence 0 */
    int64_t sequence_position;
    int64_t crc_position;
    uint64_t *sent_at;        /* of those in flight in a closed loop: a ring of `in_flight` */
    int64_t sent_size;
    int64_t received_size;
    int64_t descriptor;
    void *ssl;                /* NULL: the connection is plain */
    /* the rest is the loop's own, zero at first */
    uint8_t *unsent;
    int64_t unsent_size;
    int64_t sent, answered, allowed;
    int64_t left;             /* bytes of a reply whose head has been seen */
    int64_t head_size;
    uint8_t head[HEAD_SIZE_MAX];
} stream;

typedef struct {
    stream *streams;
    int64_t count;
    int64_t in_flight;
    int64_t requests;
    int64_t error_position;
    int64_t discards;         /* replies are thrown away in the kernel once their head is read */
    int64_t interval_ns;      /* 0: closed loop */
    uint64_t *latencies;
    int64_t latencies_count;
    int64_t error;
    int (*ssl_write)(void *, const void *, size_t, size_t *);
    int (*ssl_read)(void *, void *, size_t, size_t *);
    int (*ssl_error)(const void *, int);
    /* the loop's own */
    uint64_t began;
    int64_t scheduled;
} load;

static __thread uint8_t received[RECEIVE_SIZE];

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint32_t big32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_big32(uint8_t *at, uint32_t value) {
    at[0] = value >> 24, at[1] = value >> 16, at[2] = value >> 8, at[3] = value;
}

/* A checksum is linear: what each byte of the sequence changes in it is known beforehand. */
static void number(stream *self, uint8_t *frame, uint32_t sequence) {
    uint32_t crc = (uint32_t)self->crc_base;
    for (int byte = 0; byte < 4; byte++)
        crc ^= self->crc_of[256 * byte + (sequence >> (24 - 8 * byte) & 255)];
    put_big32(frame + self->sequence_position, sequence);
    put_big32(frame + self->crc_position, crc);
}

static void prepare(load *all, stream *self, uint64_t now) {
    int64_t count = self->allowed < self->to_send ? self->allowed : self->to_send;
    if (self->at == self->frames_count) self->at = 0;
    if (count > self->frames_count - self->at) count = self->frames_count - self->at;
    self->unsent = self->frames + self->at * self->frame_size;
    self->unsent_size = count * self->frame_size;
    for (int64_t each = 0; each < count; each++) {
        if (self->crc_of) number(self, self->unsent + each * self->frame_size, (uint32_t)(self->sent + each));
        if (!all->interval_ns) self->sent_at[(self->sent + each) % all->in_flight] = now;
    }
    self->sent += count, self->at += count, self->allowed -= count, self->to_send -= count;
}

/* Why libssl has not done what it was asked: DONE where the socket has to be waited for. */
static int tls_status(load *all, stream *self) {
    int error = all->ssl_error(self->ssl, 0);
    if (error == SSL_WANTS_READ || error == SSL_WANTS_WRITE) return DONE;
    return error == SSL_CLOSED ? CLOSED : TLS;
}

static int send_allowed(load *all, stream *self, uint64_t now) {
    for (;;) {
        if (!self->unsent_size) {
            if (!self->allowed || !self->to_send) return DONE;
            prepare(all, self, now);
        }
        size_t size;
        if (self->ssl) {
            if (!all->ssl_write(self->ssl, self->unsent, self->unsent_size, &size)) return tls_status(all, self);
        } else {
            ssize_t sent = send(self->descriptor, self->unsent, self->unsent_size, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0) return errno == EAGAIN ? DONE : errno == EINTR ? INTERRUPTED : SYSTEM - errno;
            size = sent;
        }
        self->unsent += size, self->unsent_size -= size, self->sent_size += size;
    }
}

static void answered(load *all, stream *self, uint64_t now) {
    uint64_t since = all->interval_ns
        ? all->began + (uint64_t)((self->answered * all->count + (self - all->streams)) * all->interval_ns)
        : self->sent_at[self->answered % all->in_flight];
    if (all->latencies_count < all->requests) all->latencies[all->latencies_count++] = now - since;
    self->answered++;
    if (!all->interval_ns) self->allowed++;
}

/* Goes over bytes that have arrived; a head that is not whole is kept for the next time. */
static int consume(load *all, stream *self, const uint8_t *at, int64_t size, uint64_t now) {
    int64_t head_size = all->error_position + 2;
    while (size) {
        if (self->left) {
            int64_t part = self->left < size ? self->left : size;
            self->left -= part, at += part, size -= part;
        } else {
            int64_t part = head_size - self->head_size < size ? head_size - self->head_size : size;
            memcpy(self->head + self->head_size, at, part);
            self->head_size += part, at += part, size -= part;
            if (self->head_size < head_size) return DONE;
            all->error = (int16_t)(self->head[head_size - 2] << 8 | self->head[head_size - 1]);
            if (all->error) return ERROR_IN_REPLY;
            self->left = 4 + (int64_t)big32(self->head) - head_size;
            self->head_size = 0;
        }
        if (!self->left) answered(all, self, now);
    }
    return DONE;
}

/* Until the socket is empty: poll does not know of bytes that libssl has read and not given yet. */
static int receive_tls(load *all, stream *self) {
    size_t size;
    while (all->ssl_read(self->ssl, received, RECEIVE_SIZE, &size)) {
        self->received_size += size;
        int status = consume(all, self, received, size, now_ns());
        if (status) return status;
    }
    return tls_status(all, self);
}

static int receive(load *all, stream *self, int flags) {
    if (self->ssl) return receive_tls(all, self);
    int64_t head_left = all->error_position + 2 - self->head_size;
    int throws = all->discards && self->left;
    ssize_t size;
    if (throws)
        size = recv(self->descriptor, NULL, self->left, flags | MSG_TRUNC);
    else
        size = recv(self->descriptor, received, all->discards ? head_left : RECEIVE_SIZE, flags);
    if (size < 0) {
        if (errno == EAGAIN) return flags ? DONE : SILENCE;
        return errno == EINTR ? INTERRUPTED : SYSTEM - errno;
    }
    if (!size) return CLOSED;
    self->received_size += size;
    if (!throws) return consume(all, self, received, size, now_ns());
    self->left -= size;
    if (!self->left) answered(all, self, now_ns());
    return DONE;
}

/* Open loop: whatever is due by now may leave. Returns the time until the next is due. */
static int64_t release_due(load *all, uint64_t now) {
    while (all->scheduled < all->requests) {
        uint64_t due = all->began + (uint64_t)(all->scheduled * all->interval_ns);
        if (due > now) return (int64_t)(due - now);
        all->streams[all->scheduled++ % all->count].allowed++;
    }
    return (int64_t)SILENCE_S_MAX * 1000000000;
}

static int step(load *all, struct pollfd *polled) {
    int64_t wait_ns = (int64_t)SILENCE_S_MAX * 1000000000;
    if (all->interval_ns) {
        uint64_t now = now_ns();
        wait_ns = release_due(all, now);
        for (int64_t each = 0; each < all->count; each++) {
            int status = send_allowed(all, &all->streams[each], now);
            if (status) return status;
        }
    } else if (all->count == 1 && !all->streams[0].ssl && !all->streams[0].unsent_size) {
        int status = receive(all, &all->streams[0], 0);
        return status ? status : send_allowed(all, &all->streams[0], now_ns());
    }
    for (int64_t each = 0; each < all->count; each++)
        polled[each].events = POLLIN | (all->streams[each].unsent_size ? POLLOUT : 0);
    struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
    int ready = ppoll(polled, all->count, &wait, NULL);
    if (ready < 0) return errno == EINTR ? INTERRUPTED : SYSTEM - errno;
    if (!ready && all->scheduled >= all->requests) return SILENCE;
    for (int64_t each = 0; ready > 0 && each < all->count; each++) {
        stream *self = &all->streams[each];
        if (!polled[each].revents) continue;
        ready--;
        int status = polled[each].revents & ~POLLOUT ? receive(all, self, MSG_DONTWAIT) : DONE;
        if (!status) status = send_allowed(all, self, now_ns());
        if (status) return status;
    }
    return DONE;
}

int load_begin(load *all) {
    struct timeval silence = {SILENCE_S_MAX, 0};
    if (all->count > STREAMS_MAX || all->error_position + 2 > HEAD_SIZE_MAX) return TOO_MANY;
    prctl(PR_SET_TIMERSLACK, 1);
    all->began = now_ns();
    if (!all->interval_ns) all->scheduled = all->requests;
    for (int64_t each = 0; each < all->count; each++) {
        stream *self = &all->streams[each];
        setsockopt(self->descriptor, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
        if (!all->interval_ns) self->allowed = all->in_flight;
        int status = send_allowed(all, self, all->began);
        if (status) return status;
    }
    return DONE;
}

/* Until every request is answered, or a signal wants Python's attention. */
int load_continue(load *all) {
    struct pollfd polled[STREAMS_MAX];
    for (int64_t each = 0; each < all->count; each++) polled[each].fd = (int)all->streams[each].descriptor;
    while (all->latencies_count < all->requests) {
        int status = step(all, polled);
        if (status) return status;
    }
    return DONE;
}

/* librdkafka's messages, counted and given back; the first field of each is its error. */
int64_t give_back(void (*destroy)(void *), void **messages, int64_t count) {
    int64_t good = 0;
    for (int64_t each = 0; each < count; each++) {
        good += *(int *)messages[each] == 0;
        destroy(messages[each]);
    }
    return good;
}
