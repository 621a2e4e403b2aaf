"""What Go's ``encoding/json`` says about a text that it refuses.

Upstream puts the decoder's own words into the reason why a pod is refused, so the same words are found here:
the first offending character and what was expected at its place, or the first value of the wrong type.
"""

from __future__ import annotations

from typing import Final

_SPACE: Final = " \t\r\n"
_DIGITS: Final = "0123456789"
_LITERALS: Final = {"t": "true", "f": "false", "n": "null"}
_END: Final = "unexpected end of JSON input"
_QUOTED: Final = {"'": r"'\''", '"': "'\"'", "\n": r"'\n'", "\t": r"'\t'", "\r": r"'\r'", "\\": r"'\\'"}


class _Refused(Exception):  # noqa: N818 - carries the message out of the recursion, never leaves the module
    pass


class _Scanner:
    """Walks a text once and stops at the first character that no JSON text can have there."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        if self.at >= len(self.text):
            raise _Refused(_END)
        return self.text[self.at]

    def take(self) -> str:
        char = self.peek()
        self.at += 1
        return char

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1

    def refuse(self, context: str) -> _Refused:
        char = self.peek()
        shown = _QUOTED.get(char) or (f"'{char}'" if char.isprintable() else f"'\\x{ord(char):02x}'")
        return _Refused(f"invalid character {shown} {context}")

    def value(self) -> None:
        self.space()
        char = self.peek()
        if char == "{":
            self.object()
        elif char == "[":
            self.array()
        elif char == '"':
            self.string()
        elif char in _LITERALS:
            self.literal(_LITERALS[char])
        elif char == "-" or char in _DIGITS:
            self.number()
        else:
            raise self.refuse("looking for beginning of value")

    def object(self) -> None:
        self.take()
        self.space()
        if self.peek() == "}":
            self.take()
            return
        while True:
            self.space()
            if self.peek() != '"':
                raise self.refuse("looking for beginning of object key string")
            self.string()
            self.space()
            if self.peek() != ":":
                raise self.refuse("after object key")
            self.take()
            self.value()
            self.space()
            if self.peek() not in ",}":
                raise self.refuse("after object key:value pair")
            if self.take() == "}":
                return

    def array(self) -> None:
        self.take()
        self.space()
        if self.peek() == "]":
            self.take()
            return
        while True:
            self.value()
            self.space()
            if self.peek() not in ",]":
                raise self.refuse("after array element")
            if self.take() == "]":
                return

    def string(self) -> None:
        self.take()
        while True:
            char = self.peek()
            if char < " ":
                raise self.refuse("in string literal")
            self.take()
            if char == '"':
                return
            if char == "\\":
                if self.peek() not in 'bfnrt\\/"u':
                    raise self.refuse("in string escape code")
                if self.take() == "u":
                    for _ in range(4):
                        if self.peek() not in "0123456789abcdefABCDEF":
                            raise self.refuse(r"in \u hexadecimal character escape")
                        self.take()

    def literal(self, word: str) -> None:
        self.take()
        for expected in word[1:]:
            if self.peek() != expected:
                raise self.refuse(f"in literal {word} (expecting '{expected}')")
            self.take()

    def number(self) -> None:
        if self.peek() == "-":
            self.take()
            if self.peek() not in _DIGITS:
                raise self.refuse("in numeric literal")
        if self.take() != "0":
            self.digits()
        if self.next_is("."):
            self.take()
            if self.peek() not in _DIGITS:
                raise self.refuse("after decimal point in numeric literal")
            self.digits()
        if self.next_is("eE"):
            self.take()
            if self.peek() in "+-":
                self.take()
            if self.peek() not in _DIGITS:
                raise self.refuse("in exponent of numeric literal")
            self.digits()

    def next_is(self, chars: str) -> bool:
        return self.at < len(self.text) and self.text[self.at] in chars

    def digits(self) -> None:
        while self.next_is(_DIGITS):
            self.at += 1


def syntax_error(text: str) -> str | None:
    """Find what is wrong with a JSON text, in the decoder's words; ``None`` for a sound text.

    Examples
    --------
    >>> syntax_error("{bad")
    "invalid character 'b' looking for beginning of object key string"
    >>> syntax_error('{"a": 1')
    'unexpected end of JSON input'
    """
    scanner = _Scanner(text)
    try:
        scanner.value()
        scanner.space()
        if scanner.at < len(text):
            raise scanner.refuse("after top-level value")
    except _Refused as refusal:
        return str(refusal)
    except RecursionError:
        return "exceeded max depth"
    return None


def kind_of(value: object) -> str:
    """Name the kind of a JSON value as the decoder does; a number with its text where that is fractional."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "number"
    if isinstance(value, float):
        return f"number {value:g}"
    return "array" if isinstance(value, list) else "object"


def type_error(value: object, go_type: str, field: str = "") -> str:
    """Word the refusal of a value of the wrong type.

    Parameters
    ----------
    value
        What the text holds.
    go_type
        The type it should have, such as ``[]v1alpha1.DeviceType``.
    field
        ``Struct.path`` for a field of a struct, empty for a value as a whole.

    Examples
    --------
    >>> type_error([1], "extension.DeviceAllocateHints")
    'json: cannot unmarshal array into Go value of type extension.DeviceAllocateHints'
    """
    place = f"Go struct field {field}" if field else "Go value"
    return f"json: cannot unmarshal {kind_of(value)} into {place} of type {go_type}"
