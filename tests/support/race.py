"""Concurrent clients that create plants with the same ids."""

from concurrent.futures import ThreadPoolExecutor

from tests.support.serving import Server, post

# The id and the name of each plant that was acknowledged.
Created = list[tuple[int, str]]


def race(servers: list[Server], clients: int, ids: int) -> Created:
    """Let each client create the same ids under its name; return all that were acknowledged."""

    def create_all(client: int) -> Created:
        name, created = f"of client {client}", []
        with servers[client % len(servers)].connect() as connection:
            for id in range(ids):
                connection.send(post(b'{"id":%d,"name":"%s"}' % (id, name.encode())))
                response = connection.receive()
                if response.status == 200:
                    created.append((id, name))
                else:
                    assert response.error == 40004, response
        return created

    with ThreadPoolExecutor(clients) as threads:
        return sorted(sum(threads.map(create_all, range(clients)), []))
