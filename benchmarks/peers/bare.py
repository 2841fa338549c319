"""A minimal WSGI application: constant bytes, no token check, no store."""

ANSWER = b'{"name":"Monstera","tag":"indoor"}'
HEADERS = [("Content-Type", "application/json"), ("Content-Length", str(len(ANSWER)))]


def app(environ, start_response):
    environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    start_response("200 OK", HEADERS)
    return [ANSWER]
