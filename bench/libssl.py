"""TLS sessions for the compiled load generator, by calls of the libssl that Python's ssl module has loaded.

Python's sockets under TLS cannot be handed to C, and give a reply of 1 MiB in 64 pieces: the generator would be what is
measured. Only functions are used that OpenSSL 1.1.1 and 3 have.
"""

from __future__ import annotations

import ctypes
import re
import socket
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from bench.outcome import LoadFailed

TLS_1_2: Final = 0x0303
TLS_1_3: Final = 0x0304
READ_BUFFER_SIZE: Final = 256 << 10
"""The size of the read buffer. It has room for several TLS records, as the brokers' buffers do."""

_SET_MODE: Final = 33
_SET_READ_AHEAD: Final = 41
_SET_VERSION_MIN: Final = 123
_SET_VERSION_MAX: Final = 124
_SET_NAME: Final = 55
_HOST_NAME: Final = 0
_PARTIAL_WRITES_FROM_MOVING_BUFFERS: Final = 1 | 2
_VERIFY_PEER: Final = 1
_POINTER = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_LONG = ctypes.c_long
_SIGNATURES: Final = {
    "TLS_client_method": (_POINTER, ()),
    "SSL_CTX_new": (_POINTER, (_POINTER,)),
    "SSL_CTX_free": (None, (_POINTER,)),
    "SSL_CTX_ctrl": (_LONG, (_POINTER, ctypes.c_int, _LONG, _POINTER)),
    "SSL_CTX_set_cipher_list": (ctypes.c_int, (_POINTER, _TEXT)),
    "SSL_CTX_set_ciphersuites": (ctypes.c_int, (_POINTER, _TEXT)),
    "SSL_CTX_set_default_read_buffer_len": (None, (_POINTER, ctypes.c_size_t)),
    "SSL_CTX_load_verify_locations": (ctypes.c_int, (_POINTER, _TEXT, _TEXT)),
    "SSL_CTX_set_verify": (None, (_POINTER, ctypes.c_int, _POINTER)),
    "SSL_new": (_POINTER, (_POINTER,)),
    "SSL_free": (None, (_POINTER,)),
    "SSL_ctrl": (_LONG, (_POINTER, ctypes.c_int, _LONG, _POINTER)),
    "SSL_set_fd": (ctypes.c_int, (_POINTER, ctypes.c_int)),
    "SSL_set1_host": (ctypes.c_int, (_POINTER, _TEXT)),
    "SSL_connect": (ctypes.c_int, (_POINTER,)),
}


class TlsSuite(NamedTuple):
    """A version of TLS with one cipher suite, and the authority that verifies the node's certificate."""

    name: str
    version: int
    cipher: str
    """The name of the suite in OpenSSL."""
    java_cipher: str
    """The name of the suite in the settings of a broker."""
    authority: Path
    host: str = "localhost"


class TlsSession:
    """A connection whose handshake is complete."""

    def __init__(self, library: ctypes.CDLL, address: int) -> None:
        self.address = address
        self._library = library

    def free(self) -> None:
        """Free the session, before its socket is closed. No close_notify is sent: the connection ends
        with the socket.
        """
        self._library.SSL_free(self.address)


class LibSsl:
    """A TLS context for one suite."""

    def __init__(self, suite: TlsSuite) -> None:
        self._library = _loaded()
        self._host = suite.host.encode()
        self._context = context = self._library.SSL_CTX_new(self._library.TLS_client_method())
        library = self._library
        for command in (_SET_VERSION_MIN, _SET_VERSION_MAX):
            library.SSL_CTX_ctrl(context, command, suite.version, None)
        choose = library.SSL_CTX_set_ciphersuites if suite.version == TLS_1_3 else library.SSL_CTX_set_cipher_list
        if choose(context, suite.cipher.encode()) != 1:
            raise LoadFailed(f"libssl has no suite {suite.cipher}")
        if library.SSL_CTX_load_verify_locations(context, str(suite.authority).encode(), None) != 1:
            raise LoadFailed(f"libssl cannot read {suite.authority}")
        library.SSL_CTX_set_verify(context, _VERIFY_PEER, None)
        library.SSL_CTX_set_default_read_buffer_len(context, READ_BUFFER_SIZE)
        library.SSL_CTX_ctrl(context, _SET_MODE, _PARTIAL_WRITES_FROM_MOVING_BUFFERS, None)
        library.SSL_CTX_ctrl(context, _SET_READ_AHEAD, 1, None)

    def __del__(self) -> None:
        self._library.SSL_CTX_free(self._context)

    @property
    def functions(self) -> tuple[int | None, ...]:
        """The addresses of SSL_write_ex, SSL_read_ex and SSL_get_error."""
        names = ("SSL_write_ex", "SSL_read_ex", "SSL_get_error")
        return tuple(ctypes.cast(getattr(self._library, name), _POINTER).value for name in names)

    def session(self, connected: socket.socket) -> TlsSession:
        """Make the handshake on a connected socket, which is non-blocking afterwards. Raises `LoadFailed`."""
        library = self._library
        address: int = library.SSL_new(self._context)
        library.SSL_ctrl(address, _SET_NAME, _HOST_NAME, ctypes.cast(_TEXT(self._host), _POINTER))
        library.SSL_set1_host(address, self._host)
        library.SSL_set_fd(address, connected.fileno())
        if library.SSL_connect(address) != 1:
            library.SSL_free(address)
            raise LoadFailed("a TLS handshake failed")
        connected.setblocking(False)
        return TlsSession(library, address)


def _loaded() -> ctypes.CDLL:
    """Return the libssl that is loaded in this process, with its functions declared."""
    assert ssl.OPENSSL_VERSION_INFO >= (1, 1, 1)
    found = re.search(r"(/\S*libssl\S*\.so\S*)", Path("/proc/self/maps").read_text())
    if found is None:
        raise LoadFailed("Python's ssl module has no libssl of its own that could be called")
    library = ctypes.CDLL(found.group(1))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
