/* A thread that sends parts of files to sockets without the interpreter's lock: the compiled form of file_sender.py,
 * which says what the methods do. Linux only.
 *
 * The event loop and the thread share two lists, under one mutex that is held for a few instructions: the orders of the
 * loop, and the jobs that have ended. An eventfd each tells the other side. All else belongs to the thread: the epoll,
 * the sockets that it was given, and their jobs. The thread touches no Python object; a job holds references to what
 * it sends, which the loop drops when it takes the ended job.
 */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

enum { COLD = -1, SHORT = -2 };

#ifdef __linux__
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_MAX = 64, SOCKETS_FIRST = 64, SAMPLE_DISTANCE = 128 << 10 };
#define CACHED_FOR_NS 1000000000LL

typedef struct {
    const char *data; /* NULL: it is a part of a file */
    int file;
    int64_t position, size;
} piece;

typedef struct job {
    struct job *next;
    int socket;
    int status;            /* of an ended job: 0, COLD, SHORT, or an errno */
    int is_release;        /* no job, but the order to close the socket */
    int64_t sent;          /* bytes in all */
    int64_t sent_of_first; /* bytes of pieces[first] */
    int64_t looked_at_ns;  /* the time at which the page cache was probed */
    Py_ssize_t first, count;
    PyObject *owner, *kept;
    Py_buffer *views;
    Py_ssize_t views_count;
    piece pieces[];
} job;

typedef struct {
    job *head, **end;
} list;

typedef struct {
    job *open;
    int is_watched, is_ready;
} slot;

typedef struct {
    PyObject_HEAD
    int64_t turn_size_max;
    int epoll, ordered, ended_event;
    int is_running, is_stopping;
    pthread_t thread;
    pthread_mutex_t mutex;
    list orders, ended; /* under the mutex */
    slot *slots;        /* by socket; the thread's own, as all that follows */
    int slots_count;
    list ready;         /* the jobs that have a turn */
} FileSender;

static void clear_list(list *self) {
    self->head = NULL;
    self->end = &self->head;
}

static void append(list *self, job *each) {
    each->next = NULL;
    *self->end = each;
    self->end = &each->next;
}

