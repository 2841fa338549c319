"""Compares requests over a socket with what a user could choose instead.

    python -m benchmarks [--quick] [--rounds N] [--revisions REVISION ...] [COMPARISON ...]

COMPARISON is one of COMPARISONS; the default is all. The servers of a comparison run at the same
time, on one core, each from its own environment in .venv-benchmarks. wrk, nginx and PostgreSQL run
on the other core. In each round, each server gets a burst of one second of each kind of requests,
one burst after another. So the speed of the machine, which changes from minute to minute, does not
decide. The figures are medians over the rounds, and each ratio is that of two bursts of one round.

With --revisions, plantstore is compared with itself in these revisions instead.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psutil

from tests.support import databases
from tests.support.databases import Place
from tests.support.front import front
from tests.support.serving import ROOT, free_port, listening
from tests.support.waiting import wait_until

HERE = Path(__file__).parent
CLIENTS = 32  # Concurrent connections of wrk.
WARM_UP = 2  # Seconds of creates. They make the plants that are read.
TOKEN = "s3cret"
GUNICORN = "gunicorn --log-level warning -b 127.0.0.1:{port}"
SAME_GUNICORN = f"{GUNICORN} -c benchmarks/peers/gunicorn.conf.py benchmarks.peers."
GRANIAN = "granian --log-level error --port {port} --interface wsgi --blocking-threads 8 "
UVICORN = "uvicorn --no-access-log --log-level warning --port {port} benchmarks.peers."
# Plain HTTP and kept connections, so that nginx is not what is measured.
NGINX = {
    " ssl;": ";",
    "limit_req zone=requests burst=200 nodelay;": "",
    "limit_conn connections 100;": "",
    "#server 192.0.2.2:8000 max_fails=0;": f"keepalive {CLIENTS};",
    # The clients decide whether it is another id each time.
    "X-Request-ID $request_id;": "X-Request-ID $http_x_request_id;",
    "proxy_connect_timeout 2s;": 'proxy_http_version 1.1; proxy_set_header Connection "";',
}
# The plants of a server have the ids above a multiple of _SERVER, those of a burst above a
# multiple of _BURST: servers may share a table.
_SERVER, _BURST = 10**10, 10**6


class Server(NamedTuple):
    """An application: its command, its packages in peers/PACKAGES.txt, its store, its folder."""

    name: str
    command: str
    packages: str
    store: str = "memory"
    folder: Path = ROOT


class Kind(NamedTuple):
    """A kind of requests: its name in requests.lua, and that of the kind with repeated heads."""

    name: str
    script: str
    repeated: str = ""
    through_nginx: bool = False


OURS = Server("plantstore", GUNICORN, "plantstore")
CREATE = Kind("create, the same head", "create")
KINDS = (
    CREATE,
    Kind("create", "create_with_id", CREATE.name),
    Kind("create through nginx, the same head", "create", through_nginx=True),
    Kind("create through nginx", "create_with_id", "create through nginx, the same head", True),
    Kind("creates and reads through nginx", "create_and_read", through_nginx=True),
    Kind("create, a connection each", "create_and_close"),
    Kind("401", "refused_401"),
    Kind("400", "refused_400"),
    Kind("read, the same plant", "read_same"),
    Kind("read", "read", "read, the same plant"),
    Kind("page of 100, the same", "page_same"),
    Kind("page of 100", "page", "page of 100, the same"),
)
#: The servers of each comparison, and the kinds of requests that they get.
COMPARISONS: dict[str, tuple[Sequence[Server], Sequence[Kind]]] = {
    "requests": (
        (
            OURS,
            Server("FastAPI, uvicorn", UVICORN + "fastapi:app", "fastapi"),
            Server("Falcon and marshmallow", SAME_GUNICORN + "falcon:app", "falcon"),
            Server("flask-smorest", SAME_GUNICORN + "smorest:app", "smorest"),
        ),
        KINDS,
    ),
    "others": (
        (
            OURS,
            Server("with a line for each plant", f"{GUNICORN} --log-level debug", "plantstore"),
            Server("with metrics", f"{GUNICORN} --env PLANTSTORE_METRICS=1", "plantstore"),
            Server("plantstore, granian", GRANIAN + "wsgi:app", "plantstore_granian"),
            Server("APIFlask", SAME_GUNICORN + "apiflask:app", "apiflask"),
            Server("Flask and marshmallow", SAME_GUNICORN + "plain_flask:app", "plain_flask"),
            Server("Falcon, granian", GRANIAN + "benchmarks.peers.falcon:app", "falcon_granian"),
            Server("Litestar, uvicorn", UVICORN + "litestar:app", "litestar"),
            Server("Django Ninja", SAME_GUNICORN + "ninja:app", "ninja"),
            Server("constant bytes, Flask", SAME_GUNICORN + "bare_flask:app", "plain_flask"),
            Server("constant bytes, WSGI", SAME_GUNICORN + "bare:app", "plain_flask"),
        ),
        (CREATE,),
    ),
    "sqlite": (
        (
            OURS._replace(store="sqlite"),
            Server("with a write-ahead log", GUNICORN, "plantstore", "sqlite_wal"),
            Server("FastAPI, uvicorn", UVICORN + "fastapi_sql:app", "fastapi", "sqlite"),
        ),
        (CREATE,),
    ),
    "postgresql": (
        (
            OURS._replace(store="postgresql"),
            Server("FastAPI, uvicorn", UVICORN + "fastapi_sql:app", "fastapi", "postgresql"),
            Server("Falcon", SAME_GUNICORN + "falcon_sql:app", "falcon_sql", "postgresql"),
            Server("flask-smorest", SAME_GUNICORN + "smorest_sql:app", "smorest_sql", "postgresql"),
        ),
        (CREATE,),
    ),
}


class Result(NamedTuple):
    """The figures of a burst: requests per second, CPU µs per request, milliseconds."""

    rate: float
    cpu: float
    p50: float
    p99: float


class Running(NamedTuple):
    """A server that runs: its processes, its URL, that of nginx in front of it, its first id."""

    processes: list[psutil.Process]
    url: str
    nginx: str
    first: int

    def burst(self, kind: Kind, number: int) -> Result:
        """Send requests for a second; check that each is accepted, or refused."""
        begins = 0 if kind.script.startswith(("read", "page")) else number * _BURST
        before = self.cpu()
        url = self.nginx if kind.through_nginx else self.url
        counted = load(url, 1, kind.script, self.first + begins)
        answers = counted["answers"]
        refused = answers if kind.script.startswith("refused") else 0
        assert counted["refused"] == refused, (self, kind, counted)
        cpu = (self.cpu() - before) / answers * 1e6
        return Result(answers / counted["seconds"], cpu, counted["p50"], counted["p99"])

    def cpu(self) -> float:
        """Return the CPU time that the processes have used, in seconds."""
        return sum(sum(process.cpu_times()[:2]) for process in self.processes)


Results = dict[str, dict[str, list[Result]]]  # By kind and server; one for each round.


def environment(packages: str) -> Path:
    """Return the bin folder of an environment with these packages; create it if necessary."""
    files = (HERE / "peers" / f"{packages}.txt", ROOT / "requirements.txt")
    pinned = "".join(file.read_text() for file in files)
    folder = ROOT / ".venv-benchmarks" / packages
    made = folder / "pinned.txt"
    if not made.exists() or made.read_text() != pinned:
        python = [sys.executable, "-m"]
        pip = f"install -q -r benchmarks/peers/{packages}.txt".split()
        subprocess.run([*python, "venv", "--clear", "--without-pip", folder], check=True)
        subprocess.run([*python, "pip", "--python", folder, *pip], cwd=ROOT, check=True)
        made.write_text(pinned)
    return folder / "bin"


@contextmanager
def served(server: Server, place: Place, number: int) -> Iterator[Running]:
    """Serve an application on the first core, and nginx in front of it on this one."""
    url = place.site_url
    asynchronous = url.replace("psycopg:", "asyncpg:").replace("sqlite:", "sqlite+aiosqlite:")
    settings = {
        "PLANTSTORE_TOKENS": TOKEN,
        "PLANTSTORE_STORE": place.url,
        "PLANTSTORE_OPERATIONS": "create,read,list",
        "DATABASE_URL": url,
        "ASYNC_DATABASE_URL": asynchronous,
    }
    port, first = free_port(), number * _SERVER
    program, *arguments = server.command.format(port=port).split()
    with subprocess.Popen(
        ["taskset", "-c", "0", environment(server.packages) / program, *arguments],
        cwd=server.folder,
        env={**os.environ, **settings},
        stderr=subprocess.DEVNULL if "debug" in arguments else None,  # A terminal is slow.
    ) as process:
        try:
            wait_until(lambda: listening(port) or process.poll() is not None)
            assert process.poll() is None, f"{server.name} did not start"
            load(f"http://127.0.0.1:{port}", WARM_UP, "create", first)
            main = psutil.Process(process.pid)
            processes = [main, *main.children(recursive=True)]
            with front(port, NGINX) as proxy:
                urls = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{proxy.port}/garden"
                yield Running(processes, *urls, first)
        finally:
            process.terminate()


def load(url: str, seconds: int, kind: str, first: int) -> dict[str, float]:
    """Send requests of a kind of requests.lua; return the counts and percentiles of wrk."""
    wrk = f"wrk -t1 -c{CLIENTS} -d{seconds}s --timeout 30s -s".split()
    command = [*wrk, str(HERE / "requests.lua"), url, "--", kind, str(first)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    counted: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert counted["lost"] == 0, counted
    return counted


def compare(servers: Sequence[Server], kinds: Sequence[Kind], rounds: int) -> Results:
    """Measure each server with each kind of requests, in bursts that alternate."""
    results: Results = {kind.name: {server.name: [] for server in servers} for kind in kinds}
    numbers = count(1)
    with ExitStack() as running:
        stores = {server.store for server in servers}
        places = {name: running.enter_context(getattr(databases, name)()) for name in stores}
        started = {
            server.name: running.enter_context(served(server, places[server.store], number))
            for number, server in enumerate(servers)
        }
        for _ in range(rounds):
            for kind in kinds:
                for name, server in started.items():
                    results[kind.name][name].append(server.burst(kind, next(numbers)))
    return results


def show(title: str, kinds: Sequence[Kind], results: Results) -> None:
    """Print a table. The ratios compare each server with the first one: more than 1 is slower."""
    print(f"\n| {title} | requests/s | ratio | CPU µs | CPU ratio | head | p50 ms | p99 ms |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in kinds:
        first = next(iter(results[kind.name].values()))
        for name, bursts in results[kind.name].items():
            rate, cpu, p50, p99 = map(statistics.median, zip(*bursts, strict=True))
            slower = median(first, bursts, lambda ours, theirs: ours.rate / theirs.rate)
            dearer = median(first, bursts, lambda ours, theirs: theirs.cpu / ours.cpu)
            print(
                f"| {kind.name}: {name} | {rate:,.0f} | {slower:.2f} | {cpu:.0f} | {dearer:.2f}"
                f" | {head(kind, results, name)} | {p50:.1f} | {p99:.1f} |"
            )


def head(kind: Kind, results: Results, name: str) -> str:
    """Return the share of the CPU time that a request takes less if its head repeats."""
    if not kind.repeated:
        return ""
    pair = results[kind.repeated][name], results[kind.name][name]
    return f"{median(*pair, lambda repeated, other: 1 - repeated.cpu / other.cpu):.0%}"


def median(
    one: list[Result], other: list[Result], figure: Callable[[Result, Result], float]
) -> float:
    """Return the median of a figure of two bursts of the same round."""
    return statistics.median(map(figure, one, other))


def check_out(revision: str, folder: Path) -> Server:
    """Return plantstore in another revision, with its files in a new folder."""
    target = folder / revision
    target.mkdir()
    archive = subprocess.run(["git", "archive", revision], stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", target], input=archive.stdout, check=True)
    return OURS._replace(name=revision, folder=target)


def main() -> None:
    """Measure the chosen comparisons and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("comparisons", nargs="*", metavar="COMPARISON", choices=[*COMPARISONS, []])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", dest="rounds", action="store_const", const=1)
    parser.add_argument("--revisions", nargs="+", metavar="REVISION", default=[])
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        revisions = [check_out(revision, Path(folder)) for revision in options.revisions]
        chosen = {name: COMPARISONS[name] for name in options.comparisons or COMPARISONS}
        if revisions:
            chosen = {"revisions": ([OURS, *revisions], KINDS)}
        packages = {server.packages for servers, _ in chosen.values() for server in servers}
        with ThreadPoolExecutor() as threads:
            list(threads.map(environment, packages))
        os.sched_setaffinity(0, {1})
        for title, (servers, kinds) in chosen.items():
            show(title, kinds, compare(servers, kinds, options.rounds))


if __name__ == "__main__":
    main()
