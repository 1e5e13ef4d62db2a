"""What goes wrong with a request, by whose fault it is. razzo.runtime.status turns these into a Status."""

from razzo.protocol.codes import Code


class RazzoError(Exception):
    """A failure with a code of the public API and a sentence a user of the API can act on."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type["RazzoError"], tuple[Code, str]]:
        return type(self), (self.code, self.message)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code.name}, {self.message!r})"


class RequestRefused(RazzoError):
    """The caller's fault: the same request would be refused again."""


class BrokerFault(RazzoError):
    """Ours, or of the moment: the request was fine and may succeed elsewhere or later."""
