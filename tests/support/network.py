"""A network of one test alone, whose packets have the size of those of Ethernet."""

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

# Numbers of Linux: unshare(2), netdevice(7).
_CLONE_NEWNET, _SIOCSIFFLAGS, _SIOCSIFMTU, _IFF_UP = 0x40000000, 0x8914, 0x8922, 1


def in_small_packets(run: Callable[[], None]) -> None:
    """Run a function in a thread that has a network of its own. So have programs that it starts.

    The loopback of this machine has packets of 64 KiB, and so takes a whole response at once.
    """
    with ThreadPoolExecutor(1, initializer=_enter_network) as thread:
        thread.submit(run).result()


def _enter_network() -> None:
    system = ctypes.CDLL(None, use_errno=True)
    if system.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFMTU, struct.pack("16si20x", b"lo", 1500))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
