"""Keeps others from opening files, until its standard input ends. Prints "ready" before.

    hold.py lease FILE    opening FILE without waiting fails (EAGAIN): a file system that says no
    hold.py stuck PATH... opening what lies in these directories does not return: a stuck disk

The second takes CAP_SYS_ADMIN. Exit status 77 where the system does not allow it.
"""

import ctypes
import fcntl
import os
import sys

NOT_HERE = 77


def lease(path):
    fd = os.open(path, os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    return fd


def stuck(paths):
    FAN_CLASS_CONTENT, FAN_MARK_ADD = 0x4, 0x1
    FAN_OPEN_PERM, FAN_EVENT_ON_CHILD = 0x10000, 0x08000000
    libc = ctypes.CDLL(None, use_errno=True)
    group = libc.fanotify_init(FAN_CLASS_CONTENT, os.O_RDONLY)
    if group < 0:
        raise OSError(ctypes.get_errno(), "fanotify_init")
    mask = ctypes.c_uint64(FAN_OPEN_PERM | FAN_EVENT_ON_CHILD)
    for path in paths:
        if libc.fanotify_mark(group, FAN_MARK_ADD, mask, -100, os.fsencode(path)) < 0:
            raise OSError(ctypes.get_errno(), "fanotify_mark")
    # Nobody answers the events; when this process ends, the kernel lets everybody go on.
    return group


try:
    held = lease(sys.argv[2]) if sys.argv[1] == "lease" else stuck(sys.argv[2:])
except OSError as error:
    print(error, file=sys.stderr)
    sys.exit(NOT_HERE)
print("ready", flush=True)
sys.stdin.read()
