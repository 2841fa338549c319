"""The time limits and the sizes of a SQL store."""

from ..stores.batches import CHARACTERS, PLANTS
from ..stores.deadline import OPERATION


class Limits:
    """Every time limit of a SQL store, of its drivers and of the database servers, in seconds.

    This is how the time of an operation is spent, at most::

        0.0       its request has arrived: to wait for a thread counts
        0.5, 1.0  a server ends the wait for a lock (PostgreSQL, MariaDB): the job is repeated
        2.0       a lane is stuck. If none has had a response, it is silence: most jobs are refused
        3.0       a driver ends its attempt to connect
        3.4       no further attempt begins after a conflict
        3.5       PostgreSQL ends a statement
        4.0       SQLite ends the wait for a lock
        4.5       the caller gives up
        5.0       its client has the response
    """

    operation: float = OPERATION
    table_check: float = 60.0  # The table is checked again after this time.

    # The lanes.
    #: A lane that is busy for so long is stuck.
    stuck: float = 2.0
    #: Between two probes during silence, or two lanes that cannot connect.
    probe: float = 1.0
    #: A lane that is stuck for so long is lost, and shut down. During silence, only the oldest one
    #: is, and the next one after the same time.
    lost: float = 30.0
    close: float = OPERATION  # close() waits so long until the idle connections are closed.
    look: float = 0.25  # How often a caller that waits looks whether it may go on.
    next_add: float = 0.001  # A lane waits so long for other adds, if its last group was larger.

    # Retries.
    #: The pause after attempt number N after a conflict is random, and at most N times this.
    pause: float = 0.02
    #: An attempt may wait so long for a lock. It does not begin if its caller gives up before that.
    attempt: float = 1.1

    # The drivers.
    connect: int = 3  # To connect to a server, or to one of several servers of a URL.
    connect_of_several: int = 2
    #: When the kernel begins to test whether the host of an idle connection is gone, how often, and
    #: how many times. And when it ends a connection whose data is not acknowledged.
    keepalive_idle: int = 4
    keepalive_interval: int = 2
    keepalive_count: int = 3
    keepalive_end: int = 10

    # The servers.
    postgresql_statement: float = 3.5
    #: Shorter than PostgreSQL's ``deadlock_timeout``: a job that waits for a lock is repeated.
    postgresql_lock: float = 0.5
    mysql_lock: int = 1
    sqlite_lock: int = 4


class Sizes:
    """How much a SQL store sends to a database, and reads from it, at a time."""

    group: int = 100  # The adds in one transaction.
    batch: int = PLANTS  # The plants of an import in one transaction.
    #: Of all plants of a group or a batch, unless it has only one. A character has up to four
    #: bytes, or becomes two when it is escaped, and a server may refuse more than a mebibyte.
    characters: int = CHARACTERS
    page: int = 100  # The plants of a page of an iteration.
    page_characters: int = 1_000_000  # The page ends with the plant that exceeds them.
    #: The connections of a process to a server, and on the engine of a site.
    connections: int = 24
    site_connections: int = 5
