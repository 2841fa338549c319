"""Files that are replaced as a whole or not at all. test_transfer.py has an export that fails."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plantstore.cli._replacing import replacing
from tests.support.serving import ROOT
from tests.support.users import ordinary_user


def replace(path: Path) -> None:
    """Replace a file."""
    with replacing(str(path)) as file:
        file.write(b"new")


def mode(path: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = Path("file")
    path.write_text("old")
    return path


def test_killed_process_keeps_the_old_file(old: Path, tmp_path: Path) -> None:
    """If the process is killed, the old file stays, and a file .plantstore-* beside it."""
    program = "import os; from plantstore.cli._replacing import replacing as r\n"
    killed = f"with r({str(tmp_path / 'file')!r}) as f: f.write(b'new'); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", program + killed], cwd=ROOT, check=False)
    assert done.returncode == -9
    temporary, kept = sorted(tmp_path.iterdir())
    assert temporary.name.startswith(".plantstore-")
    assert (kept.name, old.read_text()) == ("file", "old")


def test_steps_of_a_replacement(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file is private until it has its permissions, and on the disk before the old goes."""
    calls = []

    def watch(name: str) -> None:
        function = getattr(os, name)

        def watched(*arguments: Any) -> Any:
            temporary = [mode(file) for file in tmp_path.iterdir() if file.name != old.name]
            calls.append((name, temporary))
            return function(*arguments)

        monkeypatch.setattr(os, name, watched)

    old.chmod(0o666)
    for name in ("fchown", "fchmod", "fsync", "replace"):
        watch(name)
    replace(old)
    private = [(name, [0o600]) for name in ("fchown", "fchown", "fchmod")]
    assert calls == [*private, ("fsync", [0o666]), ("replace", [0o666]), ("fsync", [])]


def test_permissions_and_owner_are_kept(old: Path) -> None:
    """The new file has the permissions of the old one, and as root also its owner and group."""
    is_root = os.geteuid() == 0
    owner = (1234, 5678) if is_root else (os.geteuid(), os.getegid())
    os.chown(old, *owner)
    # If an ordinary user writes to a file, the system removes its set-group-ID bit.
    for expected in (0o600, 0o666, 0o2751 if is_root else 0o751):
        old.chmod(expected)
        replace(old)
        status = old.stat()
        assert (mode(old), status.st_uid, status.st_gid) == (expected, *owner)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
def test_owner_that_cannot_be_kept(old: Path, tmp_path: Path) -> None:
    """A user who replaces a file of another user becomes its owner; its permissions are kept."""
    tmp_path.chmod(0o777)
    os.chown(old, 0, 5678)
    old.chmod(0o640)
    groups = os.getgroups()
    os.setgroups([5678])
    try:
        with ordinary_user():
            replace(old)
    finally:
        os.setgroups(groups)
    assert old.read_text() == "new"
    assert (old.stat().st_uid, old.stat().st_gid, mode(old)) == (1234, 5678, 0o640)


@pytest.mark.parametrize(("umask", "expected"), [(0, 0o666), (0o027, 0o640), (0o777, 0)])
def test_mode_of_a_new_file(tmp_path: Path, umask: int, expected: int) -> None:
    """A new file can be read and written by everyone to whom the umask allows it."""
    before = os.umask(umask)
    try:
        replace(tmp_path / "new")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == expected


def test_link_stays_a_link(tmp_path: Path) -> None:
    """The target of a symbolic link is replaced or created, and the link stays a link."""
    folder, link, other = tmp_path / "folder", tmp_path / "link", tmp_path / "other"
    folder.mkdir()
    link.symlink_to("folder/file")
    other.symlink_to("link")
    for _ in range(2):
        replace(other)
        assert (link.is_symlink(), other.is_symlink()) == (True, True)
        assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("file", "new")]
        (folder / "file").write_text("old")


def test_pipe_is_written_directly() -> None:
    """A pipe is not replaced, also by a name in /dev/fd, as bash uses for >(command)."""
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "wb"):
        replace(Path(f"/dev/fd/{writing}"))
        assert reader.read(3) == b"new"


def test_permissions_of_the_folder(old: Path, tmp_path: Path) -> None:
    """A folder must be writable, and need not be readable. Otherwise the file is unchanged."""
    old.chmod(0o666)
    tmp_path.chmod(0o555)
    with ordinary_user(), pytest.raises(PermissionError, match="file"):
        replace(old)
    assert old.read_text() == "old"
    tmp_path.chmod(0o333)
    with ordinary_user():
        replace(Path("new"))
    tmp_path.chmod(0o777)
    assert Path("new").read_text() == "new"
