"""The session of the library: refused prompts; signals, and threads at the end of a process."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import saragossa
from saragossa.engine.session import Session
from saragossa.errors import SaragossaError, UsageError

MODEL = Path(__file__).parents[2] / "golden" / "checkpoints" / "llama"
PROMPT = [2] + [4 + (7 * i * i + 13 * i + 5) % 250 for i in range(39)]
OPTIONS = saragossa.GenerationOptions(temperature=1.5, seed=3)


@pytest.fixture(scope="module")
def llm() -> saragossa.LLM:
    return saragossa.LLM(MODEL, device="cpu", threads=1)


def drawn(llm: saragossa.LLM, refused: list[int] | None) -> list[int]:
    session = llm.session()
    session.configure(OPTIONS)
    session.prefill(PROMPT)
    if refused is not None:
        with pytest.raises(SaragossaError):
            session.prefill(refused)
    return [session.step() for _ in range(6)]


@pytest.mark.parametrize("refused", [[], [10**6], [5] * 100_000], ids=["empty", "id", "long"])
def test_a_refused_prompt_keeps_the_drawn_token(llm: saragossa.LLM, refused: list[int]) -> None:
    assert drawn(llm, refused) == drawn(llm, None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.prefill(None), "token ids are a sequence of whole numbers, not NoneType"),
        (lambda s: s.prefill("abc"), "token ids are a sequence of whole numbers, not str"),
        (lambda s: s.prefill([1.5]), "a token id is a whole number, found 1.5"),
        (lambda s: s.prefill([2**70]), f"token id {2**70} is out of range"),
        (lambda s: s.prefill([-1]), "token id -1 is out of range"),
        (lambda s: s.rewind("x"), "a position is a whole number of tokens, found 'x'"),
        (lambda s: s.rewind(None), "found None"),
        (lambda s: s.rewind(2**70), "a position is a whole number"),
        (lambda s: s.rewindable(1.5), "found 1.5"),
        (lambda s: s.configure(None), "options are GenerationOptions, not NoneType"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(
    llm: saragossa.LLM, call: Callable[[Session], object], message: str
) -> None:
    session = llm.session()
    session.configure(OPTIONS)
    session.prefill(PROMPT)
    with pytest.raises(UsageError, match=re.escape(message)):
        call(session)
    assert [session.step() for _ in range(6)] == drawn(llm, None)


@pytest.mark.parametrize(
    ("folder", "to"), [("checkpoints/llama", 41), ("families/qwen3_5", 29)], ids=["beyond", "no-snapshot"]
)
def test_a_refused_rewind_keeps_the_drawn_token(folder: str, to: int) -> None:
    with saragossa.LLM(MODEL.parents[1] / folder, device="cpu", threads=1) as llm:
        session = llm.session()
        session.configure(OPTIONS)
        session.prefill(PROMPT)
        with pytest.raises(SaragossaError):
            session.rewind(to)
        assert [session.step() for _ in range(6)] == drawn(llm, None)


def test_ctrl_c_between_any_two_lines_leaves_a_whole_session() -> None:
    """With drafts: what was verified, returned and kept is known wherever the step ends."""
    prompt = PROMPT
    with saragossa.LLM(MODEL, device="cpu", threads=1, draft_model=MODEL, draft_tokens=3) as llm:

        def work(session: Session) -> list[int]:
            session.configure(saragossa.GenerationOptions())
            session.prefill(prompt)
            return [session.step() for _ in range(10)]

        first = llm.session()
        sequence = prompt + work(first)
        assert first.stats.accepted > 0
        after: dict[int, int] = {}
        for line in itertools.count(1):
            session = llm.session()
            if not interrupted(lambda s=session: (work(s), s.rewind(0)), line):
                break
            at = session.length
            session.prefill([7])
            if at not in after:
                fresh = llm.session()
                fresh.prefill([*sequence[:at], 7])
                after[at] = fresh.step()
            assert session.step() == after[at], line
            session.rewind(0)
            assert prompt + work(session) == sequence, line
        assert len(after) > 5


@pytest.mark.parametrize("drafts", [True, False], ids=["drafts", "plain"])
def test_ctrl_c_between_any_two_lines_of_steps_loses_no_token(drafts: bool) -> None:
    """Whoever goes on stepping gets each token once, with its log probabilities."""
    draft = MODEL if drafts else None
    options = saragossa.GenerationOptions(temperature=1.2, seed=5, top_logprobs=1)
    with saragossa.LLM(MODEL, device="cpu", threads=1, draft_model=draft, draft_tokens=3) as llm:
        want: list[Any] = []
        for line in itertools.count(0):  # 0: never
            session = llm.session()
            session.configure(options)
            session.prefill(PROMPT)
            got: list[Any] = []

            def steps(session: Session = session, got: list[Any] = got) -> None:
                while len(got) < 12:
                    got.append(session.step())

            ended = not interrupted(steps, line)
            steps()
            want = want or got
            assert got == want, line
            assert session.length == len(PROMPT) + 11, line
            assert session.logprobs() is not None
            if ended and line > 0:
                break
        assert line > 30


def interrupted(work: Callable[[], object], line: int) -> bool:
    """Run `work` with a Ctrl-C before its `line`-th line in session.py; False: there were not so many."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith("engine/session.py"):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def run(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code, str(MODEL)], env=environment, capture_output=True, text=True, timeout=60
    )


def test_a_process_ends_while_a_daemon_thread_generates() -> None:
    result = run(
        "import sys, threading, time, saragossa\n"
        "m = saragossa.LLM(sys.argv[1], device='cpu')\n"
        "def work():\n"
        "    while True: m.generate([5] * 20, max_tokens=300, ignore_eos=True)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.3)\n"
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_a_signal_handler_that_uses_the_model_is_told() -> None:
    """It runs in the middle of a submission, which holds the model: waiting for it would never end."""
    result = run(
        "import signal, sys, saragossa\n"
        "m = saragossa.LLM(sys.argv[1], device='cpu', threads=1)\n"
        "s = m.session()\n"
        "signal.signal(signal.SIGALRM, lambda *_: m.session().prefill([5] * 9))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)\n"
        "try:\n"
        "    while True: s.prefill([5] * 1950); s.rewind(0)\n"
        "except saragossa.errors.UsageError as error: print(error)\n"
    )
    assert "this thread is generating with this model already" in result.stdout, result.stderr
