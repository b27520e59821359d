"""Speculative decoding: who drafts, and how a generation asks for it. The output is plain decoding's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from saragossa import _core
from saragossa.engine.options import SpeculationMethod
from saragossa.errors import ModelError, ParameterError
from saragossa.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from saragossa.engine.loading import Loaded

DRAFT_TOKENS = 5  # at most, where nobody says otherwise


@dataclass(slots=True)
class SpeculationStats:
    """Of the drafts of one session. plain: steps without drafts; tokens: of verifications."""

    verifications: int = 0
    drafted: int = 0
    accepted: int = 0
    plain: int = 0

    @property
    def tokens(self) -> int:
        return self.verifications + self.accepted

    @property
    def acceptance(self) -> float:
        """Share of the drafts that were right."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_verification(self) -> float:
        return self.tokens / self.verifications if self.verifications else 0.0

    def add(self, other: SpeculationStats) -> None:
        self.verifications += other.verifications
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.plain += other.plain


@dataclass(frozen=True, slots=True)
class Speculator:
    """What a loaded model can draft with. method: where a generation does not say."""

    method: SpeculationMethod
    most: int
    mtp: bool = False
    draft: Loaded | None = None
    block: bool = False  # its draft model is a block drafter, loaded with it
    adaptive: bool = True

    def drafter(self, method: SpeculationMethod) -> _core.Drafter | None:
        """A drafter for one sequence, None for "off". Raises ParameterError for what was not loaded."""
        if method == "lookup":
            return _core.LookupDrafter()
        if method == "mtp":
            if not self.mtp:
                raise ParameterError(
                    "speculate", "speculate: the model was loaded without its MTP head", cure=_cure("mtp")
                )
            return _core.MtpDrafter()
        if method == "draft" and self.block:
            return _core.BlockDrafter()
        if method == "draft":
            if self.draft is None:
                raise ParameterError("speculate", "speculate: no draft model was loaded", cure=_cure("draft"))
            return _core.ModelDrafter(self.draft.model, self.draft.context, self.draft.chunk)
        return None


def _cure(method: str) -> str:
    given = "draft_model=..." if method == "draft" else f'speculate="{method}"'
    return f"load it with {given}"


def check_vocabulary(target: Path, draft: Path) -> None:
    """Raises ModelError where the draft model's tokens are not the target's. No weight is read."""
    ours, theirs = Tokenizer.from_dir(target), Tokenizer.from_dir(draft)
    a, b = (t.backend.get_vocab(with_added_tokens=True) for t in (ours, theirs))
    if a == b:
        return
    other = sorted(token for token in a.keys() | b.keys() if a.get(token) != b.get(token))
    raise ModelError(
        f"{draft}: a draft model with another vocabulary than {target}: {len(b)} tokens against {len(a)},"
        f" {len(other)} differ, such as {other[0]!r:.40}",
        cure="take a smaller model of the same family, with the same tokenizer",
    )
