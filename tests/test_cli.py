"""The plantstore command."""

from hashlib import sha256

from click.testing import CliRunner

from plantstore import StaticTokens, __version__
from plantstore.cli import main


def test_a_new_token() -> None:
    """`plantstore token` prints a token of 256 bits and its digest, new each time, unconfigured."""
    tokens = set()
    for _ in range(10):
        result = CliRunner().invoke(main, ["token"])
        assert result.exit_code == 0
        token, digest = result.output.splitlines()
        assert len(token) * 6 >= 256
        assert digest == f"sha256:{sha256(token.encode()).hexdigest()}"
        assert StaticTokens([token])(token) == StaticTokens([digest])(token) == "token-1"
        tokens.add(token)
    assert len(tokens) == 10


def test_the_version() -> None:
    """`plantstore --version` names the version that is installed."""
    result = CliRunner().invoke(main, ["--version"])
    assert result.output == f"plantstore {__version__}\n"


def test_wrong_usage() -> None:
    """A command that there is not is a usage error, exit code 2."""
    assert CliRunner().invoke(main, ["water"]).exit_code == 2
