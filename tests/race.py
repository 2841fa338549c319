"""Clients who all want the same plants."""

from concurrent.futures import ThreadPoolExecutor

from .serving import Server, post

Won = list[tuple[int, str]]


def race(servers: list[Server], clients: int, ids: int) -> Won:
    """Have clients create the same ids under names of their own; return who won which, by id."""

    def create_all(client: int) -> Won:
        name, won = f"of client {client}", []
        with servers[client % len(servers)].connect() as connection:
            for id in range(ids):
                connection.send(post(b'{"id":%d,"name":"%s"}' % (id, name.encode())))
                answer = connection.receive()
                if answer.status == 200:
                    won.append((id, name))
                else:
                    assert answer.error == 40004, answer
        return won

    with ThreadPoolExecutor(clients) as threads:
        return sorted(sum(threads.map(create_all, range(clients)), []))
