"""The chat's line editor: prompt_toolkit with a bounded history file and multi-line input."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from saragossa import settings

MAX_ENTRIES = 1000
MAX_BYTES = 1 << 20
FENCE = '"""'


class BoundedHistory(FileHistory):
    """A history file that is cut to its newest entries when it is opened, readable by its owner alone."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        self._path = path
        super().__init__(str(path))
        self._trim()

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
        fresh = self._path.with_suffix(".tmp")
        fresh.touch(mode=0o600)
        fresh.write_bytes(b"")
        shorter = FileHistory(str(fresh))
        for entry in reversed(kept):
            shorter.store_string(entry)
        fresh.replace(self._path)

    def load_history_strings(self) -> Iterable[str]:
        """Newest first; a file that grew beyond all bounds is not read."""
        if self._path.stat().st_size > 8 * MAX_BYTES:
            return []
        return super().load_history_strings()


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
            history=BoundedHistory(settings.load().state_dir / "history"),
            key_bindings=keys,
            multiline=True,
            prompt_continuation="  ",
        )

    def read(self) -> str:
        return unfenced(self._session.prompt("> "))
