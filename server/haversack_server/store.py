"""Keeps Verify's jobs in a file, so that a server that restarts still knows them.

SQLite with a write-ahead log, written by one thread of one server: a lock keeps a second server
out. Knows rows and JSON; what a state means, and how long a report is kept, is for ``job_book``.
"""

import contextlib
import fcntl
import json
import logging
import os
import pathlib
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any

from haversack.errors import HaversackError
from haversack.verify import JobState, VerifyReport, VerifyRequest
from haversack_server.verify.records import RecordError, from_json, to_json

_log = logging.getLogger(__name__)
_VERSION = 1
_FILE = "jobs.sqlite"
_TABLE = """
CREATE TABLE job (
    job_id TEXT PRIMARY KEY,
    request TEXT NOT NULL,
    state INTEGER NOT NULL,
    submitted_unix_ns INTEGER NOT NULL,
    ended_unix_ns INTEGER,
    report TEXT
) WITHOUT ROWID
"""
_PUT = "INSERT OR REPLACE INTO job VALUES (?, ?, ?, ?, ?, ?)"
_ALL = "SELECT * FROM job ORDER BY submitted_unix_ns, job_id"
_FORGET = "DELETE FROM job WHERE job_id = ?"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A job as it is kept; ``report`` and ``ended_unix_ns`` are None until it is over."""

    job_id: str
    request: VerifyRequest
    state: JobState
    submitted_unix_ns: int
    ended_unix_ns: int | None = None
    report: VerifyReport | None = None


class Store:
    """The file of one server.

    What cannot be written (a full disk) is logged, and ``on_fault`` hears of it: a job needs no
    file to run.
    """

    def __init__(self, folder: pathlib.Path, on_fault: Callable[[], object]) -> None:
        """Open the file, or begin it. Raises HaversackError naming the folder and the reason."""
        self._folder = folder
        self._on_fault = on_fault
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.ExitStack() as stack:
                stack.enter_context(_locked(folder / "lock"))
                self._writer = stack.enter_context(ThreadPoolExecutor(1, "haversack-store"))
                self._database = self._writer.submit(_opened, folder / _FILE).result()
                stack.callback(lambda: self._writer.submit(self._database.close).result())
                self._held = stack.pop_all()
        except (OSError, sqlite3.Error) as wrong:
            raise self._refused(wrong) from wrong

    def rows(self) -> list[Row]:
        """Read all jobs, the oldest first; what this version cannot read is logged and left out.

        Raises HaversackError if the file is broken.
        """
        try:
            found = self._writer.submit(lambda: self._database.execute(_ALL).fetchall()).result()
        except sqlite3.Error as wrong:
            raise self._refused(wrong) from wrong
        return [row for fields in found if (row := _row(*fields)) is not None]

    def put(self, row: Row) -> "Future[None]":
        """Write a job, or write it anew, after all that was to be written before."""
        return self._writer.submit(self._write, _PUT, [_fields(row)])

    def forget(self, job_ids: Iterable[str]) -> "Future[None]":
        """Delete jobs."""
        return self._writer.submit(self._write, _FORGET, [(job_id,) for job_id in job_ids])

    def close(self) -> None:
        """Write what waits, and let another server have the file."""
        self._held.close()

    def _refused(self, wrong: OSError | sqlite3.Error) -> HaversackError:
        reason = wrong.strerror if isinstance(wrong, OSError) else wrong
        sentence = f"cannot keep reports in {self._folder}: {reason}; give another folder"
        return HaversackError(sentence)

    def _write(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        try:
            # SQLite would go on writing to a file that has no name any more.
            os.stat(self._folder / _FILE)
            with self._database:
                self._database.executemany(statement, rows)
        except (OSError, sqlite3.Error) as wrong:
            _log.error("reports are not kept: %s cannot be written: %s", self._folder, wrong)
            self._on_fault()


def _locked(file: pathlib.Path) -> IO[bytes]:
    held = file.open("wb")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as taken:
        held.close()
        raise OSError(taken.errno, "another server keeps its own there") from taken
    return held


def _opened(file: pathlib.Path) -> sqlite3.Connection:
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))  # arguments may be nobody else's
    database = sqlite3.connect(file)
    # A row that is no UTF-8 is then a row that cannot be read, and not the end of all.
    database.text_factory = lambda text: text.decode(errors="replace")
    try:
        _prepare(database)
    except BaseException:
        database.close()
        raise
    return database


def _prepare(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version not in (0, _VERSION):
        raise OSError(0, f"its jobs are of version {version}, and this server reads {_VERSION}")
    if version == 0:
        with database:
            database.execute(_TABLE)
            database.execute(f"PRAGMA user_version = {_VERSION}")


def _fields(row: Row) -> tuple[Any, ...]:
    return (
        row.job_id,
        json.dumps(to_json(row.request)),
        int(row.state),
        row.submitted_unix_ns,
        row.ended_unix_ns,
        None if row.report is None else json.dumps(to_json(row.report)),
    )


def _row(
    job_id: str,
    request: str,
    state: int,
    submitted_unix_ns: int,
    ended_unix_ns: int | None,
    report: str | None,
) -> Row | None:
    try:
        if not isinstance(submitted_unix_ns + (ended_unix_ns or 0), int):
            raise RecordError("a time is no integer")
        return Row(
            job_id=str(job_id),
            request=from_json(VerifyRequest, json.loads(request)),
            state=JobState(state),
            submitted_unix_ns=submitted_unix_ns,
            ended_unix_ns=ended_unix_ns,
            report=None if report is None else from_json(VerifyReport, json.loads(report)),
        )
    except (RecordError, HaversackError, TypeError, ValueError) as wrong:
        _log.warning("job %s cannot be read and is left out: %s", job_id, wrong)
        return None
