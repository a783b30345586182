/* The floor of a fetch: answers each request with the same head and so many bytes of a file, by sendfile(2), and does
 * nothing else. One thread, one epoll.
 *
 *     sender PORT FILE SIZE SEND_BUFFER ONCE_MAX
 *
 * SEND_BUFFER: SO_SNDBUF of the connections, 0 for the kernel's own. ONCE_MAX: the most bytes of a connection before
 * the next one has its turn.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024
#define HEAD_SIZE 128
#define RECEIVE_SIZE 65536

struct connection {
    int64_t asked;      /* requests that are not answered */
    int64_t sent;       /* bytes of the first answer, its head included */
    int64_t offset;     /* of the file, for the first answer */
    int64_t frame_left; /* bytes of a request that have not arrived */
    uint8_t prefix[4];
    int prefix_size;
    int is_watched;
};

static struct connection connections[CONNECTIONS_MAX];
static uint8_t head[HEAD_SIZE];
static int file, epoll;
static int64_t file_size, size, once_max;

static void watch(int descriptor, struct connection *self, int writes) {
    struct epoll_event event = {.events = EPOLLIN | (writes ? EPOLLOUT : 0), .data.fd = descriptor};
    if (self->is_watched == writes) return;
    self->is_watched = writes;
    epoll_ctl(epoll, EPOLL_CTL_MOD, descriptor, &event);
}

/* 0, or -1 where the connection is gone. */
static int answer(int descriptor, struct connection *self) {
    int64_t left = once_max;
    while (self->asked && left > 0) {
        ssize_t sent;
        if (self->sent < HEAD_SIZE) {
            sent = send(descriptor, head + self->sent, HEAD_SIZE - self->sent, MSG_MORE | MSG_NOSIGNAL);
        } else {
            off_t at = self->offset + self->sent - HEAD_SIZE;
            int64_t wanted = HEAD_SIZE + size - self->sent;
            sent = sendfile(descriptor, file, &at, wanted < left ? wanted : left);
        }
        if (sent < 0 && errno == EAGAIN) break;
        if (sent <= 0) return -1;
        self->sent += sent;
        left -= sent;
        if (self->sent == HEAD_SIZE + size) {
            self->sent = 0;
            self->asked--;
            self->offset = (self->offset + size) % (file_size - size + 1);
        }
    }
    watch(descriptor, self, self->asked > 0);
    return 0;
}

static int take(int descriptor, struct connection *self) {
    uint8_t data[RECEIVE_SIZE];
    ssize_t got = recv(descriptor, data, sizeof data, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got <= 0) return -1;
    for (ssize_t at = 0; at < got;) {
        if (self->frame_left) {
            int64_t part = got - at < self->frame_left ? got - at : self->frame_left;
            at += part;
            self->frame_left -= part;
            self->asked += !self->frame_left;
            continue;
        }
        self->prefix[self->prefix_size++] = data[at++];
        if (self->prefix_size == 4) {
            uint32_t length;
            memcpy(&length, self->prefix, 4);
            self->frame_left = ntohl(length);
            self->prefix_size = 0;
        }
    }
    return answer(descriptor, self);
}

int main(int count, char **words) {
    if (count != 6) return fprintf(stderr, "sender PORT FILE SIZE SEND_BUFFER ONCE_MAX\n"), 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size = atoll(words[3]);
    once_max = atoll(words[5]);
    int buffer = atoi(words[4]), yes = 1, listening = socket(AF_INET, SOCK_STREAM, 0);
    struct stat status;
    file = open(words[2], O_RDONLY);
    if (file < 0 || fstat(file, &status) || status.st_size < size) return perror(words[2]), 1;
    file_size = status.st_size;
    uint32_t length = htonl(HEAD_SIZE - 4 + size);
    memcpy(head, &length, 4);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (buffer) setsockopt(listening, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 64)) return perror("bind"), 1;
    epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening}, events[64];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &event);
    for (;;) {
        int found = epoll_wait(epoll, events, 64, -1);
        for (int each = 0; each < found; each++) {
            int descriptor = events[each].data.fd;
            if (descriptor == listening) {
                int accepted = accept4(listening, NULL, NULL, SOCK_NONBLOCK);
                if (accepted < 0) continue;
                if (accepted >= CONNECTIONS_MAX) {
                    close(accepted);
                    continue;
                }
                setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                memset(&connections[accepted], 0, sizeof connections[accepted]);
                connections[accepted].offset = size * accepted % (file_size - size + 1);
                event.events = EPOLLIN;
                event.data.fd = accepted;
                epoll_ctl(epoll, EPOLL_CTL_ADD, accepted, &event);
                continue;
            }
            struct connection *self = &connections[descriptor];
            int gone = events[each].events & EPOLLIN ? take(descriptor, self) : answer(descriptor, self);
            if (gone) close(descriptor);
        }
    }
}
