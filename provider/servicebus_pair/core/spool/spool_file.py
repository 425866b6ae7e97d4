"""The format of a file of the spool: a line of JSON about it, then a record for each message. Pure.

A record is its length and the CRC-32 of its content, four bytes each in network order, and its content: a message as
JSON, encrypted with AES-256-GCM if there is a key. A key for each file is derived from the given one (HKDF-SHA256 with
the file's salt, RFC 5869), the nonce is the record's number, and the first line is authenticated with each record.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from servicebus_pair.core.model.checks import CONTROL_CHARACTERS
from servicebus_pair.core.model.errors import ConfigurationError, SpoolFullError
from servicebus_pair.core.model.options import Secret
from servicebus_pair.core.model.regular_files import count_values
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.spool.message_json import from_json, to_json

_FORMAT: Final = "servicebus-pair spool 1"
_RECORD: Final = struct.Struct(">II")
_MAX_HEADER_BYTES: Final = 65_536
# A large file of zeros takes nothing of the disk, and has millions of records.
_MAX_DAMAGED: Final = 10_000
# Of a file of any size: a message has a dozen, and "[]," takes memory sixty times its size.
_MAX_VALUES: Final = 1_000_000
_FEW_VALUES: Final = 64
_KEY_BYTES: Final = 32
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12


class ForeignFileError(ValueError):
    """The file was not written by a spool."""


class FileFullError(SpoolFullError):
    """Messages do not fit into one file; fewer of them may."""


class WrongKeyError(ValueError):
    """The file is encrypted with another key, or with one where none is given, or with none where one is."""


class SpoolKey:
    """A key that encrypts the spool: 32 bytes in URL-safe base64, as ``Fernet.generate_key()`` returns.

    :raises ConfigurationError: it is none; the text is never quoted.
    """

    def __init__(self, secret: Secret) -> None:
        try:
            self._key = urlsafe_b64decode(secret.reveal().encode("ascii"))
        except ValueError:
            self._key = b""
        if len(self._key) != _KEY_BYTES:
            raise ConfigurationError(f"the spool's key is not {_KEY_BYTES} bytes in URL-safe base64")
        self.id = sha256(b"servicebus-pair spool key" + self._key).hexdigest()[:16]

    def cipher(self, salt: bytes) -> Any:
        """Return the cipher of a file."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        derived = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=salt, info=_FORMAT.encode()).derive(self._key)
        return AESGCM(derived)


@dataclass(frozen=True, slots=True)
class SpoolFile:
    """What is in a file.

    :param created_at: Unix time in seconds.
    :param damage: why messages are missing; ``None`` when it is whole.
    """

    entity: str
    created_at: float
    messages: tuple[AmqpMessage, ...]
    damage: str | None = None


def encode_file(
    entity: str, messages: Sequence[AmqpMessage], *, created_at: float, key: SpoolKey | None = None
) -> bytes:
    """Return a file with ``messages``.

    :raises TypeError: a message has a value that cannot be kept.
    :raises FileFullError: together they have more values than are read from a file.
    """
    about: dict[str, Any] = {"format": _FORMAT, "entity": entity, "created": created_at, "messages": len(messages)}
    salt = b""
    if key is not None:
        salt = os.urandom(_SALT_BYTES)
        about |= {"key": key.id, "salt": salt.hex()}
    header = json.dumps(about, separators=(",", ":")).encode() + b"\n"
    cipher = None if key is None else key.cipher(salt)
    parts, values = [header], 0
    for number, message in enumerate(messages):
        content = to_json(message)
        try:
            values = _add_values(values, content)
        except ValueError as error:
            raise FileFullError(f"{len(messages)} messages do not fit into a file of the spool: {error}") from None
        if cipher is not None:
            content = cipher.encrypt(_nonce(number), content, header)
        parts += [_RECORD.pack(len(content), zlib.crc32(content)), content]
    return b"".join(parts)


def decode_file(content: bytes, *, key: SpoolKey | None = None, plain: bool = False) -> SpoolFile:
    """Return what is in a file; of a damaged one, every message that is whole.

    :param plain: read what is not encrypted although there is a key, so that anybody may have written it.
    :raises ForeignFileError: the file is none of a spool, or its first line is damaged.
    :raises WrongKeyError: the file cannot be read with ``key``.
    """
    header, about = _read_header(content)
    cipher = None
    if about.get("key") is not None:
        if key is None or key.id != about["key"]:
            given = "none is given" if key is None else f"the given one has the id {key.id}"
            raise WrongKeyError(f"the file is encrypted with the key of id {about['key']}, and {given}")
        cipher = key.cipher(about["salt"])
    elif key is not None and not plain:
        raise WrongKeyError(f"the file is not encrypted, and the key of id {key.id} is given")
    messages, damage, position, number, damaged, values = [], None, len(header), 0, 0, 0
    while position < len(content) and damaged < _MAX_DAMAGED:
        end_of_prefix = position + _RECORD.size
        # Of a torn prefix, a length that nothing has.
        length, checksum = _RECORD.unpack(content[position:end_of_prefix].ljust(_RECORD.size, b"\xff"))
        # Not copied: one message may take all of the file.
        view = memoryview(content)[end_of_prefix : end_of_prefix + length]
        position = end_of_prefix + length
        try:
            record = _decrypt(cipher, number, _whole(view, length, checksum), header)
            values = _add_values(values, bytes(record))
            messages.append(from_json(record))
        except ValueError as error:
            damage = f"record {number} is damaged: {error}"
            damaged += 1
        number += 1
    if damage is None and len(messages) != about["messages"]:
        damage = f"it has {len(messages)} of {about['messages']} messages"
    return SpoolFile(about["entity"], about["created"], tuple(messages), damage)


def _add_values(count: int, record: bytes) -> int:
    count += count_values(record, above=_FEW_VALUES, limit=_MAX_VALUES)
    if count > _MAX_VALUES:
        raise ValueError(f"more than {_MAX_VALUES} values with it")
    return count


def _whole(record: memoryview, length: int, checksum: int) -> memoryview:
    if len(record) < length or zlib.crc32(record) != checksum:
        raise ValueError("torn")
    return record


def _read_header(content: bytes) -> tuple[bytes, dict[str, Any]]:
    end = content[:_MAX_HEADER_BYTES].find(b"\n") + 1
    try:
        about = json.loads(content[:end])
        # Both are shown to people, and the entity names where messages go.
        texts = (about["entity"], about.get("key") or "")
        is_ours = about["format"] == _FORMAT and all(CONTROL_CHARACTERS.search(each) is None for each in texts)
        about |= {"created": float(about["created"]), "messages": int(about["messages"])}
        about["salt"] = bytes.fromhex(about.get("salt", ""))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ForeignFileError("not a file of a spool, or its first line is damaged") from error
    if not is_ours:
        raise ForeignFileError(f"not a file of a spool of this version, which writes {_FORMAT!r}")
    return content[:end], about


def _decrypt(cipher: Any, number: int, record: memoryview, header: bytes) -> bytes | memoryview:
    if cipher is None:
        return record
    from cryptography.exceptions import InvalidTag

    try:
        return bytes(cipher.decrypt(_nonce(number), record, header))
    except InvalidTag as error:
        raise ValueError("it was changed after it was written") from error


def _nonce(number: int) -> bytes:
    return number.to_bytes(_NONCE_BYTES, "big")