static list take_all(list *from) {
    list taken = *from; /* is only walked */
    clear_list(from);
    return taken;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void tell(int event) {
    uint64_t one = 1;
    ssize_t ignored = write(event, &one, sizeof one); /* fails only if the event is set already */
    (void)ignored;
}

/* Add to a list of both sides, and tell the other one if it was empty. */
static void post(FileSender *self, list *to, int event, job *each) {
    pthread_mutex_lock(&self->mutex);
    int was_empty = to->head == NULL;
    append(to, each);
    pthread_mutex_unlock(&self->mutex);
    if (was_empty)
        tell(event);
}

static list take(FileSender *self, list *from) {
    pthread_mutex_lock(&self->mutex);
    list taken = take_all(from);
    pthread_mutex_unlock(&self->mutex);
    return taken;
}

/* Sending: in the thread */

/* Whether the bytes are in the page cache, as `LocalFile.is_cached`. */
static int is_cached(int file, int64_t position, int64_t size) {
    char byte;
    struct iovec sample = {&byte, 1};
    int64_t last = position + size - 1;
    for (int64_t at = position;; at = at + SAMPLE_DISTANCE < last ? at + SAMPLE_DISTANCE : last) {
        ssize_t got = preadv2(file, &sample, 1, at, RWF_NOWAIT);
        if (got < 0)
            return errno != EAGAIN;
        if (got == 0 || at == last)
            return 1; /* a file that is too short shows when it is sent */
    }
}

static ssize_t send_bytes(const job *self, const piece *next) {
    int is_last = self->first + 1 == self->count;
    return send(self->socket, next->data + self->sent_of_first, next->size - self->sent_of_first,
                MSG_DONTWAIT | MSG_NOSIGNAL | (is_last ? 0 : MSG_MORE));
}

static ssize_t send_file(job *self, const piece *next, int64_t size_max) {
    off_t position = next->position + self->sent_of_first;
    int64_t wanted = next->size - self->sent_of_first;
    if (wanted > size_max)
        wanted = size_max;
    int64_t now = now_ns();
    if (now - self->looked_at_ns > CACHED_FOR_NS) {
        self->looked_at_ns = now;
        if (!is_cached(next->file, position, wanted)) {
            self->status = COLD;
            return 0;
        }
    }
    ssize_t sent = sendfile(self->socket, next->file, &position, wanted);
    if (sent == 0)
        self->status = SHORT;
    return sent;
}

typedef enum { WAITS, HAS_MORE, ENDED } progress;

/* One turn. */
static progress send_some(job *self, int64_t left) {
    while (left > 0 && self->first < self->count) {
        const piece *next = &self->pieces[self->first];
        ssize_t sent = next->data != NULL ? send_bytes(self, next) : send_file(self, next, left);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            return WAITS;
        if (sent < 0)
            self->status = errno;
        if (self->status)
            return ENDED;
        self->sent += sent;
        self->sent_of_first += sent;
        left -= sent;
        if (self->sent_of_first == next->size) {
            self->sent_of_first = 0;
            self->first++;
        }
    }
    return self->first == self->count ? ENDED : HAS_MORE;
}

static void end_job(FileSender *self, job *each) {
    self->slots[each->socket].open = NULL;
    post(self, &self->ended, self->ended_event, each);
}

static void fail_job(FileSender *self, job *each, int status) {
    each->status = status;
    end_job(self, each);
}

static void make_ready(FileSender *self, int socket) {
    slot *mine = &self->slots[socket];
    if (mine->open != NULL && !mine->is_ready) {
        mine->is_ready = 1;
        append(&self->ready, mine->open);
    }
}

static int has_slot(FileSender *self, int socket) {
    if (socket < self->slots_count)
        return 1;
    int count = self->slots_count ? self->slots_count : SOCKETS_FIRST;
    while (count <= socket)
        count *= 2;
    slot *grown = realloc(self->slots, count * sizeof *grown);
    if (grown == NULL)
        return 0;
    memset(grown + self->slots_count, 0, (count - self->slots_count) * sizeof *grown);
    self->slots = grown;
    self->slots_count = count;
    return 1;
}

static void begin_job(FileSender *self, job *each) {
    if (!has_slot(self, each->socket)) {
        each->status = ENOMEM;
        post(self, &self->ended, self->ended_event, each);
        return;
    }
    slot *mine = &self->slots[each->socket];
    mine->open = each;
    if (!mine->is_watched) {
        struct epoll_event event = {.events = EPOLLOUT | EPOLLET, .data.fd = each->socket};
        if (epoll_ctl(self->epoll, EPOLL_CTL_ADD, each->socket, &event) < 0) {
            fail_job(self, each, errno);
            return;
        }
        mine->is_watched = 1;
    }
    make_ready(self, each->socket);
}

/* The connection is gone. A job that has a turn leaves the list of those in `give_turns`. */
static void release(FileSender *self, int socket) {
    if (has_slot(self, socket)) {
        slot *mine = &self->slots[socket];
        if (mine->open != NULL) {
            if (mine->is_ready) {
                list others = take_all(&self->ready);
                for (job *each = others.head, *next; each != NULL; each = next) {
                    next = each->next;
                    if (each != mine->open)
                        append(&self->ready, each);
                }
            }
            fail_job(self, mine->open, ECANCELED);
        }
        if (mine->is_watched) /* close(2) alone does not: the transport has another descriptor of the same socket */
            epoll_ctl(self->epoll, EPOLL_CTL_DEL, socket, NULL);
        *mine = (slot){0};
    }
    close(socket);
}

static void take_orders(FileSender *self) {
    uint64_t ignored_count;
    ssize_t ignored = read(self->ordered, &ignored_count, sizeof ignored_count);
    (void)ignored;
    list orders = take(self, &self->orders);
    for (job *each = orders.head, *next; each != NULL; each = next) {
        next = each->next;
        if (each->is_release) {
            release(self, each->socket);
            free(each);
        } else
            begin_job(self, each);
    }
}

static void give_turns(FileSender *self) {
    list turns = take_all(&self->ready);
    for (job *each = turns.head, *next; each != NULL; each = next) {
        next = each->next;
        self->slots[each->socket].is_ready = 0;
        progress made = send_some(each, self->turn_size_max);
        if (made == ENDED)
            end_job(self, each);
        else if (made == HAS_MORE)
            make_ready(self, each->socket);
    }
}

static void *run(void *argument) {
    FileSender *self = argument;
    struct epoll_event events[EVENTS_MAX];
    while (!__atomic_load_n(&self->is_stopping, __ATOMIC_ACQUIRE)) {
        int count = epoll_wait(self->epoll, events, EVENTS_MAX, self->ready.head != NULL ? 0 : -1);
        for (int each = 0; each < count; each++) {
            if (events[each].data.fd == self->ordered)
                take_orders(self);
            else if (events[each].data.fd < self->slots_count)
                make_ready(self, events[each].data.fd);
        }
        give_turns(self);
    }
    take_orders(self);
    for (int socket = 0; socket < self->slots_count; socket++)
        if (self->slots[socket].open != NULL)
            fail_job(self, self->slots[socket].open, ECANCELED);
    return NULL;
}

/* The methods: in the event loop */

static void free_job(job *self) {
    for (Py_ssize_t each = 0; each < self->views_count; each++)
        PyBuffer_Release(&self->views[each]);
    PyMem_Free(self->views);
    Py_XDECREF(self->owner);
    Py_XDECREF(self->kept);
    free(self);
}

static int close_all(FileSender *self) {
    int *descriptors[] = {&self->epoll, &self->ordered, &self->ended_event};
    for (int each = 0; each < 3; each++) {
        if (*descriptors[each] >= 0)
            close(*descriptors[each]);
        *descriptors[each] = -1;
    }
    return -1;
}

static int start(FileSender *self) {
    sigset_t all, before;
    struct epoll_event event = {.events = EPOLLIN};
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->ordered = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    self->ended_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    event.data.fd = self->ordered;
    if (self->epoll < 0 || self->ordered < 0 || self->ended_event < 0 ||
        epoll_ctl(self->epoll, EPOLL_CTL_ADD, self->ordered, &event) < 0)
        return PyErr_SetFromErrno(PyExc_OSError), close_all(self);
    sigfillset(&all); /* signals are for the thread of the interpreter */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&self->thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return errno = error, PyErr_SetFromErrno(PyExc_OSError), close_all(self);
    pthread_setname_np(self->thread, "file-sender");
    self->is_running = 1;
    return 0;
}

static int initialize(FileSender *self, PyObject *arguments, PyObject *names) {
    static char *words[] = {"turn_size_max", NULL};
    long long turn_size_max;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "L:FileSender", words, &turn_size_max))
        return -1;
    if (self->is_running || self->is_stopping)
        return PyErr_SetString(PyExc_RuntimeError, "it is started once"), -1;
    self->turn_size_max = turn_size_max;
    clear_list(&self->orders);
    clear_list(&self->ended);
    clear_list(&self->ready);
    self->epoll = self->ordered = self->ended_event = -1;
    pthread_mutex_init(&self->mutex, NULL);
    return start(self);
}

