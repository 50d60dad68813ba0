# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads the candidates of an ordinary request straight into a matrix, and gives up on anything else.

The general way (JSON to Python objects, validation, matrix) makes an object of every number. This one makes none, and
no error either: whatever is not plainly right is left to the general way, which finds it again and says where it is.
What is accepted here means the same there; a property test holds the two together.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.math cimport NAN, fabs
from libc.string cimport memchr, memcmp

import numpy as np

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, PyObject* overflow) except? -1.0

cdef double LARGEST = 3.4028234663852886e38
cdef double SLACK = 1e-15  # of a product of two rounded numbers
cdef double[23] POWERS
cdef int _n
for _n in range(23):
    POWERS[_n] = 10.0 ** _n


class GivenUp(Exception):
    """Not plainly right: the general way decides."""


def counted(bytes body):
    """Counts of what stands outside of strings: whatever the body is, in one pass.

    Args:
        body: JSON, or not.

    Returns:
        Commas, opening brackets and braces, and colons.
    """
    cdef const char* text = PyBytes_AS_STRING(body)
    cdef Py_ssize_t at = 0, end = PyBytes_GET_SIZE(body), back
    cdef Py_ssize_t commas = 0, openings = 0, colons = 0
    cdef const char* quote
    cdef char c
    while at < end:
        c = text[at]
        at += 1
        if c == c',':
            commas += 1
        elif c == c':':
            colons += 1
        elif c == c'[' or c == c'{':
            openings += 1
        elif c == c'"':
            while True:  # to the next quote before which an even number of backslashes stands
                quote = <const char*>memchr(text + at, c'"', end - at)
                if quote == NULL:
                    return commas, openings, colons
                back = quote - text - 1
                while back >= at and text[back] == c'\\':
                    back -= 1
                if (quote - text - 1 - back) % 2 == 0:
                    at = quote - text + 1
                    break
                at = quote - text + 1
    return commas, openings, colons


cdef class Plan:
    """What a schema's rows look like.

    Args:
        names: of the features, UTF-8, in schema order.
        codes: of every feature the codes of its categories by UTF-8 value; None for a number.
        code_of: of every feature what gives the code of any other text.
        absent: of every feature what a row by name without it has; None where it must not lack it.
        ignored: unknown features that a row by name may have beside the known ones.
    """

    cdef list names
    cdef dict columns
    cdef list codes, code_of
    cdef list absent
    cdef Py_ssize_t width, most

    def __init__(self, names, codes, code_of, absent, ignored):
        self.names, self.codes, self.code_of, self.absent = list(names), list(codes), list(code_of), list(absent)
        self.columns = {name: column for column, name in enumerate(self.names)}
        self.width = len(self.names)
        self.most = self.width + ignored


