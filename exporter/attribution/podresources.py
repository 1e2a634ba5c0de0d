"""The messages of the kubelet's PodResources v1 API: the wire format of protobuf, as far as they use it.

Decoded here since the runtime of protobuf would add megabytes to a process that reads one message, and since a known
field of another type is an error rather than an unknown field: an answer of something else must not pass for a node
without pods.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_MORE = 0x80
"""The bit of a byte that says that more bytes of the number follow."""


class WireError(ValueError):
    """The bytes are not the message that was expected."""


class Devices(NamedTuple):
    resource: str
    ids: tuple[str, ...]


class ClaimedDevice(NamedTuple):
    """A device of dynamic resource allocation, and the claim that it was given through."""

    claim_namespace: str
    claim: str
    driver: str
    pool: str
    device: str


class Container(msgspec.Struct, frozen=True):
    name: str
    devices: tuple[Devices, ...] = ()
    claimed: tuple[ClaimedDevice, ...] = ()


class Pod(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    containers: tuple[Container, ...] = ()
    """Only those that hold a device."""


def decode_list(data: bytes) -> tuple[Pod, ...]:
    """Decode the answer of List: all pods of the node, those without a device too. Raises WireError."""
    return tuple(_pod(value) for number, value in _fields(memoryview(data)) if number == 1)


def decode_get(data: bytes) -> Pod | None:
    """Decode the answer of Get. Raises WireError."""
    return next((_pod(value) for number, value in _fields(memoryview(data)) if number == 1), None)


def encode_get(namespace: str, name: str) -> bytes:
    """Encode the request of Get."""
    return _text_field(1, name) + _text_field(2, namespace)


def _pod(value: memoryview | int) -> Pod:
    name = namespace = ""
    containers = []
    for number, field in _fields(value):
        match number:
            case 1:
                name = _text(field)
            case 2:
                namespace = _text(field)
            case 3:
                container = _container(field)
                if container.devices or container.claimed:
                    containers.append(container)
    if not name or not namespace:
        raise WireError("a pod has no name")
    return Pod(namespace, name, tuple(containers))


def _container(value: memoryview | int) -> Container:
    name = ""
    devices: list[Devices] = []
    claimed: list[ClaimedDevice] = []
    for number, field in _fields(value):
        match number:
            case 1:
                name = _text(field)
            case 2:
                devices.append(_devices(field))
            case 5:
                claimed += _dynamic_resource(field)
    return Container(name, tuple(one for one in devices if one.ids), tuple(claimed))


def _devices(value: memoryview | int) -> Devices:
    resource = ""
    ids = []
    for number, field in _fields(value):
        match number:
            case 1:
                resource = _text(field)
            case 2:
                ids.append(_text(field))
    return Devices(resource, tuple(ids))


def _dynamic_resource(value: memoryview | int) -> Iterator[ClaimedDevice]:
    claim = namespace = ""
    resources = []
    for number, field in _fields(value):
        match number:
            case 2:
                claim = _text(field)
            case 3:
                namespace = _text(field)
            case 4:
                resources.append(field)
    for resource in resources:
        yield _claimed(namespace, claim, resource)


def _claimed(namespace: str, claim: str, value: memoryview | int) -> ClaimedDevice:
    parts = {2: "", 3: "", 4: ""}
    for number, field in _fields(value):
        if number in parts:
            parts[number] = _text(field)
    return ClaimedDevice(namespace, claim, *parts.values())


def _fields(message: memoryview | int) -> Iterator[tuple[int, memoryview | int]]:
    """Walk over the fields of one message: its number, and its bytes or whole number."""
    if isinstance(message, int):
        raise WireError("a number where a message belongs")
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise WireError("a field has the number 0")
        if wire_type == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire_type == _BYTES:
            length, at = _varint(message, at)
        elif wire_type == _EIGHT_BYTES:
            length = 8
        elif wire_type == _FOUR_BYTES:
            length = 4
        else:
            raise WireError(f"a field has the wire type {wire_type}")
        if length > end - at:
            raise WireError("it is cut off")
        yield number, message[at : at + length] if wire_type == _BYTES else 0
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(data[at : at + _MOST_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * count
        if byte < _MORE:
            return value, at + count + 1
    raise WireError("it is cut off, or a number is too long")


def _text(value: memoryview | int) -> str:
    if isinstance(value, int):
        raise WireError("a number where text belongs")
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        raise WireError("a text is not UTF-8") from None


def _text_field(number: int, text: str) -> bytes:
    data = text.encode()
    return bytes([number << 3 | _BYTES]) + _varint_bytes(len(data)) + data


def _varint_bytes(value: int) -> bytes:
    parts = bytearray()
    while value >= _MORE:
        parts.append(value & 0x7F | _MORE)
        value >>= 7
    parts.append(value)
    return bytes(parts)