static int take_piece(job *self, PyObject *item, piece *into) {
    PyObject *chunk;
    long long position, size;
    if (!PyArg_ParseTuple(item, "OiLL:send", &chunk, &into->file, &position, &size))
        return -1;
    into->position = position;
    into->size = size;
    if (into->file >= 0)
        return 0;
    Py_buffer *view = &self->views[self->views_count];
    if (PyObject_GetBuffer(chunk, view, PyBUF_SIMPLE) < 0)
        return -1;
    self->views_count++;
    into->data = view->buf;
    into->size = view->len;
    return 0;
}

static PyObject *send_pieces(FileSender *self, PyObject *arguments) {
    PyObject *owner, *pieces;
    int socket;
    if (!PyArg_ParseTuple(arguments, "OiO!:send", &owner, &socket, &PyList_Type, &pieces))
        return NULL;
    if (!self->is_running)
        return PyErr_SetString(PyExc_RuntimeError, "the thread has stopped"), NULL;
    Py_ssize_t count = PyList_GET_SIZE(pieces);
    job *made = calloc(1, sizeof *made + count * sizeof *made->pieces);
    if (made == NULL)
        return PyErr_NoMemory();
    made->socket = socket;
    made->looked_at_ns = now_ns();
    made->owner = Py_NewRef(owner);
    made->kept = Py_NewRef(pieces);
    made->views = PyMem_Calloc(count, sizeof *made->views);
    if (made->views == NULL)
        return free_job(made), PyErr_NoMemory();
    for (; made->count < count; made->count++)
        if (take_piece(made, PyList_GET_ITEM(pieces, made->count), &made->pieces[made->count]) < 0)
            return free_job(made), NULL;
    post(self, &self->orders, self->ordered, made);
    Py_RETURN_NONE;
}

