"""Hide what another system lacks, in each process of the environment that runs this.

``python tests/hidden.py macos`` writes a file that Python executes when it starts. So the names are
missing before anything is imported, in the processes of the tests too. The tests that need such a
name have the marker ``linux``.
"""

import sys
import sysconfig
from pathlib import Path

# The names of modules that Linux has and macOS lacks.
LINUX = {
    "os": "posix_fallocate posix_fadvise memfd_create eventfd pidfd_open sched_getaffinity"
    " copy_file_range splice fdatasync O_TMPFILE O_DIRECT getrandom",
    "select": "epoll EPOLLIN EPOLLOUT EPOLLONESHOT EPOLLERR EPOLLHUP EPOLLET EPOLLRDHUP",
    "signal": "pidfd_send_signal sigtimedwait sigwaitinfo",
    "socket": "TCP_KEEPIDLE TCP_USER_TIMEOUT TCP_QUICKACK TCP_DEFER_ACCEPT TCP_CORK SOCK_CLOEXEC"
    " SOCK_NONBLOCK",
}
# Those that Windows lacks too.
POSIX = {
    "os": "fork forkpty register_at_fork mkfifo fchown chown setsid killpg getpgid",
    "select": "poll",
    "signal": "SIGHUP SIGALRM SIGUSR1 SIGUSR2 SIGCHLD alarm setitimer pthread_kill",
    "socket": "SO_REUSEPORT",
}
MODULES = "fcntl resource pwd grp"


def line(system: str) -> str:
    """Return the line that hides what a system lacks."""
    hidden = [LINUX, POSIX] if system == "windows" else [LINUX]
    names = [(module, name) for it in hidden for module in it for name in it[module].split()]
    modules = MODULES.split() if system == "windows" else []
    return (
        f"import sys; [vars(__import__(module)).pop(name, None) for module, name in {names}];"
        f" sys.modules.update(dict.fromkeys({modules}))\n"
    )


if __name__ == "__main__":
    (Path(sysconfig.get_path("purelib")) / "hidden.pth").write_text(line(sys.argv[1]))