cdef class _Reader:
    """A place in a text."""

    cdef const char* text
    cdef Py_ssize_t at, end
    cdef object owner

    def __init__(self, bytes body):
        self.owner = body
        self.text = PyBytes_AS_STRING(body)  # ends in a zero byte, which no value contains
        self.at, self.end = 0, PyBytes_GET_SIZE(body)

    cdef inline void skip(self) noexcept:
        """White space."""
        cdef char c
        while True:
            c = self.text[self.at]
            if c != c' ' and c != c'\n' and c != c'\r' and c != c'\t':
                return
            self.at += 1

    cdef inline int expect(self, char c) except -1:
        self.skip()
        if self.text[self.at] != c:
            raise GivenUp
        self.at += 1
        return 0

    cdef inline bint take(self, char c) noexcept:
        """Whether this character comes next; it is passed if so."""
        self.skip()
        if self.text[self.at] != c:
            return False
        self.at += 1
        return True

    cdef inline Py_ssize_t string(self) except -1:
        """Pass a string without escapes; its length. It ends one before the new place."""
        self.expect(c'"')
        cdef Py_ssize_t start = self.at
        cdef unsigned char c
        while True:
            c = <unsigned char>self.text[self.at]
            if c == c'"':
                break
            if c == c'\\' or c < 0x20:
                raise GivenUp
            self.at += 1
        self.at += 1
        return self.at - 1 - start

    cdef inline double number(self) except? -1.0:
        """A JSON number that fits float32, or null as NaN."""
        self.skip()
        cdef const char* text = self.text
        cdef Py_ssize_t start = self.at, at = self.at
        cdef unsigned long long digits = 0
        cdef int count = 0, exponent = 0, written = 0
        cdef bint negative = False, below = False, significant = False
        if text[at] == c'n':
            if memcmp(text + at, b"null", min(4, self.end - at)) or self.end - at < 4:
                raise GivenUp
            self.at = at + 4
            return NAN
        if text[at] == c'-':
            negative = True
            at += 1
        if not c'0' <= text[at] <= c'9':
            raise GivenUp
        if text[at] == c'0' and c'0' <= text[at + 1] <= c'9':
            raise GivenUp
        while c'0' <= text[at] <= c'9':
            digits = digits * 10 + (text[at] - c'0')
            significant = significant or text[at] != c'0'
            count += significant  # digits itself may have wrapped to 0
            at += 1
        if text[at] == c'.':
            at += 1
            if not c'0' <= text[at] <= c'9':
                raise GivenUp
            while c'0' <= text[at] <= c'9':
                digits = digits * 10 + (text[at] - c'0')
                significant = significant or text[at] != c'0'
                count += significant
                exponent -= 1
                at += 1
        if text[at] == c'e' or text[at] == c'E':
            at += 1
            if text[at] == c'-' or text[at] == c'+':
                below = text[at] == c'-'
                at += 1
            if not c'0' <= text[at] <= c'9':
                raise GivenUp
            while c'0' <= text[at] <= c'9':
                written = min(written * 10 + (text[at] - c'0'), 9999)
                at += 1
            exponent += -written if below else written
        self.at = at
        cdef double value
        cdef char* end
        if count <= 19 and -22 <= exponent <= 22:
            value = <double>digits
            value = value * POWERS[exponent] if exponent >= 0 else value / POWERS[-exponent]
            if <float>(value * (1.0 - SLACK)) != <float>(value * (1.0 + SLACK)):
                count = 99  # so near to half way between two float32 that two roundings might choose the wrong one
        if not (count <= 19 and -22 <= exponent <= 22):
            if at - start > 400:
                raise GivenUp
            value = fabs(PyOS_string_to_double(text + start, &end, NULL))
        if negative:
            value = -value
        if not fabs(value) <= LARGEST:
            raise GivenUp
        return value

    cdef int scalar(self) except -1:
        """Pass a number that fits float32, a string, null, true or false."""
        cdef Py_ssize_t length
        self.skip()
        cdef char c = self.text[self.at]
        if c == c'"':
            length = self.string()
            _decoded(self.text[self.at - 1 - length : self.at - 1])
        elif c == c't' and self.end - self.at >= 4 and not memcmp(self.text + self.at, b"true", 4):
            self.at += 4
        elif c == c'f' and self.end - self.at >= 5 and not memcmp(self.text + self.at, b"false", 5):
            self.at += 5
        else:
            self.number()
        return 0

    cdef int value(self) except -1:
        """Pass any value; what is wrong with it, the general way will find."""
        cdef Py_ssize_t depth = 0
        cdef char c
        while True:
            self.skip()
            c = self.text[self.at]
            if c == c'"':
                self.string()
            elif c == c'{' or c == c'[':
                depth += 1
                self.at += 1
            elif c == c'}' or c == c']':
                depth -= 1
                self.at += 1
            elif self.at >= self.end:
                raise GivenUp
            elif depth == 0 and c == c',':
                raise GivenUp
            else:
                self.at += 1
                if depth == 0:
                    while self.text[self.at] not in b",}] \n\r\t\0":
                        self.at += 1
            if depth < 0:
                raise GivenUp
            if depth == 0:
                return 0


