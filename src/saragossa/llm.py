"""The library's entry point for language models."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from saragossa import _core
from saragossa.engine import loading
from saragossa.engine.arguments import generation_options, token_ids
from saragossa.engine.batch import generate_batch
from saragossa.engine.generation import Timing, stream_tokens
from saragossa.engine.memory import peak_rss_bytes
from saragossa.engine.options import (
    Chunk,
    Completion,
    GenerationOptions,
    Metrics,
    SpeculationMethod,
    check_speculation,
)
from saragossa.engine.session import Progress, Session
from saragossa.engine.speculation import DRAFT_TOKENS, Speculator, check_vocabulary
from saragossa.errors import UsageError
from saragossa.models import read_config_json
from saragossa.models.block_drafter import is_block_drafter
from saragossa.text.generation_defaults import GenerationDefaults
from saragossa.text.tokenizer import Tokenizer
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.locate import locate

if TYPE_CHECKING:
    from saragossa.models.spec import ModelSpec
    from saragossa.text.template import ChatTemplate

Prompt = str | Sequence[int]
Message = Mapping[str, Any]
_TEMPLATE_SWITCHES = ("add_generation_prompt", "continue_final_message")  # of the renderer, no variables


class LLM:
    """A language model, ready to generate.

    path_or_repo: a model folder, a Hugging Face repository (`org/name` or `org/name@revision`), or `demo`.
    device: "auto", "cpu" or "metal". threads: of the CPU device; None or 0: the performance cores.
    exact: float32 activations and cache, weights as stored. kv: how keys and values are stored, "bf16" (the
    default), "u8" (8 bits: about half the memory) or "f32". context: tokens of a sequence at most; None: the
    model's own. speculate: who drafts tokens ahead, for speed alone: "mtp" (the checkpoint's own head),
    "draft" (the model `draft_model`, with the same tokenizer), "lookup" (what stood in the text before) or
    "off"; draft_tokens: at most, 1 to 7.
    Raises saragossa.errors.SaragossaError subclasses that name what is wrong and the cure.

    >>> with saragossa.LLM("demo") as llm:
    ...     print(llm.chat([{"role": "user", "content": "Hello"}]).text)
    """

    def __init__(
        self,
        path_or_repo: str | Path,
        *,
        device: str = "auto",
        threads: int | None = None,
        exact: bool | None = None,
        kv: str | None = None,
        context: int | None = None,
        speculate: SpeculationMethod | None = None,
        draft_model: str | Path | None = None,
        draft_tokens: int | None = None,
        revision: str | None = None,
        allow_download: bool = True,
        progress: bool = False,
    ) -> None:
        method = check_speculation(speculate, draft_model, draft_tokens)
        self.model_dir = locate(
            path_or_repo, revision=revision, allow_download=allow_download, progress=progress
        )
        draft_dir = None
        if draft_model is not None:
            draft_dir = locate(draft_model, allow_download=allow_download, progress=progress)
        start = time.perf_counter()
        block = draft_dir is not None and is_block_drafter(read_config_json(draft_dir))
        if draft_dir is not None and not block:
            load_spec(draft_dir)  # what is wrong with it is said before the model's weights are loaded
            check_vocabulary(self.model_dir, draft_dir)
        loaded = loading.load(
            self.model_dir,
            device=device,
            threads=threads,
            exact=exact,
            kv=kv,
            context=context,
            mtp=method == "mtp",
            block_drafter=draft_dir if block else None,
            before=self._read_tokenizer,
        )
        draft = None
        if draft_dir is not None and not block:
            draft = loading.load_draft(draft_dir, loaded, device=device, threads=threads, exact=exact, kv=kv)
        self.speculator = Speculator(method, draft_tokens or DRAFT_TOKENS, method == "mtp", draft, block)
        _core.trim_heap()
        self.load_seconds = time.perf_counter() - start
        self.defaults = GenerationDefaults.from_dir(self.model_dir)
        self.context = loaded.context
        self.spec = loaded.spec
        self._loaded: loading.Loaded | None = loaded
        self._template: ChatTemplate | None = None

    def _read_tokenizer(self, spec: ModelSpec) -> None:
        self.tokenizer = Tokenizer.from_dir(self.model_dir, vocab=spec.decoder.vocab)

    # --- life -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the weights and the cache. Further calls raise UsageError."""
        self._loaded = None
        self.speculator = Speculator("off", DRAFT_TOKENS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def loaded(self) -> loading.Loaded:
        """The model on its device."""
        if self._loaded is None:
            raise UsageError("this LLM is closed", cure="make a new one")
        return self._loaded

    @property
    def device_description(self) -> str:
        """Such as "cpu (avx2, 2 threads)"."""
        device = self.loaded.device
        return f"{device.name} ({device.description})"

    # --- text -----------------------------------------------------------------------------------

    @property
    def template(self) -> ChatTemplate:
        """The checkpoint's chat template. Raises TemplateError where it has none."""
        if self._template is None:
            from saragossa.text.template import ChatTemplate  # brings Jinja: only a chat needs it

            self._template = ChatTemplate.from_dir(self.model_dir)
        return self._template

    def tokenize(self, text: str, *, add_special: bool = True) -> list[int]:
        """Token ids of a text; add_special: with the tokens that the checkpoint puts around a prompt."""
        if not isinstance(text, str):
            raise UsageError(f"a text is a string, not {type(text).__name__}")
        return self.tokenizer.encode(text, add_special=add_special)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included."""
        return self.tokenizer.decode(token_ids(ids, self.spec.decoder.vocab))

    def chat_ids(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        **template_arguments: Any,
    ) -> list[int]:
        """The prompt's token ids of a dialogue, through the chat template."""
        return self._chat_ids(messages, tools, enable_thinking, template_arguments)

    def chat_options(self, options: GenerationOptions | None = None, **overrides: Any) -> GenerationOptions:
        """The options given, or the checkpoint's own sampling defaults (generation_config.json)."""
        return _chosen(options, overrides, GenerationOptions.from_defaults(self.defaults))

    # --- generation -----------------------------------------------------------------------------

    def session(self, snapshot: _core.Snapshot | None = None) -> Session:
        """A sequence for step-by-step work, prefill(ids), step(): fresh, or with what a snapshot holds."""
        loaded = self.loaded
        session = Session(loaded.model, self.context, loaded.chunk, self.speculator)
        if snapshot is not None:
            session.restore(snapshot)
        return session

    def stream(
        self,
        prompt: Prompt,
        options: GenerationOptions | None = None,
        *,
        session: Session | None = None,
        continues: bool = True,
        progress: Progress | None = None,
        timing: Timing | None = None,
        **overrides: Any,
    ) -> Iterator[Chunk]:
        """Chunks as they are made. Options are checked before the first; overrides are their fields.

        session: go on after the tokens that it holds, instead of a fresh one.
        continues: the text goes on from the prompt's; false where it begins anew, as a chat's answer does
        (it decides about a leading space of some tokenizers).
        """
        chosen = _chosen(options, overrides)
        ids = self._ids(prompt)
        on = self.session() if session is None else session
        return stream_tokens(
            on, self.tokenizer, ids, chosen, continues=continues, timing=timing, progress=progress
        )

    @overload
    def generate(
        self,
        prompts: Prompt,
        options: GenerationOptions | None = None,
        *,
        continues: bool = True,
        **overrides: Any,
    ) -> Completion: ...
    @overload
    def generate(
        self,
        prompts: Sequence[Prompt],
        options: GenerationOptions | None = None,
        *,
        continues: bool = True,
        **overrides: Any,
    ) -> list[Completion]: ...
    def generate(
        self,
        prompts: Any,
        options: GenerationOptions | None = None,
        *,
        continues: bool = True,
        **overrides: Any,
    ) -> Completion | list[Completion]:
        """Complete a prompt (a string or token ids), or each of a list of them, decoded together.

        Only what the options say applies: the default is greedy. See GenerationOptions. A list is decoded
        without drafts: its rows share the weights' loads already.
        """
        chosen = _chosen(options, overrides)
        if _is_prompt(prompts):
            return self._complete(self._ids(prompts), chosen, continues)
        ids = [self._ids(prompt) for prompt in prompts]
        loaded = self.loaded
        results = generate_batch(
            loaded.model,
            self.tokenizer,
            ids,
            chosen,
            context=self.context,
            chunk=loaded.chunk,
            continues=continues,
        )
        return [
            self._completion(prompt, chunks, timing, chosen)
            for prompt, (chunks, timing) in zip(ids, results, strict=True)
        ]

    @overload
    def chat(
        self, messages: Sequence[Message], *, stream: Literal[False] = False, **arguments: Any
    ) -> Completion: ...
    @overload
    def chat(
        self, messages: Sequence[Message], *, stream: Literal[True], **arguments: Any
    ) -> Iterator[Chunk]: ...
    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        stream: bool = False,
        options: GenerationOptions | None = None,
        template_arguments: Mapping[str, Any] | None = None,
        **overrides: Any,
    ) -> Completion | Iterator[Chunk]:
        """The assistant's next message. Without options the checkpoint's sampling defaults apply.

        messages: as in the OpenAI API, [{"role": "user", "content": "..."}].
        template_arguments: variables of the chat template, and continue_final_message.
        """
        chosen = self.chat_options(options, **overrides)
        given: Mapping[str, Any] = {} if template_arguments is None else template_arguments
        ids = self._chat_ids(messages, tools, enable_thinking, given)
        continues = bool(given.get("continue_final_message"))
        if stream:
            return self.stream(ids, chosen, continues=continues)
        return self._complete(ids, chosen, continues)

    # --- inside ---------------------------------------------------------------------------------

    def _chat_ids(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        enable_thinking: bool | None,
        arguments: Mapping[str, Any],
    ) -> list[int]:
        """`arguments`: the renderer's switches and the template's own variables."""
        if not isinstance(arguments, Mapping):
            raise UsageError(
                f"template_arguments is a {type(arguments).__name__}, a mapping of names is expected"
            )
        for name in arguments:
            if not isinstance(name, str):
                raise UsageError(f"template_arguments has the key {name!r}, a name is expected")
        switches = {name: arguments[name] for name in _TEMPLATE_SWITCHES if name in arguments}
        flags = switches if enable_thinking is None else {**switches, "enable_thinking": enable_thinking}
        for name, value in flags.items():
            if not isinstance(value, bool):
                raise UsageError(f"{name} is {value!r}, True or False is expected")
        variables = {name: value for name, value in arguments.items() if name not in switches}
        return self.template.encode(
            self.tokenizer,
            messages,
            tools=tools,
            enable_thinking=enable_thinking,
            variables=variables,
            **switches,
        )

    def _ids(self, prompt: Prompt) -> list[int]:
        if not isinstance(prompt, Sequence):
            raise UsageError(f"a prompt is a string or token ids, not {type(prompt).__name__}")
        if isinstance(prompt, str):
            return self.tokenize(prompt)
        return token_ids(prompt, self.spec.decoder.vocab)

    def _complete(self, ids: Sequence[int], options: GenerationOptions, continues: bool) -> Completion:
        timing = Timing()
        chunks = list(
            stream_tokens(self.session(), self.tokenizer, ids, options, continues=continues, timing=timing)
        )
        return self._completion(ids, chunks, timing, options)

    def _completion(
        self, ids: Sequence[int], chunks: Sequence[Chunk], timing: Timing, options: GenerationOptions
    ) -> Completion:
        reason = chunks[-1].finish_reason
        assert reason is not None  # a stream ends with one
        logprobs = [c.logprobs for c in chunks if c.logprobs is not None]
        return Completion(
            text="".join(c.text for c in chunks),
            token_ids=[c.token_id for c in chunks if c.token_id is not None],
            prompt_tokens=len(ids),
            finish_reason=reason,
            metrics=self.metrics(timing, len(ids)),
            logprobs=None if options.top_logprobs is None else logprobs,
        )

    def metrics(self, timing: Timing, prompt_tokens: int) -> Metrics:
        """Figures of a generation that filled `timing`."""
        prefill, decode = timing.rate(prompt_tokens)
        return Metrics(
            load_s=self.load_seconds,
            prefill_tok_s=prefill,
            decode_tok_s=decode,
            peak_rss_bytes=peak_rss_bytes(),
            device=self.device_description,
        )


def _chosen(
    options: GenerationOptions | None,
    overrides: Mapping[str, Any],
    default: GenerationOptions | None = None,
) -> GenerationOptions:
    """The options given, or the default, with the overrides; checked. Raises UsageError."""
    if options is None:
        options = default or GenerationOptions()
    chosen = generation_options(options).with_overrides(overrides)
    chosen.validate()
    return chosen


def _is_prompt(value: object) -> bool:
    """A string, or a sequence of token ids; an empty sequence is an empty prompt."""
    if isinstance(value, str):
        return True
    if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray):
        raise UsageError(f"a prompt is a string, token ids, or a list of those, not {type(value).__name__}")
    return all(not isinstance(item, str | Sequence) for item in value)
