"""curl.py LIBRARY CA HOST ADDRESS PORT: fetches https://HOST:PORT/ with curl's library, four times.

The first request may use HTTP/1.1 or HTTP/2, and the second only HTTP/3. The last two follow `alt-svc`, so
that only the last one knows about HTTP/3. Prints for each the status and curl's number for the protocol
(3: HTTP/2, 30: HTTP/3), or the error.
"""

import ctypes
import sys

library, authority, host, address, port = sys.argv[1:]
curl = ctypes.CDLL(library)
curl.curl_easy_init.restype = ctypes.c_void_p
curl.curl_easy_strerror.restype = ctypes.c_char_p
curl.curl_slist_append.restype = ctypes.c_void_p

URL, WRITE, CA_FILE, RESOLVE = 10002, 20011, 10065, 10203
TIMEOUT, FRESH_CONNECT, HTTP_VERSION, ALT_SVC_CONTROL = 13, 74, 84, 286
RESPONSE_CODE, USED_VERSION = 0x200002, 0x20002E
NEGOTIATED, HTTP3_ONLY = 0, 31
ALT_SVC_HTTP3 = 1 << 5

Write = ctypes.CFUNCTYPE(
    ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p
)
discard = Write(lambda data, size, count, context: size * count)


def client(version: int) -> ctypes.c_void_p:
    handle = ctypes.c_void_p(curl.curl_easy_init())
    addresses = f"{host}:{port}:{address}".encode()
    resolve = ctypes.c_void_p(curl.curl_slist_append(None, addresses))
    for option, value in [
        (URL, f"https://{host}:{port}/".encode()),
        (CA_FILE, authority.encode()),
        (RESOLVE, resolve),
        (WRITE, discard),
        (TIMEOUT, ctypes.c_long(30)),
        (FRESH_CONNECT, ctypes.c_long(1)),
        (HTTP_VERSION, ctypes.c_long(version)),
    ]:
        curl.curl_easy_setopt(handle, option, value)
    return handle


def fetch(handle: ctypes.c_void_p) -> str:
    code = curl.curl_easy_perform(handle)
    if code:
        return curl.curl_easy_strerror(code).decode()
    status, used = ctypes.c_long(), ctypes.c_long()
    curl.curl_easy_getinfo(handle, RESPONSE_CODE, ctypes.byref(status))
    curl.curl_easy_getinfo(handle, USED_VERSION, ctypes.byref(used))
    return f"{status.value} {used.value}"


curl.curl_global_init(ctypes.c_long(3))
for version in [NEGOTIATED, HTTP3_ONLY]:
    print(fetch(client(version)))
following = client(NEGOTIATED)
code = curl.curl_easy_setopt(following, ALT_SVC_CONTROL, ctypes.c_long(ALT_SVC_HTTP3))
if code:
    print(curl.curl_easy_strerror(code).decode())
for _ in range(2):
    print(fetch(following))