def scan(bytes body, Plan plan, Py_ssize_t most):
    """The candidates of a request, and the rest of it.

    Args:
        body: JSON.
        plan: of the served schema.
        most: candidates beyond which the general way is to refuse.

    Returns:
        The body with an empty row where its candidates were; ``(L, D)`` float32 features; their ids, or None; whether
        a row lacks a feature, which the context may supply; and the names of unknown features.

    Raises:
        GivenUp: if it is anything but rows of features, by name or by position, all of them good and as complete as the
            plan wants them.
    """
    cdef _Reader reader = _Reader(body)
    cdef Py_ssize_t start = -1, stop = -1, length
    # a value and what separates it from the next take two bytes at least
    cdef Py_ssize_t room = min(most, len(body) // max(2 * plan.width, 1) + 1)
    cdef float[:, ::1] matrix = np.empty((room, plan.width), dtype=np.float32)
    cdef Py_ssize_t count = 0
    cdef bint by_candidate = False, named, matrix_follows, names_follow
    cdef _Names found = _Names(plan)
    ids = columns = None
    reader.expect(c'{')
    while True:
        length = reader.string()
        named, matrix_follows = _is(reader, length, b"candidates"), _is(reader, length, b"features")
        names_follow = _is(reader, length, b"feature_names")
        reader.expect(c':')
        reader.skip()
        if named or matrix_follows:
            if start >= 0:
                raise GivenUp
            by_candidate = named
            start = reader.at
            if by_candidate:
                ids = []
                count = _candidates(reader, plan, matrix, ids, found)
            else:
                count = _rows(reader, plan, matrix, list(range(plan.width)) if columns is None else columns)
            stop = reader.at
        elif names_follow:
            columns = _columns(reader, plan, found)
            if start >= 0 and columns != list(range(plan.width)):
                raise GivenUp  # the rows were read as if they had all names in their order
        else:
            reader.value()
        if reader.take(c'}'):
            break
        reader.expect(c',')
    reader.skip()
    if count == 0 or reader.at != reader.end:
        raise GivenUp
    rest = body[:start] + (b'[{"features":[]}]' if by_candidate else b"[[]]") + body[stop:]
    return rest, np.asarray(matrix[:count]), ids or None, found.lacking, tuple(map(_decoded, found.unknown))


cdef class _Names:
    """What is known of rows by name: most likely a row's names are those of the row before, in the same order."""

    cdef list expected  # by place
    cdef Py_ssize_t[::1] columns  # of the expected names; -1: unknown
    cdef Py_ssize_t[::1] seen  # by column the last row that had it
    cdef dict unknown  # by name the last row that had it
    cdef bint lacking

    def __init__(self, Plan plan):
        self.expected = [*plan.names, *[b"\0"] * (plan.most - plan.width)]  # no string that is read has a zero byte
        self.columns = np.arange(plan.most, dtype=np.intp)
        self.seen = np.full(plan.width, -1, dtype=np.intp)
        self.unknown = {}
        self.lacking = False


cdef Py_ssize_t _column(_Reader reader, Plan plan, _Names found, Py_ssize_t place, Py_ssize_t row) except -2:
    """Pass a name, which the row must not have had before; its column, -1 for one that is ignored."""
    cdef Py_ssize_t length = reader.string(), column
    cdef bytes name
    if place == plan.most:
        raise GivenUp
    if not _is(reader, length, found.expected[place]):
        name = reader.text[reader.at - 1 - length : reader.at - 1]
        found.expected[place] = name
        found.columns[place] = plan.columns.get(name, -1)
    column = found.columns[place]
    if column >= 0:
        if found.seen[column] == row:
            raise GivenUp
        found.seen[column] = row
    else:
        if plan.most == plan.width or found.unknown.get(found.expected[place]) == row:
            raise GivenUp
        found.unknown[found.expected[place]] = row
    return column


cdef list _columns(_Reader reader, Plan plan, _Names found):
    """Names of columns: of each the feature, or -1. Those that are not named are left out of every row."""
    cdef list columns = []
    cdef Py_ssize_t column
    reader.expect(c'[')
    while True:
        columns.append(_column(reader, plan, found, len(columns), 0))
        if reader.take(c']'):
            break
        reader.expect(c',')
    for column in range(plan.width):
        if found.seen[column] < 0:
            found.lacking = True
            if plan.absent[column] is None:
                raise GivenUp
    return columns


cdef inline bint _is(_Reader reader, Py_ssize_t length, bytes name) noexcept:
    """Whether the string of this length that ends here is the name."""
    return length == PyBytes_GET_SIZE(name) and not memcmp(
        reader.text + reader.at - 1 - length, PyBytes_AS_STRING(name), length
    )


cdef Py_ssize_t _rows(_Reader reader, Plan plan, float[:, ::1] matrix, list columns) except -1:
    """An array of rows of these columns; how many."""
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t[::1] order = np.array(columns, dtype=np.intp)
    for column in set(range(plan.width)).difference(columns):
        matrix[:, column] = plan.absent[column]
    reader.expect(c'[')
    while True:
        if row == matrix.shape[0]:
            raise GivenUp
        _by_position(reader, plan, matrix, row, order)
        row += 1
        if reader.take(c']'):
            return row
        reader.expect(c',')


cdef int _by_position(
    _Reader reader, Plan plan, float[:, ::1] matrix, Py_ssize_t row, Py_ssize_t[::1] order
) except -1:
    cdef Py_ssize_t place
    reader.expect(c'[')
    for place in range(order.shape[0]):
        if place:
            reader.expect(c',')
        if order[place] < 0:
            reader.scalar()
        else:
            matrix[row, order[place]] = _value(reader, plan, order[place])
    reader.expect(c']')
    return 0


cdef inline float _value(_Reader reader, Plan plan, Py_ssize_t column) except? -1.0:
    """A number, or the code of a category."""
    cdef Py_ssize_t length
    if plan.codes[column] is None:
        return <float>reader.number()
    if not reader.take(c'"'):
        reader.skip()
        if reader.text[reader.at] != c'n':
            raise GivenUp
        reader.number()
        return -0.0  # missing: MISSING_CODE
    reader.at -= 1
    length = reader.string()
    value = reader.text[reader.at - 1 - length : reader.at - 1]
    code = (<dict>plan.codes[column]).get(value)
    return plan.code_of[column](_decoded(value)) if code is None else code


cdef str _decoded(bytes value):
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise GivenUp from None


cdef Py_ssize_t _candidates(_Reader reader, Plan plan, float[:, ::1] matrix, list ids, _Names found) except -1:
    """An array of candidates; how many. Either all have an id, or none."""
    cdef Py_ssize_t row = 0, length
    cdef bint has_id, has_features
    cdef Py_ssize_t[::1] order = np.arange(plan.width, dtype=np.intp)
    reader.expect(c'[')
    while True:
        if row == matrix.shape[0]:
            raise GivenUp
        has_id = has_features = False
        reader.expect(c'{')
        while True:
            length = reader.string()
            if not has_features and _is(reader, length, b"features"):
                has_features = True
                reader.expect(c':')
                reader.skip()
                if reader.text[reader.at] == c'[':
                    _by_position(reader, plan, matrix, row, order)
                else:
                    _by_name(reader, plan, matrix, row, found)
            elif not has_id and _is(reader, length, b"id"):
                has_id = True
                reader.expect(c':')
                length = reader.string()
                if length > 512:
                    raise GivenUp
                ids.append(_decoded(reader.text[reader.at - 1 - length : reader.at - 1]))
            else:
                raise GivenUp
            if reader.take(c'}'):
                break
            reader.expect(c',')
        row += 1
        if not has_features or len(ids) != (row if has_id else 0):
            raise GivenUp
        if reader.take(c']'):
            break
        reader.expect(c',')
    if len(set(ids)) != len(ids):
        raise GivenUp
    return row


cdef int _by_name(_Reader reader, Plan plan, float[:, ::1] matrix, Py_ssize_t row, _Names found) except -1:
    """An object of features, each once."""
    cdef Py_ssize_t place = 0, column, known = 0
    reader.expect(c'{')
    if not reader.take(c'}'):
        while True:
            column = _column(reader, plan, found, place, row)
            place += 1
            reader.expect(c':')
            if column < 0:
                reader.scalar()
            else:
                known += 1
                matrix[row, column] = _value(reader, plan, column)
            if reader.take(c'}'):
                break
            reader.expect(c',')
    if known < plan.width:
        found.lacking = True
        for column in range(plan.width):
            if found.seen[column] != row:
                if plan.absent[column] is None:
                    raise GivenUp
                matrix[row, column] = plan.absent[column]
    return 0
