"""Every error that saragossa raises on purpose: one clear line, with the cure."""

from __future__ import annotations


class SaragossaError(Exception):
    """Base of all deliberate errors; `exit_code` is what the command line returns."""

    exit_code = 1

    def __init__(self, message: str, *, cure: str | None = None) -> None:
        self.message = message
        self.cure = cure
        super().__init__(f"{message} ({cure})" if cure else message)


class UsageError(SaragossaError):
    """The caller's options or arguments are wrong."""

    exit_code = 2


class ParameterError(UsageError):
    """A sampling or generation parameter is not a number or out of range; `param` names it."""

    def __init__(self, param: str, message: str, *, cure: str | None = None) -> None:
        self.param = param
        super().__init__(message, cure=cure)


class ContextLengthError(UsageError):
    """The prompt does not fit the context (OpenAI: context_length_exceeded).

    prompt_tokens, context: None where the core noticed, whose `message` says it in words.
    """

    def __init__(
        self, prompt_tokens: int | None = None, context: int | None = None, *, message: str | None = None
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.context = context
        super().__init__(
            message or f"the prompt has {prompt_tokens} tokens, the context holds {context}",
            cure="shorten the prompt or raise the context",
        )


class SnapshotNeededError(UsageError):
    """A rewind to a position whose state was not kept: recurrent layers and windows cannot be cut back."""


class ModelError(SaragossaError):
    """A model cannot be used: not a model folder, unsupported architecture."""


class ConfigError(ModelError):
    """config.json: a key that is unknown, missing or has an unsupported value."""


class WeightsError(ModelError):
    """Weights: a missing, extra or misshapen tensor, a truncated or missing file."""


class TokenizerError(ModelError):
    """tokenizer.json or its companions are missing or unreadable."""


class TemplateError(UsageError):
    """The chat template refuses these messages."""


class HubError(SaragossaError):
    """The hub says no: gated, missing, offline, rate-limited."""


class ConvertError(SaragossaError):
    """A conversion cannot be done; nothing was left behind."""


class DeviceError(SaragossaError):
    """A device is missing or failed."""
