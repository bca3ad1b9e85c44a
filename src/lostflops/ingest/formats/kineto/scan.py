"""Events of a trace from its text straight to columns, without a Python object for each: the compiled part.

`scan_events` reads an array of events in one pass and fills a row of integers for each. Repeated texts and lanes become
codes by two hash tables that the caller keeps. It takes only what it is certain about, and declines the rest: halves of
characters, times with an exponent, fields of an unusual type. Then the caller decodes that piece into objects. So
whatever is accepted has exactly the meaning that decoding gives it.

Positions are addresses. The text ends with zero bytes, which stop every loop; a negative position is why a function
stopped. `state` is the address of the words in `State`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from lostflops.ingest.common.columns import NULL
from lostflops.ingest.formats.kineto.raw_memory import WORD, byte_at, compile_function, put_byte, put_word, word_at

DECLINED: Final = -1
FULL: Final = -2
"""A table is full: make it larger and scan the piece again."""
ABSENT: Final = -(1 << 62)
"""A process, thread, device or stream that is missing or null."""
TEXT_LANE: Final = 1 << 61
"""Added to the code of a process, thread, device or stream that is a text."""
PADDING: Final = 16
"""Zero bytes after a text that is scanned."""
KEY_SLOTS: Final = 1024
KEY_BYTES: Final = 48
"""Each key begins at a multiple of this; the others are zero."""


class ValueKind(IntEnum):
    """How a field is read."""

    SKIPPED = 0
    PHASE = 1
    TEXT = 2
    TIME = 3
    LANE = 4
    INTEGER = 5
    RAW = 6
    DECIMAL = 7
    PRESENT = 8
    """Only whether it is there and not null."""
    LATER = 9
    """Decoded from the text of its event where it is needed."""
    ARGS = 10
    WHOLE = 11
    """An integer, also in quotes."""


class ScanColumn(IntEnum):
    """Places in the row of an event."""

    PHASE = 0
    CATEGORY = 1
    NAME = 2
    LANE = 3
    START = 4
    DURATION = 5
    BEGIN = 6
    """Where the text of the event begins in the piece."""
    END = 7
    EXTERNAL_ID = 8
    OLD_EXTERNAL_ID = 9
    CORRELATION = 10
    SEQUENCE = 11
    FORWARD_THREAD = 12
    REGISTERS = 13
    SHARED_MEMORY = 14
    BYTES = 15
    SIZE = 16
    WAIT_STREAM = 17
    WAIT_CORRELATION = 18
    INPUTS = 19
    DTYPES = 20
    SHAPES = 21
    GRID = 22
    BLOCK = 23
    CALL_STACK = 24
    COLLECTIVE = 25
    OCCUPANCY = 26
    OCCUPANCY_SCALE = 27
    """Power of ten to divide by; 0 if the field is missing or null."""
    PID = 28
    TID = 29
    DEVICE = 30
    STREAM = 31


class State(IntEnum):
    """Words of the state: addresses of tables, their sizes and how much of them is used."""

    ROWS = 0
    MOST_ROWS = 1
    USED_ROWS = 2
    EMPTY_ROW = 3
    SLOTS = 4
    SLOT_MASK = 5
    HASHES = 6
    MOST_TEXTS = 7
    USED_TEXTS = 8
    STARTS = 9
    ARENA = 10
    ARENA_BYTES = 11
    LANE_SLOTS = 12
    LANE_MASK = 13
    LANES = 14
    MOST_LANES = 15
    USED_LANES = 16
    KEYS = 17
    """Of each field, from 1: its key."""
    KEY_SIZES = 18
    KEY_LEVELS = 19
    KEY_SLOTS = 20
    KINDS = 21
    COLUMNS = 22
    NON_ASCII = 23
    """Whether a text has a byte above 127."""


LANE_PARTS: Final = 4
_SKIPPED, _LATER = int(ValueKind.SKIPPED), int(ValueKind.LATER)
_WIDTH: Final = len(ScanColumn)
_ROW_BYTES: Final = WORD * _WIDTH
_FARTHEST_US: Final = 4_000_000_000_000_000
_MOST_EXACT: Final = 1_000_000_000_000_000
_LOW: Final = 0x2020202020202020
_ONES: Final = 0x0101010101010101
_QUOTES: Final = 0x2222222222222222
_BACKSLASHES: Final = 0x5C5C5C5C5C5C5C5C
_HIGH: Final = -0x7F7F7F7F7F7F7F80
"""The highest bit of each byte."""


@compile_function
def _skip_space(i: int) -> int:
    c = byte_at(i)
    while c <= 32 and c in (32, 10, 13, 9):
        i += 1
        c = byte_at(i)
    return i


@compile_function
def _skip_plain(i: int) -> int:
    """Return the next byte that is not a plain character of a text."""
    special = 0
    while not special:
        word = word_at(i)
        quote, backslash = word ^ _QUOTES, word ^ _BACKSLASHES
        # A byte is special if its highest bit is set here; of those after the first this is not certain.
        special = (word | (word - _LOW) | (quote - _ONES) | (backslash - _ONES)) & _HIGH
        i += WORD
    i -= WORD
    if not special & 0x80808080:
        i, special = i + 4, special >> 32
    if not special & 0x8080:
        i, special = i + 2, special >> 16
    return i if special & 0x80 else i + 1


@compile_function
def _end_of_text(i: int, state: int) -> int:
    """Return where the text that begins after a quote has its closing quote."""
    while True:
        i = _skip_plain(i)
        c = byte_at(i)
        if c == 34:
            return i
        if c >= 128:
            put_word(state + WORD * State.NON_ASCII, 1)
            i += 1
        elif c == 92:
            i = _skip_escape(i + 1)
            if i < 0:
                return DECLINED
        else:
            return DECLINED


@compile_function
def _skip_escape(i: int) -> int:
    c = byte_at(i)
    if c in (34, 92, 47, 98, 102, 110, 114, 116):
        return i + 1
    if c != 117:
        return DECLINED
    for k in range(1, 5):
        c = byte_at(i + k) | 32
        if not (48 <= c <= 57 or 97 <= c <= 102) or byte_at(i + k) < 48:
            return DECLINED
    if byte_at(i + 1) | 32 == 100 and byte_at(i + 2) >= 56:  # half of a character
        return DECLINED
    return i + 5


@compile_function
def _skip_digits(i: int) -> int:
    """Return the end of at least one digit."""
    first = i
    while 48 <= byte_at(i) <= 57:
        i += 1
    return i if first < i < first + 300 else DECLINED


@compile_function
def _skip_number(i: int, with_exponent: bool) -> int:
    if byte_at(i) == 45:
        i += 1
    first = i
    i = _skip_digits(i)
    if i < 0 or (byte_at(first) == 48 and i > first + 1):
        return DECLINED
    if byte_at(i) == 46:
        i = _skip_digits(i + 1)
        if i < 0:
            return DECLINED
    if byte_at(i) | 32 != 101:
        return i
    if not with_exponent:
        return DECLINED
    i += 1
    if byte_at(i) == 43 or byte_at(i) == 45:
        i += 1
    return _skip_digits(i)


@compile_function
def _skip_word(i: int) -> int:
    """Return the end of null, true or false."""
    word = word_at(i) & 0xFFFFFFFF
    if word in (0x6C6C756E, 0x65757274):
        return i + 4
    return i + 5 if word == 0x736C6166 and byte_at(i + 4) == 101 else DECLINED


@compile_function
def _skip_scalar(i: int, with_exponent: bool, state: int) -> int:
    c = byte_at(i)
    if c == 34:
        i = _end_of_text(i + 1, state)
        return i + 1 if i >= 0 else DECLINED
    if c == 45 or 48 <= c <= 57:
        return _skip_number(i, with_exponent)
    return _skip_word(i)


@compile_function
def _skip_key(i: int, state: int) -> int:
    """Return where the value after a key begins."""
    i = _skip_space(i)
    if byte_at(i) != 34:
        return DECLINED
    i = _end_of_text(i + 1, state)
    if i < 0:
        return DECLINED
    i = _skip_space(i + 1)
    return _skip_space(i + 1) if byte_at(i) == 58 else DECLINED


@compile_function
def _open(i: int, state: int) -> int:
    """Return where the first value in an array or object begins; the end, negated, if it has none."""
    c = byte_at(i)
    i = _skip_space(i + 1)
    if byte_at(i) == c + 2:
        return -i
    return _skip_key(i, state) if c == 123 else i


@compile_function
def _skip_value(i: int, with_exponent: bool, state: int) -> int:
    c = byte_at(i)
    if c not in (91, 123):
        return _skip_scalar(i, with_exponent, state)
    depth, objects = 0, 0  # one bit for each open array or object, the innermost last
    while True:
        c = byte_at(i)
        is_inside = False
        if c in (91, 123):
            depth, objects = depth + 1, objects * 2 + (c == 123)
            i = _open(i, state)
            is_inside = i > 0
            i = -i if i < DECLINED else i
        else:
            i = _skip_scalar(i, with_exponent, state)
        while i > 0 and not is_inside:
            i = _skip_space(i)
            c = byte_at(i)
            if c == 44:
                i = _skip_key(i + 1, state) if objects & 1 else _skip_space(i + 1)
                is_inside = True
            elif c == (125 if objects & 1 else 93):
                depth, objects, i = depth - 1, objects >> 1, i + 1
                if depth == 0:
                    return i
            else:
                return DECLINED
        if i < 0 or depth > 60:
            return DECLINED


@compile_function
def _read_integer(i: int) -> tuple[int, int]:
    """Return the end of an integer of up to 18 digits, and its value."""
    is_negative = byte_at(i) == 45
    if is_negative:
        i += 1
    first, value, c = i, 0, byte_at(i)
    while 48 <= c <= 57 and i < first + 18:
        value = value * 10 + (c - 48)
        i += 1
        c = byte_at(i)
    if i == first or (byte_at(first) == 48 and i > first + 1) or 48 <= c <= 57 or c == 46 or c | 32 == 101:
        return DECLINED, 0
    return i, -value if is_negative else value


@compile_function
def _read_whole(i: int) -> tuple[int, int]:
    """Return the end of an integer, in quotes or not, and its value; a text of another kind is null."""
    if byte_at(i) != 34:
        return (_skip_word(i), NULL) if byte_at(i) == 110 else _read_integer(i)
    end = _skip_plain(i + 1)
    if byte_at(end) != 34 or end > i + 19:
        return DECLINED, 0
    is_negative = byte_at(i + 1) == 45
    i += 2 if is_negative else 1
    value = 0 if i < end else NULL
    while i < end and value != NULL:
        c = byte_at(i)
        value = value * 10 + (c - 48) if 48 <= c <= 57 else NULL
        i += 1
    return end + 1, -value if is_negative and value != NULL else value


@compile_function
def _read_time(i: int) -> tuple[int, int]:
    """Return the end of decimal microseconds, and nanoseconds, as `exact_time` gives them."""
    if byte_at(i) == 110:
        return _skip_word(i), NULL
    is_negative = byte_at(i) == 45
    if is_negative:
        i += 1
    first, value, c = i, 0, byte_at(i)
    while 48 <= c <= 57 and i < first + 16:
        value = value * 10 + (c - 48)
        i += 1
        c = byte_at(i)
    if i == first or (byte_at(first) == 48 and i > first + 1) or value >= _FARTHEST_US:
        return DECLINED, 0
    value *= 1000
    if c == 46:
        i, value = _read_decimals(i + 1, value)
        c = byte_at(i) if i >= 0 else 48
    if 48 <= c <= 57 or c | 32 == 101:
        return DECLINED, 0
    return i, -value if is_negative else value


@compile_function
def _read_decimals(i: int, value: int) -> tuple[int, int]:
    """Return the end of the decimals, and the value with three of them, rounded half-even by the others."""
    first, weight, c = i, 100, byte_at(i)
    while 48 <= c <= 57 and i < first + 3:
        value += (c - 48) * weight
        weight //= 10
        i += 1
        c = byte_at(i)
    if i == first:
        return DECLINED, 0
    if not 48 <= c <= 57:
        return i, value
    half, rest = c - 48, 0
    i += 1
    while 48 <= byte_at(i) <= 57 and i < first + 300:
        rest |= byte_at(i) - 48
        i += 1
    if half > 5 or (half == 5 and (rest > 0 or value % 2 == 1)):
        value += 1
    return i, value


@compile_function
def _read_decimal(i: int) -> tuple[int, int, int]:
    """Return the end of a number of up to 15 digits, its digits, and the power of ten to divide them by."""
    if byte_at(i) == 110:
        return _skip_word(i), 0, 0
    end = _skip_number(i, False)
    if end < 0 or end > i + 16 or byte_at(i) == 45:
        return DECLINED, 0, 0
    value, scale, has_point = 0, 1, False
    while i < end:
        c = byte_at(i)
        if c == 46:
            has_point = True
        else:
            value = value * 10 + (c - 48)
            scale *= 10 if has_point else 1
        i += 1
    return (end, value, scale) if value < _MOST_EXACT else (DECLINED, 0, 0)


@compile_function
def _tail(i: int, size: int) -> int:
    """Return fewer than eight bytes as an integer."""
    return word_at(i) & ((1 << (8 * size)) - 1)


@compile_function
def _hash(i: int, end: int) -> int:
    value = end - i
    while i + WORD <= end:
        word = word_at(i)
        value = (value * 16777619 + ((word ^ (word >> 31)) & 0xFFFFFFFFFF)) & 0x3FFFFFFFF
        i += WORD
    word = _tail(i, end - i)
    value = (value * 16777619 + ((word ^ (word >> 31)) & 0xFFFFFFFFFF)) & 0x3FFFFFFFF
    return value ^ (value >> 15)


@compile_function
def _is_same(i: int, end: int, other: int) -> bool:
    while i + WORD <= end:
        if word_at(i) != word_at(other):
            return False
        i += WORD
        other += WORD
    return _tail(i, end - i) == _tail(other, end - i)


@compile_function
def _code(first: int, end: int, state: int) -> int:
    """Return the code of a text, a new one if it is not known; 0 is the empty text."""
    size = end - first
    if size == 0:
        return 0
    value = _hash(first, end)
    slots, mask = word_at(state + WORD * State.SLOTS), word_at(state + WORD * State.SLOT_MASK)
    hashes, starts = word_at(state + WORD * State.HASHES), word_at(state + WORD * State.STARTS)
    arena = word_at(state + WORD * State.ARENA)
    at = value & mask
    code = word_at(slots + WORD * at)
    while code:
        if word_at(hashes + WORD * code) == value:
            begin = word_at(starts + WORD * code)
            if word_at(starts + WORD * (code + 1)) - begin == size and _is_same(first, end, arena + begin):
                return code
        at = (at + 1) & mask
        code = word_at(slots + WORD * at)
    code = word_at(state + WORD * State.USED_TEXTS)
    begin = word_at(starts + WORD * code)
    room = word_at(state + WORD * State.ARENA_BYTES) - PADDING
    if code == word_at(state + WORD * State.MOST_TEXTS) or begin + size > room:
        return FULL
    put_word(slots + WORD * at, code)
    put_word(hashes + WORD * code, value)
    put_word(starts + WORD * (code + 1), begin + size)
    put_word(state + WORD * State.USED_TEXTS, code + 1)
    for k in range(size):
        put_byte(arena + begin + k, byte_at(first + k))
    return code


@compile_function
def _lane(parts: int, state: int) -> int:
    """Return the code of process, thread, device and stream."""
    value = 0
    for k in range(LANE_PARTS):
        value = (value * 1000003 + (word_at(parts + WORD * k) & 0xFFFFFFF)) & 0x3FFFFFFFF
    slots, mask = word_at(state + WORD * State.LANE_SLOTS), word_at(state + WORD * State.LANE_MASK)
    lanes = word_at(state + WORD * State.LANES)
    at = (value ^ (value >> 15)) & mask
    code = word_at(slots + WORD * at)
    while code >= 0:
        if _is_same(parts, parts + WORD * LANE_PARTS, lanes + WORD * LANE_PARTS * code):
            return code
        at = (at + 1) & mask
        code = word_at(slots + WORD * at)
    code = word_at(state + WORD * State.USED_LANES)
    if code == word_at(state + WORD * State.MOST_LANES):
        return FULL
    put_word(slots + WORD * at, code)
    put_word(state + WORD * State.USED_LANES, code + 1)
    for k in range(LANE_PARTS):
        put_word(lanes + WORD * (LANE_PARTS * code + k), word_at(parts + WORD * k))
    return code


@compile_function
def _field(first: int, end: int, level: int, state: int) -> int:
    """Return the number of the field with this key; 0 for a field that no column needs."""
    size = end - first
    if size == 0 or size > KEY_BYTES:
        return 0
    slots = word_at(state + WORD * State.KEY_SLOTS)
    at = (size * 37 + byte_at(first) * 7 + byte_at(end - 1) * 31 + level * 499) & (KEY_SLOTS - 1)
    field = word_at(slots + WORD * at)
    while field:
        if (
            word_at(word_at(state + WORD * State.KEY_SIZES) + WORD * field) == size
            and word_at(word_at(state + WORD * State.KEY_LEVELS) + WORD * field) == level
            and _is_same(first, end, word_at(state + WORD * State.KEYS) + KEY_BYTES * field)
        ):
            return field
        at = (at + 1) & (KEY_SLOTS - 1)
        field = word_at(slots + WORD * at)
    return 0


@compile_function
def _read_key(i: int) -> tuple[int, int]:
    """Return where a key of plain characters ends, and where its value begins."""
    if byte_at(i) != 34:
        return DECLINED, DECLINED
    end = _skip_plain(i + 1)
    if byte_at(end) != 34:
        return DECLINED, DECLINED
    i = _skip_space(end + 1)
    return end, (_skip_space(i + 1) if byte_at(i) == 58 else DECLINED)


@compile_function
def _read_text(i: int, state: int) -> tuple[int, int]:
    """Return the end of a text, and the code of what is between its quotes."""
    if byte_at(i) != 34:
        return DECLINED, 0
    end = _end_of_text(i + 1, state)
    if end < 0:
        return DECLINED, 0
    code = _code(i + 1, end, state)
    return (end + 1, code) if code >= 0 else (code, 0)


@compile_function
def _read_raw(i: int, state: int) -> tuple[int, int]:
    """Return the end of a value, and the code of its text."""
    end = _skip_value(i, False, state)
    if end < 0:
        return DECLINED, 0
    code = _code(i, end, state)
    return (end, code) if code >= 0 else (code, 0)


@compile_function
def _read_lane_part(i: int, state: int) -> tuple[int, int]:
    """Return the end of a process, thread, device or stream, and a number for it."""
    if byte_at(i) == 34:
        end, code = _read_raw(i, state)
        return end, TEXT_LANE + code
    if byte_at(i) == 110:
        return _skip_word(i), ABSENT
    return _read_integer(i)


@compile_function
def _read_phase(i: int) -> tuple[int, int]:
    c = byte_at(i + 1)
    is_plain = 32 <= c < 128 and c not in (34, 92)
    return (i + 3, c) if is_plain and byte_at(i) == 34 and byte_at(i + 2) == 34 else (DECLINED, 0)


@compile_function
def _read_field(i: int, kind: int, state: int) -> tuple[int, int]:
    """Return the end of a value, and the number that stands for it."""
    if kind in (_SKIPPED, _LATER):
        return _skip_value(i, kind == _SKIPPED, state), 0
    if kind == ValueKind.INTEGER:
        return (_skip_word(i), NULL) if byte_at(i) == 110 else _read_integer(i)
    if kind == ValueKind.TIME:
        return _read_time(i)
    if kind == ValueKind.TEXT:
        return _read_text(i, state)
    if kind == ValueKind.LANE:
        return _read_lane_part(i, state)
    if kind == ValueKind.RAW:
        return _read_raw(i, state)
    if kind == ValueKind.WHOLE:
        return _read_whole(i)
    if kind == ValueKind.PHASE:
        return _read_phase(i)
    return _skip_value(i, False, state), int(byte_at(i) != 110)


@compile_function
def _store_field(i: int, field: int, row: int, state: int) -> int:
    """Read a value into its place in the row; return its end."""
    kind = word_at(word_at(state + WORD * State.KINDS) + WORD * field)
    column = word_at(word_at(state + WORD * State.COLUMNS) + WORD * field)
    if kind == ValueKind.DECIMAL:
        i, value, scale = _read_decimal(i)
        put_word(row + WORD * ScanColumn.OCCUPANCY, value)
        put_word(row + WORD * ScanColumn.OCCUPANCY_SCALE, scale)
        return i
    i, value = _read_field(i, kind, state)
    if column >= 0:
        put_word(row + WORD * column, value)
    return i


@compile_function
def _scan_event(i: int, row: int, args: int, state: int) -> int:
    """Read one event into a row; return its end. `args` is the number of the field with the arguments."""
    level, has_args, is_first = 0, False, True
    i += 1
    while i >= 0:
        i = _skip_space(i)
        if byte_at(i) == 125:
            i += 1
            if level == 0:
                return i
            level, is_first = 0, False
            continue
        if not is_first:
            if byte_at(i) != 44:
                return DECLINED
            i = _skip_space(i + 1)
        is_first = False
        first = i + 1
        end, i = _read_key(i)
        if i < 0:
            return DECLINED
        field = _field(first, end, level, state)
        if field == args:
            if byte_at(i) != 123 or has_args:
                return DECLINED
            level, has_args, is_first = 1, True, True
            i += 1
        else:
            i = _store_field(i, field, row, state)
    return i


@compile_function
def scan_events(text: int, size: int, args: int, state: int) -> int:
    """Fill a row for each event of `[...]`; return their number, `DECLINED` or `FULL`."""
    put_word(state + WORD * State.USED_ROWS, 0)
    put_word(state + WORD * State.NON_ASCII, 0)
    empty, most = word_at(state + WORD * State.EMPTY_ROW), word_at(state + WORD * State.MOST_ROWS)
    row, rows = word_at(state + WORD * State.ROWS), 0
    i = _skip_space(text + 1)
    while byte_at(i) == 123:
        if rows == most:
            return FULL
        for k in range(_WIDTH):
            put_word(row + WORD * k, word_at(empty + WORD * k))
        put_word(row + WORD * ScanColumn.BEGIN, i - text)
        i = _scan_event(i, row, args, state)
        lane = _lane(row + WORD * ScanColumn.PID, state)
        if i < 0 or lane < 0:
            return i if i < 0 else lane
        put_word(row + WORD * ScanColumn.LANE, lane)
        put_word(row + WORD * ScanColumn.END, i - text)
        row, rows = row + _ROW_BYTES, rows + 1
        put_word(state + WORD * State.USED_ROWS, rows)
        i = _skip_space(i)
        if byte_at(i) != 44:
            break
        i = _skip_space(i + 1)
        if byte_at(i) != 123:
            return DECLINED
    return rows if byte_at(text) == 91 and byte_at(i) == 93 and i + 1 == text + size else DECLINED


@compile_function
def place_texts(state: int) -> None:
    """Fill the slots of a larger table of texts, which are empty."""
    slots, mask = word_at(state + WORD * State.SLOTS), word_at(state + WORD * State.SLOT_MASK)
    for code in range(1, word_at(state + WORD * State.USED_TEXTS)):
        at = word_at(word_at(state + WORD * State.HASHES) + WORD * code) & mask
        while word_at(slots + WORD * at):
            at = (at + 1) & mask
        put_word(slots + WORD * at, code)


@compile_function
def place_lanes(state: int) -> None:
    """Fill the slots of a larger table of lanes, which are empty."""
    lanes, used = word_at(state + WORD * State.LANES), word_at(state + WORD * State.USED_LANES)
    put_word(state + WORD * State.USED_LANES, 0)
    for code in range(used):
        _lane(lanes + WORD * LANE_PARTS * code, state)
