"""The commands that make, list and revoke access tokens."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

import click

from ..auth import token_digest
from ..blueprint import RIGHTS
from ..text import printable
from ..tokens.file import parse, read_content, read_file
from ..tokens.lines import format_line, format_time, read_rights, read_time, read_tokens
from ..tokens.new import make_token
from ._parameters import examples
from ._replacing import replacing


def _name(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """Return the value of --name. It is refused if a line of a file could not have this name."""
    if name is None:
        return None
    words = name.split()
    try:
        name.encode()
        (listed,) = read_tokens(" ".join(["token", *words]))
    except ValueError:
        raise click.BadParameter("a line of a file of tokens cannot have this name.") from None
    if listed.client != " ".join(words):
        raise click.BadParameter("must not be empty, and no word may begin with #.")
    return listed.client


def _time(ctx: click.Context, param: click.Parameter, text: str | None) -> datetime | None:
    try:
        time = None if text is None else read_time(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            "must be a date or time of ISO 8601, such as 2027-01-31 or 2027-01-31T12:00Z."
        ) from None
    if time is not None and time <= datetime.now(UTC):
        raise click.BadParameter("is in the past.")
    return time


def _rights(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    try:
        return None if text is None else read_rights(text)
    except ValueError:
        names = ", ".join(RIGHTS)
        raise click.BadParameter(f"must be some of {names}, separated by commas.") from None


@click.command(
    epilog=examples("plantstore token", "plantstore token --name kiosk --append tokens.txt")
)
@click.option("--name", callback=_name, help="The name of the client, for the log.")
@click.option(
    "--expires",
    callback=_time,
    metavar="DATE",
    help="The token is refused from this date or time on (ISO 8601, UTC). By default, never.",
)
@click.option(
    "--operations",
    callback=_rights,
    metavar="NAMES",
    help=f"The only operations that the token has the right to: some of {', '.join(RIGHTS)},"
    " separated by commas. By default, all.",
)
@click.option(
    "--append",
    "file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Append the digest to this file.",
)
def token(
    name: str | None,
    expires: datetime | None,
    operations: tuple[str, ...] | None,
    file: str | None,
) -> None:
    """Make a new access token. No setting is needed.

    The first line is the token: give it to the client. The second line has its digest: put it
    into PLANTSTORE_TOKENS_FILE, or the digest alone into PLANTSTORE_TOKENS. The service then
    accepts the token without storing it. In PLANTSTORE_TOKENS, a token has no expiry and the
    right to all operations.

    With --append, the second line is appended to FILE, and then only the token is shown. A running
    service that uses FILE accepts the token within a few seconds.
    """
    made = make_token()
    line = format_line(token_digest(made), name or "", expires, operations)
    if file is None:
        click.echo(f"{made}\n{line}")
        return
    _change(file, partial(_appended, line, name))
    click.echo(f"The digest of the token was appended to {printable(file)}.", err=True)
    click.echo(made)


@click.group(epilog=examples("plantstore tokens list tokens.txt"))
def tokens() -> None:
    """List and revoke the access tokens of a file."""


@tokens.command("list", epilog=examples("plantstore tokens list tokens.txt"))
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def list_(file: str) -> None:
    """Show the clients, and the expiry and operations of their tokens."""
    with _faults(file):
        listed = read_file(file)
    for token in listed:
        expires = "never" if token.expires is None else format_time(token.expires)
        operations = "all" if token.operations is None else ",".join(token.operations)
        state = "\texpired" if token.is_expired() else ""
        click.echo(f"{printable(token.client)}\t{expires}\t{operations}{state}")


@tokens.command(epilog=examples("plantstore tokens revoke tokens.txt kiosk"))
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.argument("name")
def revoke(file: str, name: str) -> None:
    """Remove every token of the client NAME from FILE.

    A running service that uses FILE refuses the tokens within a few seconds, unless they are also
    in PLANTSTORE_TOKENS.
    """
    name = " ".join(name.split())
    _change(file, partial(_without, name))
    click.echo(f"The tokens of {printable(name)} were removed from {printable(file)}.")


def _change(file: str, change: Callable[[bytes], bytes]) -> None:
    """Change a file of tokens. An invalid change is refused."""
    with _locked(file), _faults(file):
        content = change(read_content(file) if os.path.exists(file) else b"")
        parse(content)
        with replacing(file) as output:
            output.write(content)


@contextmanager
def _locked(file: str) -> Iterator[None]:
    """Lock the folder of a file, so that only one command at a time changes its files of tokens."""
    from fcntl import LOCK_EX, flock  # Windows has no such module.

    folder = os.open(os.path.dirname(os.path.realpath(file)), os.O_RDONLY)
    try:
        flock(folder, LOCK_EX)
        yield
    finally:
        os.close(folder)


@contextmanager
def _faults(file: str) -> Iterator[None]:
    """Report a fault of a file of tokens in one line."""
    try:
        yield
    except ValueError as error:
        raise click.ClickException(f"{printable(file)}: {error}.") from None


def _appended(line: str, name: str | None, content: bytes) -> bytes:
    """Return the content of a file with another line."""
    # `tokens revoke` removes all tokens with a name: each token needs a name of its own.
    if name and content and any(token.client == name for token in parse(content)):
        shown = printable(name)
        raise click.ClickException(
            f"the file already has a token with the name {shown}. Use another name, such as"
            f" --name '{shown}-2', and revoke the old one when it is not used any more."
        )
    end = b"" if content.endswith(b"\n") or not content else b"\n"
    return content + end + f"{line}\n".encode()


def _without(name: str, content: bytes) -> bytes:
    """Replace each line of a client by a comment, and return the new content of the file.

    So a token without a name keeps the number of its line, which is its name.
    """
    listed = parse(content)
    revoked = {token.line for token in listed if token.client == name}
    if not revoked:
        raise click.ClickException(f"no token has the name {printable(name)}.")
    if len(revoked) == len(listed):
        raise click.ClickException(
            "the file would have no token, and a running service would then keep the earlier ones."
            " Append another token first: plantstore token --name NAME --append FILE"
        )
    lines = enumerate(content.split(b"\n"), 1)
    return b"\n".join(b"# revoked" if number in revoked else line for number, line in lines)


#: The commands of this module.
COMMANDS: list[click.Command] = [token, tokens]