static PyObject *release_socket(FileSender *self, PyObject *argument) {
    int socket = (int)PyLong_AsLong(argument);
    if (socket == -1 && PyErr_Occurred())
        return NULL;
    if (!self->is_running) {
        close(socket);
        Py_RETURN_NONE;
    }
    job *order = calloc(1, sizeof *order);
    if (order == NULL)
        return PyErr_NoMemory();
    order->socket = socket;
    order->is_release = 1;
    post(self, &self->orders, self->ordered, order);
    Py_RETURN_NONE;
}

static PyObject *take_ended(FileSender *self, PyObject *Py_UNUSED(ignored)) {
    uint64_t count;
    ssize_t ignored = read(self->ended_event, &count, sizeof count);
    (void)ignored;
    PyObject *told = PyList_New(0);
    if (told == NULL)
        return NULL;
    list ended = take(self, &self->ended);
    for (job *each = ended.head, *next; each != NULL; each = next) {
        next = each->next;
        PyObject *item = Py_BuildValue("(OLi)", each->owner, (long long)each->sent, each->status);
        if (item == NULL || PyList_Append(told, item) < 0)
            Py_CLEAR(told);
        Py_XDECREF(item);
        free_job(each);
        if (told == NULL)
            return NULL;
    }
    return told;
}

static PyObject *stop(FileSender *self, PyObject *Py_UNUSED(ignored)) {
    if (self->is_running) {
        self->is_running = 0;
        __atomic_store_n(&self->is_stopping, 1, __ATOMIC_RELEASE);
        tell(self->ordered);
        Py_BEGIN_ALLOW_THREADS
        pthread_join(self->thread, NULL);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static PyObject *fileno_of(FileSender *self, PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromLong(self->ended_event);
}

static void deallocate(FileSender *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(stop(self, NULL));
    if (self->ended.end != NULL) {
        for (job *each = self->ended.head, *next; each != NULL; each = next) {
            next = each->next;
            free_job(each);
        }
        close_all(self);
        pthread_mutex_destroy(&self->mutex);
    }
    free(self->slots);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"send", (PyCFunction)send_pieces, METH_VARARGS, NULL},
    {"release", (PyCFunction)release_socket, METH_O, NULL},
    {"ended", (PyCFunction)take_ended, METH_NOARGS, NULL},
    {"fileno", (PyCFunction)fileno_of, METH_NOARGS, NULL},
    {"stop", (PyCFunction)stop, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_init, initialize},
    {Py_tp_dealloc, deallocate},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec type_spec = {"file_sender.FileSender", sizeof(FileSender), 0, Py_TPFLAGS_DEFAULT, type_slots};

static int add_type(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &type_spec, NULL);
    int result = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return result;
}
#endif

static int execute(PyObject *module) {
#ifdef __linux__
    if (add_type(module) < 0 || PyModule_AddIntConstant(module, "HAS_EPOLL", 1) < 0)
        return -1;
#else
    if (PyModule_AddIntConstant(module, "HAS_EPOLL", 0) < 0)
        return -1;
#endif
    int result = PyModule_AddIntConstant(module, "COLD", COLD);
    return result < 0 ? result : PyModule_AddIntConstant(module, "SHORT", SHORT);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT, .m_name = "file_sender", .m_slots = module_slots};

PyMODINIT_FUNC PyInit_file_sender(void) {
    return PyModuleDef_Init(&definition);
}
