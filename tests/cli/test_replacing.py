"""Files that are replaced as a whole or not at all."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from plantstore.cli._replacing import replacing
from tests.support.serving import ROOT
from tests.support.users import ordinary_user


def replace(path: Path, content: bytes = b"new") -> None:
    """Replace a file."""
    with replacing(str(path)) as file:
        file.write(content)


def fail(path: Path, error: type[BaseException]) -> None:
    """Fail when a part of the new file is on the disk."""
    with replacing(str(path)) as file:
        file.write(b"x" * 100_000)
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError, OSError])
def test_failed_block_changes_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    """If the block fails, the old file is unchanged, and no other file remains."""
    old = tmp_path / "old"
    old.write_text("old")
    for path in (old, tmp_path / "new"):
        with pytest.raises(error):
            fail(path, error)
    assert [*tmp_path.iterdir()] == [old]
    assert old.read_text() == "old"


def test_killed_process_keeps_the_old_file(tmp_path: Path) -> None:
    """If the process is killed, the old file stays, and a file .plantstore-* beside it."""
    (tmp_path / "file").write_text("old")
    program = "import os; from plantstore.cli._replacing import replacing as r\n"
    killed = f"with r({str(tmp_path / 'file')!r}) as f: f.write(b'new'); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", program + killed], cwd=ROOT, check=False)
    assert done.returncode == -9
    temporary, kept = sorted(tmp_path.iterdir())
    assert temporary.name.startswith(".plantstore-")
    assert (kept.name, kept.read_text()) == ("file", "old")


@contextmanager
def watching(*functions: object, call: Callable[[object], None]) -> Iterator[None]:
    """Call a function before each call of these functions of the os module."""

    def profile(_: FrameType, event: str, function: object) -> None:
        if event == "c_call" and function in functions:
            call(function)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_file_is_on_the_disk_before_it_replaces_the_old_one(tmp_path: Path) -> None:
    """After a failure of the machine, either the whole old file or the whole new file exists."""
    calls: list[object] = []
    with watching(os.fsync, os.replace, call=calls.append):
        replace(tmp_path / "file")
    assert calls == [os.fsync, os.replace, os.fsync]


def test_new_file_is_private_at_first(tmp_path: Path) -> None:
    """No other user can open the new file before it has the permissions of the old one."""
    path = tmp_path / "file"
    path.write_text("old")
    modes = []

    def note(_: object) -> None:
        (other,) = (file for file in tmp_path.iterdir() if file != path)
        modes.append(stat.S_IMODE(other.stat().st_mode))

    with watching(os.fchown, os.fchmod, call=note):
        replace(path)
    assert {*modes} == {0o600}


def test_permissions_and_owner_are_kept(tmp_path: Path) -> None:
    """The new file has the permissions of the old one, and as root also its owner and group."""
    path = tmp_path / "file"
    path.write_text("old")
    is_root = os.geteuid() == 0
    owner = (1234, 5678) if is_root else (os.geteuid(), os.getegid())
    os.chown(path, *owner)
    # If an ordinary user writes to a file, the system removes its set-group-ID bit.
    for mode in (0o600, 0o666, 0o2751 if is_root else 0o751):
        path.chmod(mode)
        with replacing(str(path)) as file:
            (other,) = (file for file in tmp_path.iterdir() if file != path)
            assert stat.S_IMODE(other.stat().st_mode) == mode
            file.write(b"new")
        status = path.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (mode, *owner)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
def test_owner_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may replace a file of another user becomes its owner.

    The permissions are kept, and also the group if the user is in it.
    """
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o777)
    path = Path("file")
    path.write_text("old")
    os.chown(path, 0, 5678)
    path.chmod(0o640)
    groups = os.getgroups()
    os.setgroups([5678])
    try:
        with ordinary_user():
            replace(path)
    finally:
        os.setgroups(groups)
    assert path.read_text() == "new"
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 5678)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize(("umask", "mode"), [(0, 0o666), (0o027, 0o640), (0o777, 0)])
def test_mode_of_a_new_file(tmp_path: Path, umask: int, mode: int) -> None:
    """A new file can be read and written by everyone to whom the umask allows it."""
    before = os.umask(umask)
    try:
        with replacing(str(tmp_path / "new")) as file:
            file.write(b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == mode


@pytest.mark.parametrize("exists", [True, False])
def test_link_stays_a_link(tmp_path: Path, exists: bool) -> None:
    """The target of a symbolic link is replaced, and the link stays a link."""
    folder, link, other = tmp_path / "folder", tmp_path / "link", tmp_path / "other"
    folder.mkdir()
    if exists:
        (folder / "file").write_text("old")
    link.symlink_to("folder/file")
    other.symlink_to("link")
    replace(other)
    assert link.is_symlink()
    assert other.is_symlink()
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("file", "new")]


def test_pipe_is_written_directly(tmp_path: Path) -> None:
    """A pipe is not replaced: its reader gets the content."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_bytes)
        replace(pipe)
        assert read.result() == b"new"
    assert pipe.is_fifo()


def test_open_pipe_by_its_descriptor() -> None:
    """A name in /dev/fd, as bash uses for >(command), is written directly."""
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "wb"):
        replace(Path(f"/dev/fd/{writing}"))
        assert reader.read(3) == b"new"


def test_error_names_the_path(tmp_path: Path) -> None:
    """The error of a full device, or of a missing folder, has the path that was passed."""
    for path in (Path("/dev/full"), tmp_path / "missing" / "file"):
        with pytest.raises(OSError, match=".") as caught:
            replace(path)
        assert (caught.value.filename, caught.value.filename2) == (str(path), None)


def test_folder_that_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without permission to write to the folder, the file is unchanged."""
    monkeypatch.chdir(tmp_path)
    path = Path("file")
    path.write_text("old")
    path.chmod(0o666)
    tmp_path.chmod(0o555)
    with ordinary_user(), pytest.raises(PermissionError) as caught:
        replace(path)
    assert (caught.value.filename, path.read_text()) == ("file", "old")


def test_folder_that_is_not_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file can be replaced in a folder that may be written but not read."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o333)
    with ordinary_user():
        replace(Path("file"))
    tmp_path.chmod(0o777)
    assert Path("file").read_text() == "new"
