"""The words of an expression.

Reference: the CEL language definition, "Syntax".
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from koordcore._record import record
from koordcore.allocators.claims.cel.errors import CompileFailure
from koordcore.allocators.claims.cel.values import INT64_MAX, UINT64_MAX, UInt


class TokenKind(StrEnum):
    """Kinds of words."""

    NAME = "name"
    LITERAL = "literal"
    SIGN = "sign"
    END = "end"


@record
class Token:
    """One word: its text, where it begins, and the value of a literal."""

    kind: TokenKind
    text: str
    at: int
    value: object = None


_TOKEN: Final = re.compile(
    r"""
    (?P<space>(?:[\t\n\f\r ]|//[^\n]*)+)
  | (?P<string>(?:[rR][bB]?|[bB][rR]?)?(?:\"{3}|'{3}|"|'))
  | (?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<int>0x[0-9a-fA-F]+[uU]?|[0-9]+[uU]?)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>==|!=|<=|>=|&&|\|\||[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE | re.ASCII,
)
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_SIMPLE_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`",
}  # fmt: skip
_ESCAPE: Final = re.compile(
    r"\\(?:(?P<code>[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})|(?P<simple>.)|\Z)",
    re.DOTALL,
)


def tokenize(text: str) -> list[Token]:
    """Split an expression into words, the last of kind ``END``."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise CompileFailure(at, f"Syntax error: token recognition error at: {text[at]!r}")
        kind, word = str(match.lastgroup), match.group()
        end = match.end()
        if kind == "string":
            value, end = _string(text, at, word)
            tokens.append(Token(TokenKind.LITERAL, text[at:end], at, value))
        elif kind in {"int", "float"}:
            tokens.append(Token(TokenKind.LITERAL, word, at, _number(word, at, whole=kind == "int")))
        elif kind == "name" and word in _CONSTANTS:
            tokens.append(Token(TokenKind.LITERAL, word, at, _CONSTANTS[word]))
        elif kind != "space":
            # "in" is an operator that looks like a name.
            is_name = kind == "name" and word != "in"
            tokens.append(Token(TokenKind.NAME if is_name else TokenKind.SIGN, word, at))
        at = end
    tokens.append(Token(TokenKind.END, "<EOF>", len(text)))
    return tokens


def _number(word: str, at: int, *, whole: bool) -> int | UInt | float:
    if not whole:
        return float(word)
    unsigned = word[-1] in "uU"
    digits = word[:-1] if unsigned else word
    # 2**64 has 20 digits; the bound keeps int() from working on what can only be refused.
    is_hex = digits[:2] == "0x"
    significant = digits[2:].lstrip("0") if is_hex else digits.lstrip("0")
    value = int(significant or "0", 16 if is_hex else 10) if len(significant) <= 20 else UINT64_MAX + 1
    if unsigned:
        if value > UINT64_MAX:
            raise CompileFailure(at, "invalid uint literal")
        return UInt(value)
    if value > INT64_MAX + 1:  # one more than fits: a minus may stand before it
        raise CompileFailure(at, "invalid int literal")
    return value


def _string(text: str, at: int, opening: str) -> tuple[str | bytes, int]:
    prefix = opening.rstrip("\"'").lower()
    quote = opening[len(prefix) :]
    start = at + len(opening)
    end = _closing(text, start, quote, raw="r" in prefix)
    if end < 0:
        raise CompileFailure(at, "Syntax error: token recognition error: string is not closed")
    body = text[start:end]
    if "b" in prefix:
        encoded = _unescape_bytes(body, start) if "r" not in prefix else body.encode("utf-8", "surrogatepass")
        return encoded, end + len(quote)
    return (body if "r" in prefix else _unescape(body, start)), end + len(quote)


def _closing(text: str, start: int, quote: str, *, raw: bool) -> int:
    position = start
    while position < len(text):
        if text.startswith(quote, position):
            return position
        if len(quote) == 1 and text[position] in "\r\n":
            return -1
        position += 2 if text[position] == "\\" and not raw else 1
    return -1


def _unescape(body: str, at: int) -> str:
    if "\\" not in body:
        return body
    return _ESCAPE.sub(lambda match: chr(_code(match, at, limit=0x10FFFF)), body)


def _unescape_bytes(body: str, at: int) -> bytes:
    parts: list[bytes] = []
    position = 0
    for match in _ESCAPE.finditer(body):
        parts.append(body[position : match.start()].encode("utf-8", "surrogatepass"))
        if match["code"] and match["code"][0] in "uU":
            raise CompileFailure(at + match.start(), "unicode escapes do not stand in bytes")
        parts.append(bytes([_code(match, at, limit=255)]))
        position = match.end()
    parts.append(body[position:].encode("utf-8", "surrogatepass"))
    return b"".join(parts)


def _code(match: re.Match[str], at: int, *, limit: int) -> int:
    if code := match["code"]:
        value = int(code[1:], 16) if code[0] in "xXuU" else int(code, 8)
        if value <= limit and not 0xD800 <= value < 0xE000:
            return value
    elif (simple := match["simple"]) in _SIMPLE_ESCAPES:
        return ord(_SIMPLE_ESCAPES[simple])
    raise CompileFailure(at + match.start(), f"unable to unescape string: {match.group()}")
