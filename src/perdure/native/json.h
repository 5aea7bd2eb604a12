/* JSON and checksums as msgspec and zlib make them, of what is simple enough; the rest is theirs. */

#ifndef PERDURE_JSON_H
#define PERDURE_JSON_H

#include "fields.h"
#include <string.h>

/* Longer texts than this go the other way, so that what is written here fits a buffer on the stack. */
#define TEXT_MAX 600
#define BUFFER_SIZE (4 * TEXT_MAX + 512)
/* With more digits it may not be an int that JSON keeps. */
#define INT_MAX_SAFE 999999999999999999LL

static unsigned int crc_table[256];

static void
fill_crc_table(void)
{
    for (unsigned int byte = 0; byte < 256; byte++) {
        unsigned int crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? 0xEDB88320u ^ (crc >> 1) : crc >> 1;
        }
        crc_table[byte] = crc;
    }
}

/* `zlib.crc32(data, crc)`. */
static unsigned int
crc32(const char *data, Py_ssize_t size, unsigned int crc)
{
    crc = ~crc;
    for (Py_ssize_t i = 0; i < size; i++) {
        crc = crc_table[(crc ^ (unsigned char)data[i]) & 0xFF] ^ (crc >> 8);
    }
    return ~crc;
}

/* The characters of a text that JSON takes as they are; NULL, without an exception, for any other. */
static const char *
json_text(PyObject *text, Py_ssize_t *size)
{
    if (!PyUnicode_CheckExact(text) || !PyUnicode_IS_COMPACT_ASCII(text)) {
        return NULL;
    }
    const char *characters = (const char *)PyUnicode_1BYTE_DATA(text);
    *size = PyUnicode_GET_LENGTH(text);
    if (*size > TEXT_MAX) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < *size; i++) {
        unsigned char character = (unsigned char)characters[i];
        if (character < 0x20 || character == '"' || character == '\\') {
            return NULL;
        }
    }
    return characters;
}

static inline char *
add(char *end, const char *text, Py_ssize_t size)
{
    memcpy(end, text, (size_t)size);
    return end + size;
}

#define ADD(end, literal) add(end, literal, sizeof(literal) - 1)

static char *
add_number(char *end, long long number)
{
    char digits[24], *first = digits + sizeof digits;
    unsigned long long rest = number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number;
    do {
        *--first = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0) {
        *--first = '-';
    }
    return add(end, first, digits + sizeof digits - first);
}

/* Adds a scalar as JSON; NULL, without an exception, if only the codec knows how. */
static char *
add_scalar(char *end, PyObject *value)
{
    if (PyLong_CheckExact(value)) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow || number > INT_MAX_SAFE || number < -INT_MAX_SAFE) {
            return NULL;
        }
        return add_number(end, number);
    }
    if (PyUnicode_CheckExact(value)) {
        Py_ssize_t size;
        const char *text = json_text(value, &size);
        if (text == NULL) {
            return NULL;
        }
        *end++ = '"';
        end = add(end, text, size);
        *end++ = '"';
        return end;
    }
    if (value == Py_None) {
        return ADD(end, "null");
    }
    if (value == Py_True) {
        return ADD(end, "true");
    }
    return value == Py_False ? ADD(end, "false") : NULL;
}

#endif
