"""The chat's line editor: prompt_toolkit with a bounded history file and multi-line input."""

from __future__ import annotations

import sys
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from saragossa import settings

MAX_ENTRIES = 1000
MAX_BYTES = 1 << 20
ENTRY = b"\n# "  # begins an entry; its own lines begin with a +
FENCE = '"""'


class BoundedHistory(FileHistory):
    """A history file that is cut to its newest entries when it is opened, readable by its owner alone."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        self._path = path
        super().__init__(str(path))
        self._cut()
        self._trim()

    def _cut(self) -> None:
        """Keep the end of a file that is too large to be read whole, from the first entry in it on."""
        size = self._path.stat().st_size
        if size <= 2 * MAX_BYTES:
            return
        with self._path.open("rb") as file:
            file.seek(size - 2 * MAX_BYTES)
            end = file.read(2 * MAX_BYTES)
        start = end.find(ENTRY)
        fresh = self._fresh()
        fresh.write_bytes(end[start:] if start >= 0 else b"")
        fresh.replace(self._path)

    def _fresh(self) -> Path:
        """An empty file beside ours."""
        fresh = self._path.with_suffix(".tmp")
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600)
        return fresh

    def _trim(self) -> None:
        entries = list(self.load_history_strings())  # newest first
        kept, size = [], 0
        for entry in entries[:MAX_ENTRIES]:
            size += len(entry.encode())
            if size > MAX_BYTES:
                break
            kept.append(entry)
        if len(kept) == len(entries):
            return
        fresh = self._fresh()
        shorter = FileHistory(str(fresh))
        for entry in reversed(kept):
            shorter.store_string(entry)
        fresh.replace(self._path)


def open_history(path: Path) -> History:
    """The history file, or one that lasts as long as the chat where the file cannot be written."""
    try:
        return BoundedHistory(path)
    except OSError as error:
        print(
            f"saragossa: warning: what you type is not kept: {path}: {error.strerror or error} "
            "(let SARAGOSSA_STATE_DIR name a folder that can be written to)",
            file=sys.stderr,
        )
        return InMemoryHistory()


def fenced(text: str) -> bool:
    """Whether a block that began with three quotes is still open."""
    stripped = text.strip()
    return stripped.startswith(FENCE) and (len(stripped) < 2 * len(FENCE) or not stripped.endswith(FENCE))


def unfenced(text: str) -> str:
    """A block without its quotes."""
    stripped = text.strip()
    if stripped.startswith(FENCE) and not fenced(text):
        return stripped[len(FENCE) : -len(FENCE)].strip("\n")
    return text


class LineEditor:
    """Enter sends; Alt-Enter, a pasted newline or an open block of three quotes goes on to the next line."""

    def __init__(self) -> None:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            if fenced(event.current_buffer.text):
                event.current_buffer.insert_text("\n")
            else:
                event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        self._session: PromptSession[str] = PromptSession(
            history=open_history(settings.load().state_dir / "history"),
            key_bindings=keys,
            multiline=True,
            prompt_continuation="  ",
        )

    def read(self) -> str:
        return unfenced(self._session.prompt("> "))
