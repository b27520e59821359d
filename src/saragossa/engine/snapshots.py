"""Snapshots of a session: what it holds at one moment, to go back to, or to go on from in another session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from saragossa._core import Model, Snapshot
from saragossa._core import Session as Core
from saragossa.errors import UsageError

if TYPE_CHECKING:
    from saragossa.engine.speculation import Speculator


class Snapshots:
    """The part of a Session that takes and restores them."""

    _core: Core
    _model: Model
    _chunk: int
    _speculator: Speculator | None
    context: int

    def __init__(self, model: Model, context: int, chunk: int, speculator: Speculator | None = None) -> None:
        raise NotImplementedError

    def _settle(self) -> None:
        """Drop what was drawn ahead and not returned."""
        raise NotImplementedError

    def snapshot(self) -> Snapshot:
        """The tokens in the cache and all that belongs to them, shared, not copied.

        The last drawn token is not in the cache yet, so not in the snapshot. Its blocks and its state stay in
        the model's cache until it is dropped. Raises SnapshotNeededError where a failed step lost the state.
        """
        self._settle()
        return self._core.snapshot(0)

    def restore(self, snapshot: Snapshot) -> None:
        """Become what the snapshot holds; go on with `prefill`. The sampling options stay.

        Raises UsageError for a snapshot of another model, or one longer than the context; the session is then
        what it was.
        """
        if not isinstance(snapshot, Snapshot):
            raise UsageError(f"a snapshot is what snapshot() gives, not {type(snapshot).__name__}")
        self._settle()
        self._core.restore(0, snapshot)

    def fork(self) -> Self:
        """Another session of the same model that holds the same tokens; go on with `prefill`.

        It has options of its own: greedy until `configure`.
        """
        other = type(self)(self._model, self.context, self._chunk, self._speculator)
        other.restore(self.snapshot())
        return other
